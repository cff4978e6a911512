"""Offsets and epochs that the broker no longer knows, added to its answers from the view and the remote tier.

request                      source of the answer
earliest (-2)                the log start offset over both tiers
a time                       the remote tier's first record at or after it, if any; otherwise the broker
max timestamp (-3)           the remote tier, if its latest time is not before the broker's; otherwise the broker
last tiered (-5)             the highest offset in the remote tier, if any; otherwise the broker
latest, earliest local, …    the broker
an epoch                     the lineage, if that epoch ended below the local tier; otherwise the broker
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..fetch.piece import LogicalBounds
from ..runtime.pool import Pool
from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError
from ..state.lineage import EpochEnd
from ..state.offsets import Offset, TimestampMs
from . import codes
from .codes import code_of
from .counts import Counts
from .fetch_request import Place
from .offsets import (
    BROKERS_OWN,
    EARLIEST,
    LAST_TIERED,
    MAX_TIMESTAMP,
    EpochSaid,
    OffsetSaid,
    OffsetsAsked,
    epochs_said,
    offsets_said,
)

Found = tuple[Offset, TimestampMs]
NO_EPOCH = -1
NO_TIME = -1


class Older(Protocol):
    """The methods of `fetch.reader.LogReader` that are needed here. Thread-safe, blocking."""

    def is_tiered(self, topic: str) -> bool: ...

    def bounds(self, topic: str, partition: int) -> LogicalBounds: ...

    def first_remote(self, topic: str, partition: int, timestamp_ms: int) -> Found | None: ...

    def latest_remote(self, topic: str, partition: int, above_ms: int) -> Found | None: ...

    def epoch_at(self, topic: str, partition: int, offset: int) -> LeaderEpoch | None: ...

    def remote_epoch_end(self, topic: str, partition: int, epoch: LeaderEpoch) -> EpochEnd | None: ...


@dataclass(frozen=True, slots=True)
class _Answer:
    offset: int
    timestamp: int
    epoch: int


class OlderOffsets:
    """Patches answers of all connections. ``remote``: threads for object reads. ``seen`` gets every error."""

    def __init__(
        self,
        reader: Older,
        metadata: Pool,
        remote: Pool,
        counts: Counts,
        seen: Callable[[Place, Offset, BaseException], None],
    ) -> None:
        self._reader, self._metadata, self._remote = reader, metadata, remote
        self._counts, self._seen = counts, seen

    async def patch_offsets(self, request: OffsetsAsked, version: int, body: bytes) -> bytearray:
        """Return the patched body of a ListOffsets answer. Raises Malformed."""
        patched = bytearray(body)
        entries = [
            each
            for each in offsets_said(body, version)
            if each.error == codes.NONE and each.place in request.timestamps
        ]
        older = [each for each in entries if request.timestamps[each.place] not in BROKERS_OWN]
        await asyncio.gather(*(self._patch_offset(each, request.timestamps[each.place], patched) for each in older))
        return patched

    async def patch_epochs(self, epochs: dict[Place, int], version: int, body: bytes) -> bytearray:
        """Return the patched body of an OffsetForLeaderEpoch answer. Raises Malformed."""
        patched = bytearray(body)
        entries = [
            each for each in epochs_said(body, version) if each.error == codes.NONE and epochs.get(each.place, -1) >= 0
        ]
        await asyncio.gather(*(self._patch_epoch(each, epochs[each.place], patched) for each in entries))
        return patched

    async def _patch_offset(self, entry: OffsetSaid, timestamp: int, body: bytearray) -> None:
        try:
            pool = self._metadata if timestamp in (EARLIEST, LAST_TIERED) else self._remote
            answer = await pool.run(lambda: self._answer(entry, timestamp), goes_on=True)
        except TierstateError as error:
            self._seen(entry.place, Offset(entry.offset), error)
            code = code_of(error)
            self._counts.errors[code] += 1
            entry.fails(body, codes.KAFKA_STORAGE_ERROR if code == codes.OFFSET_OUT_OF_RANGE else code)
            return
        if answer is not None:
            entry.says(body, answer.timestamp, answer.offset, answer.epoch)

    def _answer(self, entry: OffsetSaid, timestamp: int) -> _Answer | None:
        topic, number = entry.place
        if timestamp == EARLIEST:
            start = self._reader.bounds(topic, number).start(topic, number)
            return None if start == entry.offset else self._of(entry.place, (start, TimestampMs(NO_TIME)))
        if timestamp == LAST_TIERED:
            last = self._reader.bounds(topic, number).highest_remote
            return None if last is None else self._of(entry.place, (last, TimestampMs(NO_TIME)))
        if timestamp == MAX_TIMESTAMP:
            record = self._reader.latest_remote(topic, number, entry.timestamp)
        else:
            record = self._reader.first_remote(topic, number, timestamp)
        return None if record is None else self._of(entry.place, record)

    def _of(self, place: Place, record: Found) -> _Answer:
        epoch = self._reader.epoch_at(*place, record[0])
        return _Answer(record[0], record[1], NO_EPOCH if epoch is None else epoch)

    async def _patch_epoch(self, entry: EpochSaid, epoch: int, body: bytearray) -> None:
        topic, number = entry.place
        try:
            end = await self._metadata.run(
                lambda: self._reader.remote_epoch_end(topic, number, LeaderEpoch(epoch)), goes_on=True
            )
        except TierstateError as error:
            self._seen(entry.place, Offset(entry.end), error)
            self._counts.errors[codes.KAFKA_STORAGE_ERROR] += 1
            entry.fails(body, codes.KAFKA_STORAGE_ERROR)
            return
        if end is not None:
            entry.says(body, end.epoch, end.end)

"""Offsets and epochs that the broker no longer knows, added to its answers from the view and the remote tier.

request                      source of the answer
earliest (-2)                the log start offset over both tiers
a time                       the remote tier's first record at or after it, if any; otherwise the broker
max timestamp (-3)           the remote tier, if its latest time is not before the broker's; otherwise the broker
last tiered (-5)             the highest offset in the remote tier, if any; otherwise the broker
latest, earliest local, …    the broker
an epoch                     the lineage, if that epoch ended below the local tier; otherwise the broker

Only entries of an answer without an error are patched, for which the broker has checked the client's permission. If the
remote tier cannot be read, the entry gets an error: with the broker's answer consumers would skip remote records.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..broker.wire import Frame
from ..fetch.reader import LogReader
from ..runtime.pool import Pool
from ..state.epochs import LeaderEpoch
from ..state.errors import TierstateError
from ..state.offsets import Offset, TimestampMs
from . import codes
from .apis import APIS, Key
from .codes import Counts, code_of
from .fetch_request import Place

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LAST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
BROKERS_OWN = (LATEST, EARLIEST_LOCAL, EARLIEST_PENDING)
_FOUND = struct.Struct(">hqq")
_EPOCH = struct.Struct(">i")
_END = struct.Struct(">iq")
_INT16 = struct.Struct(">h")
Found = tuple[Offset, TimestampMs]
NO_EPOCH = -1
NO_TIME = -1


def read_list_offsets(data: bytes | bytearray, at: int, version: int) -> dict[Place, int]:
    """Return each partition's timestamp in a ListOffsets request, or one of the constants above. Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.LIST_OFFSETS].is_flexible(version)
    frame.int32()  # replica
    if version >= 2:
        frame.int8()  # isolation level
    timestamps: dict[Place, int] = {}
    for topic in frame.partitions(flexible, 12):
        number = frame.int32()
        if version >= 4:
            frame.int32()  # current leader epoch
        timestamps[topic, number] = frame.int64()
    if version >= 10:
        frame.int32()  # timeout
    frame.ends(flexible)
    return timestamps


@dataclass(frozen=True, slots=True)
class OffsetSaid:
    """One entry of a ListOffsets answer. ``at``: its position. ``offset`` is -1 if there is no such record."""

    place: Place
    error: int
    timestamp: int
    offset: int
    at: int
    has_epoch: bool

    def says(self, body: bytearray, timestamp: int, offset: int, epoch: int) -> None:
        _FOUND.pack_into(body, self.at, 0, timestamp, offset)
        if self.has_epoch:
            _EPOCH.pack_into(body, self.at + _FOUND.size, epoch)

    def fails(self, body: bytearray, code: int) -> None:
        self.says(body, -1, -1, -1)
        _INT16.pack_into(body, self.at, code)


def offsets_said(body: bytes | bytearray, version: int) -> Iterator[OffsetSaid]:
    """Yield the entries of a ListOffsets answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.LIST_OFFSETS].is_flexible(version)
    if version >= 2:
        frame.int32()  # throttle time
    for topic in frame.partitions(flexible, 22):
        number, at = frame.int32(), frame.skip(_FOUND.size)
        error, timestamp, offset = _FOUND.unpack_from(body, at)
        if version >= 4:
            frame.int32()
        yield OffsetSaid((topic, number), error, timestamp, offset, at, version >= 4)
    frame.ends(flexible)


def read_epochs(data: bytes | bytearray, at: int, version: int) -> dict[Place, int]:
    """Return the requested epoch of each partition in an OffsetForLeaderEpoch request. Raises Malformed."""
    frame, flexible = Frame(data, at), APIS[Key.OFFSET_FOR_LEADER_EPOCH].is_flexible(version)
    if version >= 3:
        frame.int32()  # replica
    epochs: dict[Place, int] = {}
    for topic in frame.partitions(flexible, 12):
        number, _current = frame.int32(), frame.int32()
        epochs[topic, number] = frame.int32()
    frame.ends(flexible)
    return epochs


@dataclass(frozen=True, slots=True)
class EpochSaid:
    """One entry of an OffsetForLeaderEpoch answer. ``end`` is exclusive; it and ``epoch`` are -1 if unknown."""

    place: Place
    error: int
    epoch: int
    end: int
    at: int
    error_at: int

    def says(self, body: bytearray, epoch: int, end: int) -> None:
        _END.pack_into(body, self.at, epoch, end)

    def fails(self, body: bytearray, code: int) -> None:
        self.says(body, -1, -1)
        _INT16.pack_into(body, self.error_at, code)


def epochs_said(body: bytes | bytearray, version: int) -> Iterator[EpochSaid]:
    """Yield the entries of an OffsetForLeaderEpoch answer. Raises Malformed."""
    frame, flexible = Frame(body), APIS[Key.OFFSET_FOR_LEADER_EPOCH].is_flexible(version)
    frame.int32()  # throttle time
    for topic in frame.partitions(flexible, 18):
        error_at = frame.at
        error, number, at = frame.int16(), frame.int32(), frame.skip(_END.size)
        epoch, end = _END.unpack_from(body, at)
        yield EpochSaid((topic, number), error, epoch, end, at, error_at)
    frame.ends(flexible)


class OlderOffsets:
    """Patches answers of all connections. ``remote``: threads for object reads. ``seen`` gets every error."""

    def __init__(
        self,
        reader: LogReader,
        metadata: Pool,
        remote: Pool,
        counts: Counts,
        seen: Callable[[Place, Offset, BaseException], None],
    ) -> None:
        self._reader, self._metadata, self._remote = reader, metadata, remote
        self._counts, self._seen = counts, seen

    async def patch_offsets(self, times: dict[Place, int], version: int, body: bytes) -> bytearray:
        """Return the patched body of a ListOffsets answer. Raises Malformed."""
        patched = bytearray(body)
        entries = [each for each in offsets_said(body, version) if each.error == codes.NONE and each.place in times]
        older = [each for each in entries if times[each.place] not in BROKERS_OWN]
        await asyncio.gather(*(self._patch_offset(each, times[each.place], patched) for each in older))
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
            entry.says(body, *answer)

    def _answer(self, entry: OffsetSaid, timestamp: int) -> tuple[int, int, int] | None:
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

    def _of(self, place: Place, record: Found) -> tuple[int, int, int]:
        """Return time, offset and epoch of a record."""
        epoch = self._reader.epoch_at(*place, record[0])
        return record[1], record[0], NO_EPOCH if epoch is None else epoch

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

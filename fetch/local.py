"""The local tier for fetch: the broker's raw batches, and aborted transactions as closed offset ranges.

A Fetch answer under read_committed lists ``(producer id, first offset)`` of every aborted transaction that may touch
its batches. Kafka's consumer hides that producer's transactional batches from there up to its next abort marker
(`CompletedFetch.nextFetchedRecord`). With the markers in the same batches this becomes a range: up to the marker, or up
to the last batch if the marker is not in this answer (the next answer lists the transaction again).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..broker.answers import FetchSpec
from ..broker.open import Broker
from ..log.batch import CONTROL, TRANSACTIONAL, BatchHeader, iter_batches
from ..log.isolation import AbortFilter, MarkerCheck
from ..log.transactions import ABORT, marker_type
from ..state.epochs import LeaderEpoch
from ..state.errors import BrokerUnavailable
from ..state.ids import TopicIdPartition
from ..state.lineage import EpochEnd
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation, LocalBounds
from ..state.segment import AbortedRange
from .piece import StoredBatches


@dataclass(frozen=True, slots=True)
class LocalPiece(StoredBatches):
    """A piece of the local tier. ``bounds`` are from the same answer as ``data``."""

    bounds: LocalBounds


class LocalTier(Protocol):
    """The local tier, as fetch uses it. Thread-safe. Also raises UnknownTopic, AccessDenied, BrokerUnavailable."""

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        """Return the bounds of the topic with this name. Only `fetch` raises UnknownTopic if it was re-created."""
        ...

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        """Return complete batches from ``spec.offset`` on. They are empty only at the end, after ``spec.wait_ms``.

        Raises OffsetOutOfRange, Fenced (a newer leader epoch), UnknownTopic (re-created), BrokerUnavailable.
        """
        ...

    def offset_at(
        self, topic: str, partition: TopicIdPartition, timestamp: TimestampMs
    ) -> tuple[Offset, TimestampMs] | None:
        """Return the broker's first record at or after a time. It may be below the local start (observed)."""
        ...

    def end_of_epoch(
        self, topic: str, partition: TopicIdPartition, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        """Return the end of the leader's newest epoch up to ``epoch``. None: the leader's log has no such epoch.

        Raises Fenced when a newer leader epoch than ``leader_epoch`` exists.
        """
        ...


class BrokerTier:
    """The local tier of a cluster: requests go to each partition's leader."""

    def __init__(self, broker: Broker) -> None:
        self._reader = broker.reads

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        return self._reader.bounds(topic, partition.partition)

    def end_of_epoch(
        self, topic: str, partition: TopicIdPartition, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        return self._reader.end_of_epoch(topic, partition.partition, epoch, leader_epoch)

    def offset_at(
        self, topic: str, partition: TopicIdPartition, timestamp: TimestampMs
    ) -> tuple[Offset, TimestampMs] | None:
        return self._reader.offset_at(topic, partition.partition, timestamp)

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        answer = self._reader.fetch(spec)
        end = answer.bounds.end(spec.isolation)
        if not answer.batches:
            if spec.offset < end:
                # never skip: these offsets may be missing, or the broker may have held them back
                raise BrokerUnavailable(
                    "the broker returned no batch below its end",
                    topic=spec.topic,
                    partition=spec.partition,
                    offset=spec.offset,
                    end=end,
                )
            return LocalPiece(b"", (), spec.offset, answer.bounds)
        source = f"{spec.topic}-{spec.partition}@{spec.offset}"
        headers = list(iter_batches(answer.batches, source=source, verify_crc=False))  # the decoder checks
        last = headers[-1].last_offset
        aborted: tuple[AbortedRange, ...] = ()
        if spec.isolation is Isolation.READ_COMMITTED:
            aborted = hidden_ranges(answer.batches, headers, answer.aborted, source)
        return LocalPiece(answer.batches, aborted, Offset(last + 1), answer.bounds)


def hidden_ranges(
    data: bytes, headers: Sequence[BatchHeader], listed: Iterable[tuple[int, Offset]], source: str
) -> tuple[AbortedRange, ...]:
    """Return the ranges that the broker's list of aborted transactions hides in these batches.

    Raises CorruptData if a marker among them contradicts the list. The broker reads its transaction index, which has no
    checksum: a missing or damaged index would show aborted records.
    """
    of_transactions = [header for header in headers if header.attributes & (TRANSACTIONAL | CONTROL)]
    if not of_transactions:
        return ()
    aborted = closed_ranges(listed, abort_markers(data, of_transactions, source), Offset(headers[-1].last_offset))
    check = MarkerCheck(AbortFilter(aborted), source)
    for header in of_transactions:
        check.add(header, data)
    return aborted


def closed_ranges(
    listed: Iterable[tuple[int, Offset]], markers: Iterable[tuple[int, Offset]], last: Offset
) -> tuple[AbortedRange, ...]:
    """Return the aborted transactions of a Fetch answer as inclusive ranges.

    ``listed``: (producer id, first offset), from the broker. ``markers``: (producer id, offset) of the abort markers
    among the batches, ascending. ``last``: the last offset of the last batch.
    """
    ends: dict[int, list[Offset]] = {}
    for producer_id, offset in markers:
        ends.setdefault(producer_id, []).append(offset)
    ranges = []
    for producer_id, first in listed:
        if first > last:
            continue
        own = ends.get(producer_id, [])
        at = bisect_left(own, first)
        ranges.append(AbortedRange(producer_id, first, own[at] if at < len(own) else last))
    return tuple(sorted(ranges, key=lambda each: (each.first, each.producer_id)))


def abort_markers(data: bytes, headers: Iterable[BatchHeader], source: str) -> list[tuple[int, Offset]]:
    """Return (producer id, offset) of every abort marker. Raises CorruptData for an unreadable control batch."""
    return [
        (header.producer_id, Offset(header.base_offset))
        for header in headers
        if header.is_control and marker_type(header, data, source=source) == ABORT
    ]

"""Reads the local tier: the broker's raw batches, and its aborted transactions as closed offset ranges.

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
    """Requests to the local tier. Thread-safe. Each also raises UnknownTopic, AccessDenied and BrokerUnavailable."""

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        """Return the bounds of the topic with this name. Only `fetch` notices a re-created topic."""

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        """Return complete batches from ``spec.offset`` on. At the end of the log, return none after ``spec.wait_ms``.

        Raises OffsetOutOfRange, Fenced (a newer leader epoch), and UnknownTopic also for a re-created topic.
        """

    def offset_at(
        self, topic: str, partition: TopicIdPartition, timestamp: TimestampMs
    ) -> tuple[Offset, TimestampMs] | None:
        """Return the broker's first record at or after a time. It may be below the local start (observed)."""

    def end_of_epoch(
        self, topic: str, partition: TopicIdPartition, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        """Return the end of the leader's newest epoch up to ``epoch``. None: the leader's log has no such epoch.

        Raises Fenced when a newer leader epoch than ``leader_epoch`` exists.
        """


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
                # never skip these offsets: they may be missing, or the broker may have held them back
                raise BrokerUnavailable(
                    "the broker returned no batch below its end",
                    topic=spec.topic,
                    partition=spec.partition,
                    offset=spec.offset,
                    end=end,
                )
            return LocalPiece(b"", (), spec.offset, answer.bounds)
        source = f"{spec.topic}-{spec.partition}@{spec.offset}"
        headers = list(iter_batches(answer.batches, source=source, verify_crc=False))  # the decoder verifies CRCs
        last = headers[-1].last_offset
        aborted: tuple[AbortedRange, ...] = ()
        if spec.isolation is Isolation.READ_COMMITTED:
            aborted = hidden_ranges(answer.batches, headers, answer.aborted, source)
        return LocalPiece(answer.batches, aborted, Offset(last + 1), answer.bounds)


def hidden_ranges(
    data: bytes, headers: Sequence[BatchHeader], transactions: Iterable[tuple[int, Offset]], source: str
) -> tuple[AbortedRange, ...]:
    """Return the ranges that the broker's list of aborted transactions hides in these batches.

    Raises CorruptData if a marker among them contradicts the list. The broker reads its transaction index, which has no
    checksum: a missing or damaged index would show aborted records.
    """
    transactional = [header for header in headers if header.attributes & (TRANSACTIONAL | CONTROL)]
    if not transactional:
        return ()
    aborted = closed_ranges(transactions, abort_markers(data, transactional, source), Offset(headers[-1].last_offset))
    check = MarkerCheck(AbortFilter(aborted), source)
    for header in transactional:
        check.add(header, data)
    return aborted


def closed_ranges(
    transactions: Iterable[tuple[int, Offset]], markers: Iterable[tuple[int, Offset]], last: Offset
) -> tuple[AbortedRange, ...]:
    """Return the aborted transactions of a Fetch answer as inclusive ranges.

    ``transactions``: (producer id, first offset), from the broker. ``markers``: (producer id, offset) of the abort
    markers among the batches, ascending. ``last``: the last offset of the last batch.
    """
    ends: dict[int, list[Offset]] = {}
    for producer_id, offset in markers:
        ends.setdefault(producer_id, []).append(offset)
    ranges = []
    for producer_id, first in transactions:
        if first > last:
            continue
        candidates = ends.get(producer_id, [])
        at = bisect_left(candidates, first)
        ranges.append(AbortedRange(producer_id, first, candidates[at] if at < len(candidates) else last))
    return tuple(sorted(ranges, key=lambda each: (each.first, each.producer_id)))


def abort_markers(data: bytes, headers: Iterable[BatchHeader], source: str) -> list[tuple[int, Offset]]:
    """Return (producer id, offset) of every abort marker. Raises CorruptData for an unreadable control batch."""
    return [
        (header.producer_id, Offset(header.base_offset))
        for header in headers
        if header.is_control and marker_type(header, data, source=source) == ABORT
    ]

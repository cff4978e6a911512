"""Reads the local tier: raw batches as the broker stores them, with everything a decoder and a router need."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

from ..state.epochs import LeaderEpoch
from ..state.errors import OffsetOutOfRange
from ..state.ids import BrokerId
from ..state.lineage import EpochEnd
from ..state.offsets import Offset, TimestampMs
from ..state.routing import LocalBounds
from .bounds import bounds_of_leader, offset_at, read_bounds, read_end_of_epoch
from .error_codes import OFFSET_OUT_OF_RANGE, error_of
from .fetch_spec import FetchSpec
from .leadership import Leadership
from .raw import RawClient

TIMEOUT_S = 20.0
"""A fail-over after kill -9 takes 7 to 11 s with ``broker.session.timeout.ms=6000`` (measured)."""
BATCH_PREFIX = struct.Struct(">qi")
"""The start of every record batch since Kafka 0.11: its base offset, and the number of bytes after these two fields."""


@dataclass(frozen=True, slots=True)
class LocalFetch:
    """``batches``: complete record batches; the first one holds the requested offset or begins after it.

    ``aborted``: (producer id, first offset) of each aborted transaction in the batches, under read_committed only.
    ``bounds``: the bounds in the same answer.
    """

    batches: bytes
    bounds: LocalBounds
    aborted: tuple[tuple[int, Offset], ...]


class LocalReader:
    """Fetches from the partition's leader. Thread-safe; blocking."""

    def __init__(self, raw: RawClient, leadership: Leadership, timeout_s: float = TIMEOUT_S) -> None:
        """``timeout_s``: seconds for which a call follows a moving leader."""
        self._raw = raw
        self._leadership = leadership
        self._timeout_s = timeout_s

    def fetch(self, spec: FetchSpec) -> LocalFetch:
        """Return the batches from ``offset`` on: about ``max_bytes``, but at least one if there is one.

        Raises Fenced if the partition has a newer leader epoch than ``leader_epoch``, UnknownTopic if the topic's id is
        not ``topic_id``, and OffsetOutOfRange with the valid range. Also raises AccessDenied, and after ``timeout_s``
        BrokerUnavailable and TimedOut.
        """
        return self._leadership.on_leader(
            spec.topic, spec.partition, lambda broker: self._fetch(broker, spec), self._timeout_s
        )

    def bounds(self, topic: str, partition: int, epoch: LeaderEpoch | None = None) -> LocalBounds:
        """Return where the local tier begins and ends on the leader."""
        return bounds_of_leader(self._raw, self._leadership, topic, partition, epoch, timeout_s=self._timeout_s)

    def bounds_of_both(self, topic: str, partition: int) -> LocalBounds:
        """Return the `bounds` of a topic that Kafka itself tiers, with the start of both tiers (Kafka 3.6 or later)."""
        return bounds_of_leader(
            self._raw, self._leadership, topic, partition, timeout_s=self._timeout_s, both_tiers=True
        )

    def offset_at(self, topic: str, partition: int, at: TimestampMs) -> tuple[Offset, TimestampMs] | None:
        """Return the result of `bounds.offset_at` on the leader."""
        return self._leadership.on_leader(
            topic, partition, lambda broker: offset_at(self._raw, broker, topic, partition, at), self._timeout_s
        )

    def end_of_epoch(
        self, topic: str, partition: int, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        """Return the end of the newest epoch up to ``epoch`` in the leader's log. Returns None if the log has none.

        Raises Fenced if a newer leader epoch than ``leader_epoch`` exists; else as `bounds`.
        """

        def ask(broker: BrokerId) -> EpochEnd | None:
            return read_end_of_epoch(self._raw, broker, topic, partition, epoch, leader_epoch)

        return self._leadership.on_leader(topic, partition, ask, self._timeout_s)

    def _fetch(self, broker: BrokerId, spec: FetchSpec) -> LocalFetch:
        answer = self._raw.fetch(broker, spec)
        facts: dict[str, Any] = {
            "topic": spec.topic,
            "partition": spec.partition,
            "offset": spec.offset,
            "broker": broker,
        }
        if answer.code == OFFSET_OUT_OF_RANGE:
            bounds = read_bounds(self._raw, broker, spec.topic, spec.partition, spec.leader_epoch)
            if bounds.local_start <= spec.offset <= bounds.end(spec.isolation):  # the bounds moved in between
                answer = self._raw.fetch(broker, replace(spec, wait_ms=0))
            if answer.code == OFFSET_OUT_OF_RANGE:
                valid = {"valid_start": bounds.local_start, "valid_end": bounds.end(spec.isolation)}
                raise OffsetOutOfRange("the broker does not have this offset", **valid, **facts)
        error = error_of(answer.code, **facts)
        if error is not None:
            raise error
        ends = LocalBounds(answer.log_start, answer.high_watermark, answer.last_stable_offset, spec.leader_epoch)
        return LocalFetch(whole_batches(answer.batches), ends, answer.aborted)


def whole_batches(data: bytes) -> bytes:
    """Return the complete batches: without the last one, if the broker cut it off at ``max_bytes``."""
    end = 0
    while end + BATCH_PREFIX.size <= len(data):
        following = end + BATCH_PREFIX.size + BATCH_PREFIX.unpack_from(data, end)[1]
        if not end < following <= len(data):
            break
        end = following
    return data if end == len(data) else data[:end]

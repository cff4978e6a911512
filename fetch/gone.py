"""Logs without a broker: topics that the cluster has deleted, and all topics if no cluster is used.

A deleted topic is named by its topic id: another topic may have its name now, but an id is never reused. Its part in
the remote tier is its complete log. The id of an existing topic is refused: its log continues at the broker, so a read
of the remote tier would end too early. Rules marked * prevent a loss that a model or a review found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..broker.answers import FetchSpec
from ..broker.control import TopicDirectory
from ..state.epochs import LeaderEpoch
from ..state.errors import (
    InvalidRequest,
    LineageUnconfirmed,
    ObjectNotFound,
    SegmentExpired,
    TierStateLost,
    UnknownTopic,
)
from ..state.ids import TopicId, TopicIdPartition
from ..state.lineage import EpochEnd
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView, require_readable
from ..state.routing import Isolation, LocalBounds
from ..state.segment import RemoteSegment
from ..state.view import TierView
from ..storage.segment.reader import SegmentReader
from .local import LocalPiece
from .piece import no_rule
from .prefetch import Following
from .remote import RemotePiece, RemoteTier, nothing


class NoBroker:
    """The `LocalTier` of partitions without a broker: an empty log that begins at the end of the remote tier."""

    def __init__(self, view: TierView) -> None:
        self._view = view

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        """Return empty bounds, in the leader epoch of the view's term: no leader exists that could contradict it.

        Raises TierStateLost or LineageUnconfirmed if copied records would look like an empty log*.
        """
        view = self._view.partition(partition)
        owned = view.coverage.owned
        if not owned and (view.segments or view.later):
            _refuse_emptiness(view)
        end = Offset(owned[-1].offsets.end + 1 if owned else view.log_start or 0)
        return LocalBounds(end, end, end, view.leader.epoch if view.leader else None)

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        assert spec.topic_id is not None  # readers of both tiers fence by it
        partition = TopicIdPartition(spec.topic_id, spec.partition)
        return LocalPiece(b"", (), spec.offset, self.bounds(spec.topic, partition))

    def offset_at(
        self, topic: str, partition: TopicIdPartition, timestamp: TimestampMs
    ) -> tuple[Offset, TimestampMs] | None:
        return None

    def end_of_epoch(
        self, topic: str, partition: TopicIdPartition, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        return None


def _refuse_emptiness(view: PartitionView) -> None:
    require_readable(view, None)
    facts = {"topic": view.topic, "partition": view.partition.partition, "segments": len(view.segments)}
    if not view.log_starts:
        raise TierStateLost(f"segments are known, but no log start; {TierStateLost.WAY_OUT}", **facts)
    if view.lineage_unknown:
        raise LineageUnconfirmed("segments are known, but no lineage that could place them", **facts)


class PastRemote(RemoteTier):
    """The remote tier of a view that is no longer updated: a missing object may have expired since."""

    def open(self, segment: RemoteSegment) -> SegmentReader:
        """Open like `RemoteTier.open`, and raise SegmentExpired for a missing object."""
        with _expired_if_missing(segment):
            return super().open(segment)

    def read(
        self,
        segment: RemoteSegment,
        offsets: OffsetRange,
        max_bytes: int,
        isolation: Isolation,
        following: Following = nothing,
    ) -> RemotePiece:
        """Read like `RemoteTier.read`, and raise SegmentExpired for a missing object."""
        with _expired_if_missing(segment):
            return super().read(segment, offsets, max_bytes, isolation, following)


@contextmanager
def _expired_if_missing(segment: RemoteSegment) -> Iterator[None]:
    try:
        yield
    except ObjectNotFound as error:
        facts: dict[str, Any] = {"topic": segment.topic, "partition": segment.partition, "offsets": segment.offsets}
        facts["segment_id"] = segment.segment_id
        raise no_rule(error, **facts) or SegmentExpired(
            "an object of this segment is not in the bucket any more: it expired after the view's newest fact, or is "
            "lost",
            object_key=error.facts.get("key", segment.object_key),
            **facts,
        ) from error


def gone_id(control: TopicDirectory, topic: str) -> TopicId | None:
    """Return ``topic`` as the topic id of a deleted topic, or None if the text is no topic id.

    Raises UnknownTopic for the id of an existing topic, and AccessDenied if these credentials may not see this topic.
    (A broker does not hide a topic from a request by id.)
    """
    try:
        uuid = TopicId(topic)
    except InvalidRequest:
        return None
    if control.topic_exists(uuid, broker=control.cluster().brokers[0]):
        name = next((each.name for each in control.topics() if each.topic_id == uuid), None)
        raise UnknownTopic("this is the id of a topic that is there: name it by its name", topic=name, topic_id=uuid)
    return uuid

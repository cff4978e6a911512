"""Logs without a broker: of topics that the cluster has no more, and of every topic where no cluster is asked at all.

A topic that is gone is named by its topic id: what the remote tier keeps of it is the whole log.

A name may belong to another topic by now, an id never does. An id whose topic still has a name is refused: its log goes
on at the broker, and reading it without that would end it too early.
"""

from __future__ import annotations

from ..broker.control import TopicDirectory
from ..broker.fetch_spec import FetchSpec
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
from ..state.later_release import require_readable
from ..state.lineage import EpochEnd
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, LocalBounds
from ..state.segment import RemoteSegment
from ..state.view import TierView
from ..storage.segment.reader import SegmentReader
from .local import LocalPiece
from .prefetch import Following
from .remote import RemotePiece, RemoteTier, nothing


class NoBroker:
    """The `LocalTier` of partitions that no broker has: empty, from the end of the remote tier on."""

    def __init__(self, view: TierView) -> None:
        self._view = view

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        """In the leader epoch of the view's own term: nobody leads who could say otherwise.

        Raises TierStateLost, LineageUnconfirmed where what was copied would look like an empty log*.
        """
        view = self._view.partition(partition)
        owned = view.coverage.owned
        if not owned and (view.segments or view.later):
            _refuse_emptiness(view)
        end = Offset(owned[-1].offsets.end + 1 if owned else view.log_start or 0)
        return LocalBounds(end, end, end, view.leader.epoch if view.leader else None)

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        assert spec.topic_id is not None  # whoever reads both tiers fences by it
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
    """The remote tier by a view that goes no further: what is not there any more may have expired since."""

    def open(self, segment: RemoteSegment) -> SegmentReader:
        """Raises SegmentExpired, and what `RemoteTier.open` raises."""
        try:
            return super().open(segment)
        except ObjectNotFound as error:
            raise _not_there(segment, error) from error

    def read(
        self,
        segment: RemoteSegment,
        offsets: OffsetRange,
        max_bytes: int,
        isolation: Isolation,
        following: Following = nothing,
    ) -> RemotePiece:
        """Raises SegmentExpired, and what `RemoteTier.read` raises."""
        try:
            return super().read(segment, offsets, max_bytes, isolation, following)
        except ObjectNotFound as error:
            raise _not_there(segment, error) from error


def _not_there(segment: RemoteSegment, error: ObjectNotFound) -> SegmentExpired:
    return SegmentExpired(
        "an object of this segment is not in the bucket any more: it expired after the view's newest fact, or is lost",
        object_key=error.facts.get("key", segment.object_key),
        topic=segment.topic,
        partition=segment.partition,
        segment_id=segment.segment_id,
        offsets=segment.offsets,
    )


def gone_id(control: TopicDirectory, topic: str) -> TopicId | None:
    """The topic id that this text is, of a topic that is gone; None: it is no topic id.

    Raises UnknownTopic for the id of a topic that is there, AccessDenied where these credentials may not see it: asked
    by id, a broker hides none.
    """
    try:
        found = TopicId(topic)
    except InvalidRequest:
        return None
    if control.topic_exists(found, broker=control.cluster().brokers[0]):
        name = next((each.name for each in control.topics() if each.topic_id == found), None)
        raise UnknownTopic("this is the id of a topic that is there: name it by its name", topic=name, topic_id=found)
    return found


def place_of(control: TopicDirectory, topic: str, partition: int) -> TopicIdPartition:
    """A partition of a topic by its name or, once it is gone, by its topic id. Raises UnknownTopic."""
    try:
        described = control.topic(topic)
    except UnknownTopic:
        found = gone_id(control, topic)
        if found is None:
            raise
        return TopicIdPartition(found, partition)
    if not 0 <= partition < len(described.partitions):
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(described.partitions))
    return TopicIdPartition(described.topic_id, partition)

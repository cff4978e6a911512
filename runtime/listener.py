"""Observability is handed out as values: acts announce what happened, listeners count, log or test it.

A listener is any callable that takes one event. `metrics.py` counts them, `logs.py` prints them, tests collect them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from .login_watch import LoginAccepted as LoginAccepted
from .login_watch import LoginRefused as LoginRefused


@dataclass(frozen=True, slots=True)
class SegmentCopied:
    """A segment became readable remotely. ``seconds`` from `copy-started` to `copy-finished` applied."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    log_bytes: int
    object_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """A copy attempt ended without a segment."""

    partition: TopicIdPartition
    topic: str
    offsets: OffsetRange
    error: str
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class TransactionIndexRebuilt:
    """``file``, a transaction index of the broker's, contradicts its log's markers: the copy's was made from them.

    The broker still reads its own: it shows aborted records, or hides committed ones.
    """

    partition: TopicIdPartition
    topic: str
    offsets: OffsetRange
    file: str
    difference: str


@dataclass(frozen=True, slots=True)
class LocalTrimmed:
    """The broker's log start moved to ``offset``."""

    partition: TopicIdPartition
    topic: str
    offset: Offset


@dataclass(frozen=True, slots=True)
class TrimRefused:
    """The local tier was not trimmed, and why."""

    partition: TopicIdPartition
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """The log begins at ``log_start_offset`` from now on; ``reason`` as in the fact."""

    partition: TopicIdPartition
    topic: str
    log_start_offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentDeleteBegan:
    """A segment is condemned: no longer readable, its objects go after the grace."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentDeleted:
    """The objects of a segment are gone. ``object_bytes`` as its descriptor says; 0 for one that was never finished."""

    partition: TopicIdPartition
    topic: str
    segment_id: RemoteSegmentId
    offsets: OffsetRange
    object_bytes: int


@dataclass(frozen=True, slots=True)
class OrphansFound:
    """A look at all objects of a partition is done: ``objects`` and ``bytes`` that no fact names, which stay, and the
    number of those that an accepted delete condemned. ``missing``: objects of readable segments that are not there.
    """

    partition: TopicIdPartition
    topic: str
    objects: int
    bytes: int
    condemned: int
    missing: int = 0


@dataclass(frozen=True, slots=True)
class FactsErased:
    """Tombstones were written for facts that can never matter again; ``why`` in a few words."""

    partition: TopicIdPartition
    topic: str
    facts: int
    why: str


@dataclass(frozen=True, slots=True)
class ActFailed:
    """An act other than a copy or a trim ended early (``act``: expire, sweep, erase)."""

    partition: TopicIdPartition
    topic: str
    act: str
    error: str


@dataclass(frozen=True, slots=True)
class ClocksDiffer:
    """The clocks of this machine, of brokers or of the store differ by more than a few seconds; said once each time."""

    said: str


@dataclass(frozen=True, slots=True)
class CustodyStepTaken:
    """The custodian did something about a partition whose topic is gone, or was thought to be."""

    partition: TopicIdPartition
    topic: str
    step: str


@dataclass(frozen=True, slots=True)
class HoldReported:
    """An agent saw two facts contradict each other: nothing of the partition is deleted until a person releases it."""

    partition: TopicIdPartition
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChoreFailed:
    """Something for a tier-state partition was not done and comes again (``chore``: archive, checkpoint, custody).

    ``tier_partition`` -1: for none in particular. ``again``: for the same reason as the time before.
    """

    chore: str
    tier_partition: int
    error: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class TermStarted:
    """A term began and its `LeaderElected` is in the view."""

    partition: TopicIdPartition
    topic: str
    term: str


@dataclass(frozen=True, slots=True)
class TermEnded:
    """A term stopped, and why (fenced, unknown append outcome, broker no longer leads)."""

    partition: TopicIdPartition
    topic: str
    term: str
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionRefused:
    """A partition is not tiered, and why."""

    partition: TopicIdPartition
    topic: str
    reason: str


@dataclass(frozen=True, slots=True)
class ViewRebuilt:
    """A follower threw its view away and replays the topic, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointUsed:
    """An empty view began with the ``facts`` of checkpoints, not with the topic's beginning.

    ``positions``: of the checkpoint of each tier-state partition, by number; -1: there is none.
    """

    positions: tuple[int, ...]
    facts: int


@dataclass(frozen=True, slots=True)
class FactsApplied:
    """A follower applied facts of one tier-state partition, about these partitions. ``said_by_people``: among them, or
    among those that it left out, are orders, holds, or what people settled, or such a fact was erased.
    """

    tier_partition: int
    facts: int
    position: int
    partitions: frozenset[TopicIdPartition] = frozenset()
    said_by_people: bool = False


@dataclass(frozen=True, slots=True)
class SecondValueSeen:
    """A follower met another value under a key that its writer writes once: an integrity alarm."""

    tier_partition: int
    key: str
    first_position: int
    second_position: int


@dataclass(frozen=True, slots=True)
class StoreThrottled:
    """The object store asks to slow down: a request of ``object_key`` is sent again after ``seconds``."""

    store: str
    object_key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WriteRepeated:
    """A write failed, and the same ``bytes`` are about to be sent to the object store again."""

    store: str
    object_key: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ConditionalPutIgnored:
    """The object store overwrites where it was asked not to. Keys are never reused, so nothing is lost by it alone."""

    store: str


@dataclass(frozen=True, slots=True)
class KeyRingRead:
    """The key ring's file changed and was read again: new segments are encrypted under ``active``."""

    file: str
    active: str
    active_before: str


@dataclass(frozen=True, slots=True)
class KeyRingRefused:
    """The key ring's file changed and cannot be used: the ring that was read before goes on, with ``active``."""

    file: str
    active: str
    error: str


@dataclass(frozen=True, slots=True)
class LogFolderLost:
    """The agent goes on without one of the broker's log folders."""

    folder: str
    reason: str


@dataclass(frozen=True, slots=True)
class LogFolderBack:
    """A log folder that was lost is the broker's again."""

    folder: str


@dataclass(frozen=True, slots=True)
class RemoteFetched:
    """One request that read the object store for readers: a manifest, an index, a run of chunks."""

    object_key: str
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GatewayAnswered:
    """One call of a gateway is over. ``bytes`` of its body were sent; ``seconds`` since its head was there.

    ``user``: as it was proven. ``topic_read``, ``tier``: of what was read, empty where nothing of a topic was.
    """

    status: int
    bytes: int
    seconds: float
    user: str = ""
    topic_read: str = ""
    tier: str = ""


@dataclass(frozen=True, slots=True)
class ChunkCacheOff:
    """The disk cache of chunks is not used, or not any more; reads go on without it."""

    folder: str
    reason: str


Event = (
    SegmentCopied
    | CopyFailed
    | TransactionIndexRebuilt
    | LocalTrimmed
    | TrimRefused
    | LogStartMoved
    | SegmentDeleteBegan
    | SegmentDeleted
    | OrphansFound
    | FactsErased
    | ActFailed
    | ChoreFailed
    | CustodyStepTaken
    | HoldReported
    | TermStarted
    | TermEnded
    | PartitionRefused
    | ViewRebuilt
    | CheckpointUsed
    | ClocksDiffer
    | FactsApplied
    | SecondValueSeen
    | StoreThrottled
    | WriteRepeated
    | ConditionalPutIgnored
    | KeyRingRead
    | KeyRingRefused
    | LogFolderLost
    | LogFolderBack
    | LoginAccepted
    | LoginRefused
    | GatewayAnswered
    | RemoteFetched
    | ChunkCacheOff
)

Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that nobody listens to."""


def fan_out(*listeners: Listener) -> Listener:
    """One listener that tells several."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell

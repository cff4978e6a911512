"""Events: values by which operations report what happened.

A listener is any callable that takes one event. `metrics.py` counts events, `logs.py` logs them, tests collect them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import dataclass_transform

from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Event:
    """An event. It is logged as information unless it is a `Warned` or a `Detail`. Each kind is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Warned(Event):
    """An event that is logged as a warning."""


class Detail(Event):
    """A frequent event, which is logged for debugging only."""


class OfPartition(Event):
    """An event of one partition, whose topic is named ``topic``."""

    partition: TopicIdPartition
    topic: str


class SegmentCopied(OfPartition):
    """A segment became readable remotely. ``seconds``: from `copy-started` until `copy-finished` was applied."""

    segment_id: RemoteSegmentId
    offsets: OffsetRange
    log_bytes: int
    object_bytes: int
    seconds: float


class CopyFailed(OfPartition, Warned):
    """A copy attempt ended without a segment."""

    offsets: OffsetRange
    error: str
    consecutive_failures: int


class TransactionIndexRebuilt(OfPartition, Warned):
    """The broker's transaction index ``file`` contradicts the markers in its log; the copy's index is built from these.

    The broker still uses ``file``: it returns aborted records or hides committed ones.
    """

    offsets: OffsetRange
    file: str
    difference: str


class LocalTrimmed(OfPartition):
    """The broker's log start moved to ``offset``."""

    offset: Offset


class TrimFailed(OfPartition, Warned):
    """A trim ended early: the broker keeps the data, and the trim is tried again."""

    error: str
    consecutive_failures: int


class TrimRefused(OfPartition, Detail):
    """The local tier was not trimmed; ``reason`` is why."""

    reason: str


class LogStartMoved(OfPartition):
    """The log begins at ``log_start_offset`` from now on; ``reason`` is the fact's reason."""

    log_start_offset: Offset
    reason: str


class GapFound(OfPartition, Warned):
    """The broker no longer has ``offsets``, and no readable segment has them: readers fail there."""

    offsets: OffsetRange


class SegmentDeleteBegan(OfPartition):
    """A segment is marked for deletion: it is no longer readable, and its objects are deleted after the grace."""

    segment_id: RemoteSegmentId
    offsets: OffsetRange
    reason: str


class SegmentDeleted(OfPartition):
    """A segment's objects were deleted. ``object_bytes`` is from its descriptor; 0 if its copy was never finished."""

    segment_id: RemoteSegmentId
    offsets: OffsetRange
    object_bytes: int


class OrphansFound(OfPartition):
    """All objects of a partition were listed: ``objects`` and ``bytes`` count those that no fact names and that are
    kept, ``condemned`` those that an accepted delete marked. ``missing`` counts absent objects of readable segments.
    """

    objects: int
    bytes: int
    condemned: int
    missing: int = 0


class FactsErased(OfPartition):
    """Tombstones were written for facts that can never matter again; ``why`` is a short reason."""

    facts: int
    why: str


class OperationFailed(OfPartition, Warned):
    """An operation other than a copy or a trim ended early (``operation``: expire, sweep, erase)."""

    operation: str
    error: str


class ClocksDiffer(Warned):
    """The clocks of this machine, the brokers or the store began to differ by more than a few seconds."""

    said: str


class HeartbeatsAwaited(Event):
    """This process waits ``seconds`` before it goes on, to learn whether ``agents`` still run."""

    agents: str
    seconds: float


class CustodyStepTaken(OfPartition, Warned):
    """The custodian took a step for a partition whose topic was deleted or seemed to be deleted."""

    step: str


class HoldReported(OfPartition, Warned):
    """An agent saw two facts contradict each other. Nothing of the partition is deleted until a person decides."""

    reason: str


class ChoreFailed(Warned):
    """A chore of a tier-state partition failed and is repeated later (``chore``: archive, checkpoint, custody).

    ``tier_partition`` -1: the chore is for no partition in particular. ``again``: the last failure had the same reason.
    """

    chore: str
    tier_partition: int
    error: str
    again: bool = False


class TermStarted(OfPartition):
    """A term began and its `LeaderElected` is in the view."""

    term: str


class TermEnded(OfPartition, Warned):
    """A term ended; ``reason`` is why (fenced, unknown append outcome, broker no longer leads)."""

    term: str
    reason: str


class PartitionRefused(OfPartition, Warned):
    """A partition is not tiered; ``reason`` is why."""

    reason: str


class ViewRebuilt(Warned):
    """A follower deleted its view and replays the topic; ``reason`` is why."""

    reason: str


class ViewStopped(Warned):
    """A follower cannot apply records now, and retries; ``reason`` is why: a full disk, a missing right."""

    reason: str


class CheckpointUsed(Event):
    """An empty view was filled with the ``facts`` of checkpoints instead of the first part of the topic.

    ``positions``: the position of each tier-state partition's checkpoint, by number; -1 if it has none.
    """

    positions: tuple[int, ...]
    facts: int


class FactsApplied(Detail):
    """A follower applied facts of one tier-state partition, about ``partitions``. ``said_by_people``: the batch has
    orders, holds or decisions of people, or tombstones for them, also if the follower does not keep such facts.
    """

    tier_partition: int
    facts: int
    position: int
    partitions: frozenset[TopicIdPartition] = frozenset()
    said_by_people: bool = False


class SecondValueSeen(Warned):
    """A follower read a second value under a key that is written only once: an integrity alarm."""

    tier_partition: int
    key: str
    first_position: int
    second_position: int


class StoreThrottled(Warned):
    """The object store asks to slow down: the request for ``object_key`` is sent again after ``seconds``."""

    store: str
    object_key: str
    seconds: float


class RequestRepeated(Detail):
    """The object store failed or did not answer: the request for ``object_key`` is sent again after ``seconds``."""

    store: str
    object_key: str
    seconds: float
    error: str


class WriteRepeated(Event):
    """A write failed, and the same ``bytes`` are about to be sent to the object store again."""

    store: str
    object_key: str
    bytes: int


class ConditionalPutIgnored(Warned):
    """The object store overwrote an object despite If-None-Match. This alone loses nothing: keys are never reused."""

    store: str


class KeyRingRead(Event):
    """The key ring's file changed and was read again: new segments are encrypted under ``active``."""

    file: str
    active: str
    active_before: str


class KeyRingRefused(Warned):
    """The key ring's file changed and cannot be used: the previous ring, with ``active``, stays in use."""

    file: str
    active: str
    error: str


class LogFolderLost(Warned):
    """The agent continues without one of the broker's log folders."""

    folder: str
    reason: str


class LogFolderBack(Event):
    """A log folder that was lost belongs to the broker again."""

    folder: str


class RemoteFetched(Detail):
    """One request that read the object store for readers: a manifest, an index, a run of chunks."""

    object_key: str
    bytes: int
    seconds: float


class GatewayAnswered(Detail):
    """A gateway finished one call. ``bytes`` of the body were sent; ``seconds`` count from the end of the call's head.

    ``user``: the authenticated user. ``topic_read``, ``tier``: what was read, empty if no topic was read.
    """

    status: int
    bytes: int
    seconds: float
    user: str = ""
    topic_read: str = ""
    tier: str = ""


class ChunkCacheOff(Warned):
    """The disk cache of chunks is off, from the start or from now on; reads continue without it."""

    folder: str
    reason: str


class LoginRefused(Warned):
    """``server`` of ``service`` (``kafka``, ``store``) refused ``user``. ``again``: its last refusal was the same."""

    service: str
    server: str
    user: str
    mechanism: str
    reason: str
    again: bool = False

    def __str__(self) -> str:
        return (
            f"the login at {self.service} fails. server={self.server} user={self.user} mechanism={self.mechanism} "
            f"reason={self.reason}"
        )


class LoginAccepted(Event):
    """A login that was refused is accepted again."""

    service: str
    server: str
    user: str


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore the event: the default where no listener is given."""


def fan_out(*listeners: Listener) -> Listener:
    """Return one listener that passes each event to all ``listeners``."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell

"""How a read is routed: local tier, remote tier, or an error that says what is wrong.

    offset < log start                    OffsetOutOfRange (valid range)
    local start <= offset < end           local, also when both tiers have it
    log start <= offset < local start     the owner in the logical lineage → remote; no owner → LogGap
    offset == end                         nothing yet: empty, or a long poll
    offset > end                          OffsetOutOfRange

PREFER_REMOTE reads remote above the local start too, but only while the broker answers with the leader epoch of the
term in force: with any other the view may describe another branch of the log.

``end`` is the high watermark, or the last stable offset under read_committed. Local first is also what keeps stale
lineage from being served after an unclean election.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .epochs import LeaderEpoch
from .errors import LogGap, OffsetOutOfRange
from .offsets import Offset, OffsetRange
from .partition_view import PartitionView
from .segment import RemoteSegment


class Isolation(StrEnum):
    """Kafka's isolation levels."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Tier(StrEnum):
    """Which tier may serve a read. ``AUTO`` is local first, ``PREFER_REMOTE`` remote wherever a segment has it.

    ``LOCAL`` and ``REMOTE`` never leave their tier.
    """

    AUTO = "auto"
    LOCAL = "local"
    REMOTE = "remote"
    PREFER_REMOTE = "prefer-remote"


@dataclass(frozen=True, slots=True)
class LocalBounds:
    """What the broker says of its log. ``local_start`` is inclusive, the other two exclusive."""

    local_start: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    leader_epoch: LeaderEpoch | None

    def end(self, isolation: Isolation) -> Offset:
        """The first offset a reader may not see yet."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark


@dataclass(frozen=True, slots=True)
class ReadLocal:
    """Ask the broker, from ``offset``."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ReadRemote:
    """Read ``segment`` from the object store; it serves ``offsets`` (the first of them is the one asked for)."""

    segment: RemoteSegment
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Nothing there yet."""

    offset: Offset


Route = ReadLocal | ReadRemote | AtEnd


def log_start(view: PartitionView, bounds: LocalBounds) -> Offset:
    """The first offset of the logical log: what the facts say, or the broker's where no fact speaks.

    A log that ends below the log start is another one than the view knows: its term has not begun yet.
    """
    known = view.log_start is not None and view.log_start <= bounds.high_watermark
    return view.log_start if known and view.log_start is not None else bounds.local_start


def route(
    view: PartitionView,
    bounds: LocalBounds,
    offset: int,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    tier: Tier = Tier.AUTO,
) -> Route:
    """Where to read ``offset``.

    Raises OffsetOutOfRange (seek) outside [log start, end], and LogGap for offsets that no tier has. With one tier
    asked for, what only the other tier has is OffsetOutOfRange too, with that tier's valid range.
    """
    start, end = log_start(view, bounds), bounds.end(isolation)
    if offset < start or offset > end:
        raise OffsetOutOfRange("offset out of range", valid_start=start, valid_end=end, topic=view.topic, offset=offset)
    local = offset >= bounds.local_start
    if offset == end:
        return AtEnd(Offset(offset))
    remote_first = tier is Tier.PREFER_REMOTE and view.term is not None and bounds.leader_epoch == view.term.epoch
    if local and tier is not Tier.REMOTE and not remote_first:
        return ReadLocal(Offset(offset))
    if tier is Tier.LOCAL:
        raise OffsetOutOfRange(
            "offset is not on the broker", valid_start=bounds.local_start, valid_end=end, offset=offset
        )
    owner = view.coverage.at(offset)
    if owner is not None:
        last = Offset(min(owner.offsets.end, end - 1))
        return ReadRemote(owner.segment, OffsetRange(Offset(offset), last))
    if local and remote_first:
        return ReadLocal(Offset(offset))
    if local:
        covered = view.coverage.prefix_end(start) + 1
        raise OffsetOutOfRange(
            "offset is not in the remote tier yet", valid_start=start, valid_end=covered, offset=offset
        )
    following = view.coverage.next_start(offset)
    gap_end = min(bounds.local_start, end, following if following is not None else end) - 1
    raise LogGap("offsets belong to no tier", start=offset, end=gap_end, topic=view.topic, partition=view.partition)

"""How a read is routed: to the local tier, to the remote tier, or to an error that explains the problem.

    offset < log start                    OffsetOutOfRange (valid range)
    local start <= offset < end           local, also when both tiers have it
    log start <= offset < local start     the owner in the logical lineage → remote; no owner → LogGap,
                                          or the route of the offset after the gap that a person accepted
    offset == end                         no record yet: an empty response, or a long poll
    offset > end                          OffsetOutOfRange

``end`` is the high watermark, or the last stable offset under read_committed.

PREFER_REMOTE also reads remote above the local start, but only while the broker answers with the leader epoch of the
term in force: with any other epoch, the view may describe another branch of the log.

The view is valid while its newest term has the leader's epoch. Otherwise the agent of a newer leader may be down, and
an unclean election may have truncated what the view describes. Then the view is valid as far as the broker confirms it.
Above that offset, only the broker's own offsets are read; other reads raise LineageUnconfirmed (decision 0031).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .epochs import LeaderEpoch
from .errors import LineageUnconfirmed, LogGap, OffsetOutOfRange
from .offsets import Offset, OffsetRange
from .partition_view import PartitionView
from .segment import RemoteSegment


class Isolation(StrEnum):
    """The isolation levels of Kafka's consumers."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Tier(StrEnum):
    """The tier that may serve a read. ``AUTO`` is local first; ``PREFER_REMOTE`` is remote wherever a segment has it.

    ``LOCAL`` and ``REMOTE`` read from that tier only.
    """

    AUTO = "auto"
    LOCAL = "local"
    REMOTE = "remote"
    PREFER_REMOTE = "prefer-remote"


@dataclass(frozen=True, slots=True)
class LocalBounds:
    """The bounds of the broker's log, as the broker reported them. The starts are inclusive, the ends exclusive.

    ``log_start``: the start of both tiers, if Kafka itself tiers the topic (KIP-405); else None.
    """

    local_start: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    leader_epoch: LeaderEpoch | None
    log_start: Offset | None = None

    def end(self, isolation: Isolation) -> Offset:
        """Return the first offset that a reader may not see yet."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark


@dataclass(frozen=True, slots=True)
class ReadLocal:
    """The route to the broker, beginning at ``offset``."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ReadRemote:
    """The route to ``segment`` in the object store. It serves ``offsets``, which begin at the requested offset."""

    segment: RemoteSegment
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The route to nothing: ``offset`` is the end of the log, and has no record yet."""

    offset: Offset


Route = ReadLocal | ReadRemote | AtEnd


def begin_of(where: Route) -> Offset:
    """Return the first offset that the route reads. It is above the requested offset if an accepted gap is skipped."""
    return where.offsets.start if isinstance(where, ReadRemote) else where.offset


EVERYTHING = Offset(2**63 - 1)
"""A value above every offset."""


def log_start(view: PartitionView, bounds: LocalBounds) -> Offset:
    """Return the first offset of the logical log: the log start of the facts, or the broker's if no fact names one.

    A log that ends below the log start of the facts is not the log of the view. Then the broker's start is returned.
    """
    if bounds.log_start is not None:
        return bounds.log_start
    is_same_log = view.log_start is not None and view.log_start <= bounds.high_watermark
    return view.log_start if is_same_log and view.log_start is not None else bounds.local_start


def in_force(view: PartitionView, bounds: LocalBounds) -> bool:
    """Return whether the lineage of the view is the leader's: its term began in the leader's epoch or a later one.

    Otherwise it may be a branch that an unclean election truncated, and the leader's agent may be down.
    """
    leader, epoch = view.leader, bounds.leader_epoch
    return leader is not None and epoch is not None and leader.epoch >= epoch


def sure_end(view: PartitionView, bounds: LocalBounds, confirmed: Offset | None) -> Offset:
    """Return the offset (exclusive) up to which the view describes the leader's log.

    ``confirmed``: `confirmed_end` of the view's lineage from the leader of ``bounds``; None if it was not requested.
    """
    return EVERYTHING if in_force(view, bounds) else Offset(confirmed or 0)


def sure_log_start(view: PartitionView, bounds: LocalBounds, confirmed: Offset | None) -> Offset | None:
    """Return `log_start`; None if it may belong to a branch from which the leader's log diverged below it."""
    if view.log_start is None or view.log_start <= sure_end(view, bounds, confirmed):
        return log_start(view, bounds)
    return None


def unconfirmed(view: PartitionView, bounds: LocalBounds, confirmed: Offset | None, **facts: object) -> Exception:
    """Return the error for an offset at or above `sure_end`."""
    epoch = None if view.leader is None else view.leader.epoch
    return LineageUnconfirmed(
        f"the leader's epoch {bounds.leader_epoch} has no term yet, and the broker does not confirm that its log has "
        f"what was said in epoch {epoch}; the agent of the broker that leads may be down",
        topic=view.topic,
        partition=view.partition.partition,
        **facts,
        confirmed_below=confirmed,
    )


def route(
    view: PartitionView,
    bounds: LocalBounds,
    offset: int,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    tier: Tier = Tier.AUTO,
    confirmed: Offset | None = None,
) -> Route:
    """Return where to read ``offset``.

    Raises OffsetOutOfRange (seek) outside [log start, end], and LogGap for offsets that no tier has. If one tier is
    requested and only the other has the offset, raises OffsetOutOfRange with the valid range of the requested tier.
    Raises LineageUnconfirmed if the answer depends on the view at or above `sure_end`. If ``confirmed`` was None, the
    caller then queries the leader and tries again.
    """
    start, end = sure_log_start(view, bounds, confirmed), bounds.end(isolation)
    local = offset >= bounds.local_start
    if offset > end or offset < log_start(view, bounds):
        if start is not None:
            valid = {"valid_start": start, "valid_end": end}
            raise OffsetOutOfRange("offset out of range", **valid, topic=view.topic, offset=offset)
        if confirmed is None or offset > end or not local:
            raise unconfirmed(view, bounds, confirmed, offset=offset)
    if offset == end:
        return AtEnd(Offset(offset))
    remote_first = tier is Tier.PREFER_REMOTE and view.leader is not None and bounds.leader_epoch == view.leader.epoch
    if local and tier is not Tier.REMOTE and not remote_first:
        return ReadLocal(Offset(offset))
    if tier is Tier.LOCAL:
        raise OffsetOutOfRange(
            "offset is not on the broker", valid_start=bounds.local_start, valid_end=end, offset=offset
        )
    owner, sure = view.coverage.at(offset), sure_end(view, bounds, confirmed)
    if owner is not None and offset < sure:
        last = Offset(min(owner.offsets.end, end - 1, sure - 1))
        return ReadRemote(owner.segment, OffsetRange(Offset(offset), last))
    if local and remote_first:
        return ReadLocal(Offset(offset))
    error = _not_in_the_remote_tier(view, bounds, offset, end, confirmed)
    if not isinstance(error, LogGap):
        raise error
    accepted = view.accepted_to(offset)
    if accepted is None or view.later or view.lineage_unknown:
        raise error
    # never skip more than the actual gap: offsets that a tier has are read, even inside an accepted gap
    behind = min(accepted, error.end) + 1
    return route(view, bounds, behind, isolation=isolation, tier=tier, confirmed=confirmed)


def _not_in_the_remote_tier(
    view: PartitionView, bounds: LocalBounds, offset: int, end: Offset, confirmed: Offset | None
) -> Exception:
    start, sure = sure_log_start(view, bounds, confirmed), sure_end(view, bounds, confirmed)
    local = offset >= bounds.local_start
    covered_end = Offset(0 if start is None else view.coverage.prefix_end(start) + 1)
    is_unsure = covered_end > max(start or 0, sure) or view.coverage.at(offset) is not None
    if start is None or (is_unsure if local else offset >= sure):
        return unconfirmed(view, bounds, confirmed, offset=offset)
    if local:
        message = "offset is not in the remote tier yet"
        return OffsetOutOfRange(message, valid_start=start, valid_end=covered_end, offset=offset)
    following = view.coverage.next_start(offset)
    gap_end = min(bounds.local_start, end, sure, following if following is not None else end) - 1
    return LogGap("offsets belong to no tier", start=offset, end=gap_end, topic=view.topic, partition=view.partition)

"""delete-records: plan an order with its effect and its delays, write it, and follow what agents do for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from ...broker.control import BrokerControl
from ...broker.groups import GroupPosition, GroupProblem, TopicGroups
from ...follower.follower import Follower
from ...rules.decide import paused
from ...rules.leases import is_over
from ...rules.orders import holds_below, standing
from ...rules.reasons import Reason
from ...rules.trim import doubt_of_orders
from ...runtime.id_source import RandomIds
from ...state.epochs import Lineage
from ...state.errors import AccessDenied, NotTiered, OffsetOutOfRange, TimedOut, Unavailable
from ...state.facts import OperatorOrder, OrderKind, ReaderLease
from ...state.ids import RemoteSegmentId
from ...state.lineage import below, holds_up_to
from ...state.offsets import Offset, OffsetRange, TimestampMs
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds
from ...state.segment import RemoteSegment, SegmentState
from ..looking.partition_facts import ask_agent, describe_order, why_untiered
from ..opening.connection import Connection
from .orders import give, new_order

NOBODY = TopicGroups(())
WAIT_S = 60.0
"""Seconds to wait for the log start to move. Agents check a partition every few seconds."""
LINGER_S = 5.0
"""Seconds to wait after the log start moved, for the effects on the broker's log and on readable segments."""
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """The effect of an order. ``going``: readable segments that end below ``before``. ``across``: segments that contain
    ``before`` and are kept. ``condemned``: segments below ``before`` that are marked for deletion and still have
    objects. ``already``: an earlier order with the same effect. ``lineage``: the lineage that a new order names.
    """

    view: PartitionView
    bounds: LocalBounds
    before: Offset
    force: bool
    lineage: Lineage
    log_start: Offset
    going: tuple[RemoteSegment, ...]
    across: tuple[RemoteSegment, ...]
    condemned: tuple[RemoteSegmentId, ...]
    leases: tuple[ReaderLease, ...]
    already: OperatorOrder | None
    waits: tuple[str, ...]
    groups: TopicGroups

    @property
    def losing(self) -> tuple[GroupPosition, ...]:
        """Return the groups that have not read all records that the broker would delete. No order waits for groups."""
        if self.bounds.local_start >= self.before:
            return ()
        here = [each for each in self.groups.positions if each.partition == self.view.partition.partition]
        return tuple(each for each in here if each.committed is None or each.committed < self.before)

    @property
    def nothing(self) -> bool:
        """Return whether both tiers begin at ``before`` or later and no object is to be deleted despite a lease."""
        begun = self.log_start >= self.before and self.bounds.local_start >= self.before
        return begun and not (self.force and (self.going or self.condemned))

    @property
    def offset_count(self) -> int:
        """Return the number of offsets that readers lose. There are at most as many records."""
        return max(0, self.before - self.log_start)

    @property
    def local_offsets(self) -> int:
        """Return the number of offsets below ``before`` that the broker has. There are at most as many records."""
        return max(0, self.before - self.bounds.local_start)

    @property
    def never_copied(self) -> int:
        """Return the number of offsets below ``before`` that no remote segment has."""
        first = max(self.log_start, self.bounds.local_start)
        if first >= self.before:
            return 0
        gaps = self.view.coverage.gaps(OffsetRange(first, Offset(self.before - 1)))
        return sum(gap.end - gap.start + 1 for gap in gaps)

    @property
    def local_copied_bytes(self) -> int:
        """Return the log bytes of the segments in ``going`` that the broker still has completely."""
        return sum(each.log_bytes for each in self.going if each.offsets.start >= self.bounds.local_start)

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.view.partition.partition,
            "topic_id": self.view.partition.topic_id,
            "before": self.before,
            "force": self.force,
            "log_start_offset": self.log_start,
            "offset_count": self.offset_count,
            "local_log_start_offset": self.bounds.local_start,
            "last_stable_offset": self.bounds.last_stable_offset,
            "remote": {
                "segments": [
                    {
                        "segment_id": each.segment_id,
                        "offsets": asdict(each.offsets),
                        "record_count": each.record_count,
                        "object_bytes": each.object_bytes,
                    }
                    for each in self.going
                ],
                "records": sum(each.record_count for each in self.going),
                "bytes": sum(each.object_bytes for each in self.going),
                "stay_whole": [asdict(each.offsets) for each in self.across],
                "condemned_already": len(self.condemned),
            },
            "local": {
                "offset_count": self.local_offsets,
                "never_copied": self.never_copied,
                "copied_bytes": self.local_copied_bytes,
            },
            "leases": [
                {"id": each.id, "holder": each.holder, "offsets": asdict(each.offsets), "expires_at": each.expires_at}
                for each in self.leases
            ],
            "groups": [{"group_id": each.group, "committed_offset": each.committed} for each in self.losing],
            "groups_unknown": self.groups.why_incomplete(),
            "waits_for": list(self.waits),
            "stands_already": self.already is not None,
        }


def plan_delete(
    view: PartitionView,
    bounds: LocalBounds,
    before: Offset,
    force: bool,
    now: TimestampMs,
    groups: TopicGroups = NOBODY,
) -> DeletePlan:
    """Return the plan. Raises NotTiered if no agent has begun the partition. Raises OffsetOutOfRange if ``before`` is
    above the last stable offset.

    Raises Unavailable if the broker leads in a later epoch than the term in force: the view may describe the records of
    another log, so a plan could delete the wrong ones. An agent begins a term within seconds.
    """
    if view.log_start is None:
        raise NotTiered(
            "no agent has begun this partition: nobody would obey", topic=view.topic, partition=view.partition
        )
    if view.term is not None and bounds.leader_epoch is not None and bounds.leader_epoch > view.term.epoch:
        raise Unavailable(
            "no term of this leader epoch has begun yet: an agent beside the leader does so in seconds, try again then",
            topic=view.topic,
            partition=view.partition,
            term=view.term,
            leader_epoch=bounds.leader_epoch,
        )
    start, end = view.log_start, bounds.last_stable_offset
    if before > end:
        raise OffsetOutOfRange(
            "records above the last stable offset cannot be deleted yet",
            valid_start=start,
            valid_end=end,
            topic=view.topic,
            partition=view.partition,
            before=before,
        )
    lineage = below(view.lineage, before)
    going = tuple(each for each in view.readable if holds_up_to(before, lineage, each.leader_epochs) > each.offsets.end)
    condemned = {
        each.segment_id: each.subject.offsets
        for each in view.unsettled
        if each.state is SegmentState.DELETE_SEGMENT_STARTED and each.subject and each.subject.offsets.end < before
    }
    ranges = [*(each.offsets for each in going), *condemned.values()]
    leases = tuple(
        lease
        for lease in view.leases
        if not is_over(lease, now) and any(lease.offsets.overlap(offsets) is not None for offsets in ranges)
    )
    return DeletePlan(
        view=view,
        bounds=bounds,
        before=before,
        force=force,
        lineage=lineage,
        log_start=start,
        going=going,
        across=tuple(each for each in view.readable if each.offsets.start < before <= each.offsets.end),
        condemned=tuple(condemned),
        leases=leases,
        already=_says_it_all(view, before, force),
        waits=_waits(view),
        groups=groups,
    )


def _says_it_all(view: PartitionView, before: Offset, force: bool) -> OperatorOrder | None:
    return next(
        (
            order
            for order in view.orders
            if order.kind is OrderKind.DELETE_RECORDS
            and holds_below(order, view) >= before
            and (order.force or not force)
        ),
        None,
    )


def _waits(view: PartitionView) -> tuple[str, ...]:
    """Return sentences on what a person must do before agents obey."""
    now = standing(view)
    waits = (
        f"{describe_order(now)}: `tierstate resume` ends it" if now is not None and paused(view) is not None else None
    )
    doubt = doubt_of_orders(view)
    return tuple(each for each in (waits, doubt.text if doubt else None) if each is not None)


@dataclass(frozen=True, slots=True)
class Obeyed:
    """Progress of agents with a plan, with the number of its segments that are still readable, that are only marked for
    deletion (``condemned``), and that are deleted (``gone``)."""

    log_start_offset: Offset
    local_log_start_offset: Offset
    readable: int
    condemned: int
    gone: int

    @classmethod
    def of(cls, plan: DeletePlan, view: PartitionView, bounds: LocalBounds) -> Obeyed:
        """Compare a plan with the current ``view`` and ``bounds``. A segment without facts counts as deleted."""
        ids = [*(each.segment_id for each in plan.going), *plan.condemned]
        states = Counter(segment.state if (segment := view.segments.get(each)) else None for each in ids)
        readable = states[SegmentState.COPY_SEGMENT_FINISHED]
        condemned = states[SegmentState.DELETE_SEGMENT_STARTED]
        start = view.log_start if view.log_start is not None else plan.log_start
        return cls(start, bounds.local_start, readable, condemned, len(ids) - readable - condemned)

    def reached(self, before: Offset) -> bool:
        """Return whether readers no longer get records below ``before``."""
        return self.log_start_offset >= before

    def settled(self, before: Offset) -> bool:
        """Return whether nothing but objects remains to be deleted."""
        return self.reached(before) and self.local_log_start_offset >= before and self.readable == 0


def require_obeyed(connection: Connection, topic: str) -> None:
    """Raise NotTiered for a topic that agents refuse, except one that only this process's settings exclude."""
    why = why_untiered(connection.broker.control, connection.settings, topic)
    if why is not None and why.kind is not Reason.EXCLUDED:
        raise NotTiered(
            "no agent deletes records of this topic: use Kafka's own tool; `tierstate disable --remote delete` gives "
            "up what is remote",
            topic=topic,
            because=why,
        )


def groups_reading(broker: BrokerControl, topic: str) -> TopicGroups:
    """Return the groups of a topic. They are shown, but delay nothing. A failed listing is returned as a problem."""
    try:
        return broker.groups(topic)
    except (Unavailable, AccessDenied) as error:
        return TopicGroups((), (GroupProblem(None, str(error)),))


def order_delete(connection: Connection, follower: Follower, plan: DeletePlan) -> OperatorOrder:
    """Return the earlier order with the same effect, or write a new order and return it."""
    if plan.already is not None:
        return plan.already
    order = new_order(
        plan.view.partition,
        OrderKind.DELETE_RECORDS,
        connection.clock,
        RandomIds(),
        before=plan.before,
        force=plan.force,
        lineage=plan.lineage,
    )
    give(connection.topic, follower, order)
    return order


def wait_obeyed(connection: Connection, follower: Follower, topic: str, plan: DeletePlan) -> Obeyed:
    """Wait until both tiers begin at the order's offset, and return the progress. Waits `WAIT_S` at most, or
    `LINGER_S` once the log start has moved."""
    clock, partition = connection.clock, plan.view.partition
    deadline, lingering = clock.monotonic() + WAIT_S, False
    while True:
        follower.require_fresh(follower.tier_partition(partition), LOOK_S)
        bounds = connection.broker.control.bounds(topic, partition.partition)
        obeyed = Obeyed.of(plan, follower.partition(partition), bounds)
        if obeyed.reached(plan.before) and not lingering:
            lingering, deadline = True, clock.monotonic() + LINGER_S
        if obeyed.settled(plan.before) or clock.monotonic() >= deadline:
            return obeyed
        clock.sleep(LOOK_S)


def require_reached(plan: DeletePlan, obeyed: Obeyed, topic: str) -> None:
    """Raise TimedOut, with the agent's answer, if no agent has obeyed yet. The order stays in force."""
    if obeyed.reached(plan.before):
        return
    answer = ask_agent(plan.view, topic)
    if isinstance(answer, dict):
        answer = answer.get("refused") or answer.get("last_error") or answer.get("not_expired")
    raise TimedOut(
        "the order stands, and no agent has obeyed yet", log_start_offset=obeyed.log_start_offset, agent=answer
    )

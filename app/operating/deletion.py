"""delete-records: what an order would delete, what delays it, how it is written, and what agents have done of it."""

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
from ...state.ids import RemoteSegmentId
from ...state.lineage import below, holds_up_to
from ...state.offsets import Offset, OffsetRange, TimestampMs
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds
from ...state.segment import RemoteSegment, SegmentState
from ...state.termless_facts import OperatorOrder, OrderKind, ReaderLease
from ..looking.partition_facts import ask_agent, describe_order, why_untiered
from ..opening.connection import Connection
from .orders import give, new_order

NOBODY = TopicGroups(())
WAIT_S = 60.0
"""How long to wait for the log start to move; agents look at a partition every few seconds."""
LINGER_S = 5.0
"""How long to wait after the log start moved, for what happens at once: the broker's log, and readable segments."""
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """An order's effect. ``going`` are readable segments that end below ``before``; ``across`` contain it and stay
    whole; ``condemned`` end below it, are not readable and still have objects. ``already`` is an earlier order with
    the same effect; ``lineage`` is the lineage that a new order names.
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
        """Return the groups that have not read all that leaves the broker. Agents obey a person without asking them."""
        if self.bounds.local_start >= self.before:
            return ()
        here = [each for each in self.groups.positions if each.partition == self.view.partition.partition]
        return tuple(each for each in here if each.committed is None or each.committed < self.before)

    @property
    def nothing(self) -> bool:
        """Return whether both tiers begin there already and no object is to be deleted in spite of a lease."""
        begun = self.log_start >= self.before and self.bounds.local_start >= self.before
        return begun and not (self.force and (self.going or self.condemned))

    @property
    def offset_count(self) -> int:
        """Return the number of offsets that readers lose: at most so many records."""
        return max(0, self.before - self.log_start)

    @property
    def local_offsets(self) -> int:
        """Return the number of offsets below ``before`` that the broker still has: at most so many records."""
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
        """Return the bytes of the broker's log that are copied: whole segments."""
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
                {
                    "id": each.id,
                    "holder": each.holder,
                    "offsets": asdict(each.offsets),
                    "expires_at": each.expires_at,
                }
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
    """Return the plan. Raises NotTiered where no agent has begun, OffsetOutOfRange above the last stable offset.

    Raises Unavailable when the broker leads in another epoch than the term in force: it is not known then which records
    the view describes*. An agent begins a term in seconds.
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
    """Return what a person must do before agents obey."""
    now = standing(view)
    waits = (
        f"{describe_order(now)}: `tierstate resume` ends it" if now is not None and paused(view) is not None else None
    )
    doubt = doubt_of_orders(view)
    return tuple(each for each in (waits, doubt.text if doubt else None) if each is not None)


@dataclass(frozen=True, slots=True)
class Obeyed:
    """Progress of agents with a plan. ``readable`` segments are untouched, ``condemned`` ones still have objects."""

    log_start_offset: Offset
    local_log_start_offset: Offset
    readable: int
    condemned: int
    gone: int

    @classmethod
    def of(cls, plan: DeletePlan, view: PartitionView, bounds: LocalBounds) -> Obeyed:
        """Compare a plan with the current ``view`` and ``bounds``. A segment whose facts are erased counts as gone."""
        ids = [*(each.segment_id for each in plan.going), *plan.condemned]
        states = Counter(segment.state if (segment := view.segments.get(each)) else None for each in ids)
        readable = states[SegmentState.COPY_SEGMENT_FINISHED]
        condemned = states[SegmentState.DELETE_SEGMENT_STARTED]
        start = view.log_start if view.log_start is not None else plan.log_start
        return cls(start, bounds.local_start, readable, condemned, len(ids) - readable - condemned)

    def reached(self, before: Offset) -> bool:
        """Return whether no reader is given records below ``before`` from now on."""
        return self.log_start_offset >= before

    def settled(self, before: Offset) -> bool:
        """Return whether only objects are left to be deleted."""
        return self.reached(before) and self.local_log_start_offset >= before and self.readable == 0


def require_obeyed(connection: Connection, topic: str) -> None:
    """Raise NotTiered for a topic that agents refuse: no agent cuts its log."""
    why = why_untiered(connection.broker.control, connection.settings, topic)
    if why is not None and why.kind is not Reason.EXCLUDED:
        raise NotTiered(
            "no agent deletes records of this topic: use Kafka's own tool; `tierstate disable --remote delete` gives "
            "up what is remote",
            topic=topic,
            because=why,
        )


def groups_reading(broker: BrokerControl, topic: str) -> TopicGroups:
    """Return the groups of a topic, which are shown and delay nothing. A listing that fails is shown as a problem."""
    try:
        return broker.groups(topic)
    except (Unavailable, AccessDenied) as error:
        return TopicGroups((), (GroupProblem(None, str(error)),))


def order_delete(connection: Connection, follower: Follower, plan: DeletePlan) -> OperatorOrder:
    """Return the earlier order with the same effect, or a new one, which is written now."""
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
    """Wait until both tiers begin at the order's offset, for `WAIT_S` at most."""
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
    """Raise TimedOut when no agent obeyed yet, with what the agent reports; the order stands."""
    if obeyed.reached(plan.before):
        return
    answer = ask_agent(plan.view, topic)
    if isinstance(answer, dict):
        answer = answer.get("refused") or answer.get("last_error") or answer.get("not_expired")
    raise TimedOut(
        "the order stands, and no agent has obeyed yet", log_start_offset=obeyed.log_start_offset, agent=answer
    )

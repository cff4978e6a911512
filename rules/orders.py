"""What operators ordered, as far as it touches data: delete-records, and giving up the remote tier. Pure.

Of delete-records orders the highest offset counts, of {pause, resume, disable} the newest by position in the topic.
A delete-records order means the records that were there when it was given: it says in which lineage, and holds as far
as the log in force is that log*. What another branch wrote at those offsets since, nobody ordered away.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..state.facts import DeleteReason
from ..state.lineage import holds_up_to, last_common
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..state.segment import SegmentState
from ..state.termless_facts import OperatorOrder, OrderKind
from .reasons import Reason, Why
from .trim import doubt_of_orders


@dataclass(frozen=True, slots=True)
class CutLocal:
    """The broker's log is to be cut below ``before``, because of an order."""

    before: Offset


@dataclass(frozen=True, slots=True)
class NoCut:
    """Why no order asks for a cut of the broker's log now."""

    reason: str


def reason_of(order: OperatorOrder) -> str:
    """What a log start says that was moved by this order."""
    return f"{DeleteReason.OPERATOR_ORDER} {order.id}"


def holds_below(order: OperatorOrder, view: PartitionView) -> Offset:
    """Below which offset a delete-records order holds on the lineage in force; 0: it does not, or is none.

    One of version 1 does not say which records it meant: it is not carried out. Nor is one that was given for a log of
    which nothing shows that it is this one*: where the log's past is unknown it would take another one's records.
    """
    if order.kind is not OrderKind.DELETE_RECORDS or order.before is None:
        return Offset(0)
    if last_common(order.lineage, view.lineage) is None:
        return Offset(0)
    return holds_up_to(order.before, order.lineage, view.lineage)


def delete_before(view: PartitionView, high_watermark: Offset) -> tuple[Offset, OperatorOrder] | None:
    """The delete-records order that counts, and what of it holds: the highest that is not above the high watermark.

    One above it waits: what does not exist yet nobody can have meant.
    """
    cutting = [(before, order) for order in view.orders if 0 < (before := holds_below(order, view)) <= high_watermark]
    return max(cutting, key=lambda each: each[0]) if cutting else None


def waiting_order(view: PartitionView, high_watermark: Offset) -> Why | None:
    """The lowest order that asks for more than there is, as people are told of it; None when none does.

    Or else one that was given for records which another election lost: it stays undone.
    """
    cutting = [(holds_below(order, view), order) for order in view.orders if order.kind is OrderKind.DELETE_RECORDS]
    beyond = [each for each in cutting if each[0] > high_watermark]
    if beyond:
        before, first = min(beyond, key=lambda each: each[0])
        said = f"order {first.id} waits: {before} is above the high watermark {high_watermark}"
        return Why(Reason.ORDER_WAITS, said)
    return next((Why(Reason.ORDER_LOST, f"order {order.id}: {said}") for said, order in lost_orders(view)), None)


def lost_orders(view: PartitionView) -> list[tuple[str, OperatorOrder]]:
    """Delete-records orders that do not hold, or not as far as they say, and why. They are done where they hold."""
    lost = []
    for order in view.orders:
        holds = holds_below(order, view)
        if order.kind is not OrderKind.DELETE_RECORDS or order.before is None or holds >= order.before:
            continue
        if not order.lineage.entries:
            why = "an older version gave it, without saying for which records: give it again"
        elif last_common(order.lineage, view.lineage) is None:
            why = "nothing shows that the records it was given for are of this log: give it again"
        else:
            why = f"another election lost the records it was given for from {holds} on: what is there now stays"
        lost.append((why, order))
    return lost


def standing(view: PartitionView) -> OperatorOrder | None:
    """The newest of pause, resume and disable, when it stops anything; None when nothing is stopped.

    By position in the topic: the clocks of those who ordered do not count.
    """
    orders = [order for order in view.orders if order.kind is not OrderKind.DELETE_RECORDS]
    return orders[-1] if orders and orders[-1].kind is not OrderKind.RESUME else None


def gives_up_remote(view: PartitionView) -> OperatorOrder | None:
    """The standing order to disable tiering and to delete the remote tier."""
    order = standing(view)
    return order if order is not None and order.kind is OrderKind.DISABLE_DELETE else None


def reasons_standing(view: PartitionView) -> set[str]:
    """What a log start may say now that is moved by an order."""
    given_up = gives_up_remote(view)
    cutting = [order for order in view.orders if order.kind is OrderKind.DELETE_RECORDS]
    return {reason_of(order) for order in (*cutting, *([given_up] if given_up else []))}


def next_cut(view: PartitionView, bounds: LocalBounds) -> CutLocal | NoCut:
    """A delete-records order reaches the broker's log once its log start is accepted."""
    doubt = doubt_of_orders(view)
    if doubt is not None:
        return NoCut(doubt.said)
    ordered = delete_before(view, bounds.high_watermark)
    if ordered is None:
        return NoCut("nobody ordered to delete records")
    before, _ = ordered
    if view.log_start is None or view.log_start < before:
        return NoCut(f"the log start has not reached {before} yet")
    if bounds.local_start >= before:
        return NoCut(f"the broker's log begins at {bounds.local_start} already")
    return CutLocal(before)


def order_done(order: OperatorOrder, view: PartitionView, local_start: Offset) -> bool:
    """Whether a delete-records order has reached both tiers; pause, resume and disable are never done.

    As far as it holds: the rest of it was given for records that are lost, and should they come back with their branch,
    they stay. A forced one stands until no object below it is left: it is what overrides the leases.
    """
    if order.kind is not OrderKind.DELETE_RECORDS or view.log_start is None:
        return False
    before = holds_below(order, view)
    if min(view.log_start, local_start) < before:
        return False
    return not (order.force and _objects_below(view, before))


def is_forced(view: PartitionView, end: Offset) -> bool:
    """Whether an order with --force reaches beyond a segment that ends there."""
    return any(order.force and holds_below(order, view) > end for order in view.orders)


def _objects_below(view: PartitionView, before: Offset) -> bool:
    return any(
        segment.state is not SegmentState.DELETE_SEGMENT_FINISHED
        and segment.segment_id not in view.kept
        and segment.subject is not None
        and segment.subject.offsets.end < before
        for segment in view.segments.values()
    )

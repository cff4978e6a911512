"""Evaluates the orders of operators that delete data: delete-records, and giving up the remote tier. Pure.

The delete-records order with the highest offset counts. Among pause, resume and disable, the order with the highest
position in the topic counts. A delete-records order covers the records at the time of the order: it names their
lineage, and holds as far as the log in force is that log*. It does not cover records that another branch wrote later at
those offsets. Rules marked * prevent a loss (`docs/tier-state.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..state.facts import DeleteReason, OperatorOrder, OrderKind
from ..state.lineage import holds_up_to, last_common
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..state.segment import SegmentState
from .reasons import Reason, Why
from .trim import doubt_of_orders


@dataclass(frozen=True, slots=True)
class CutLocal:
    """The decision to cut the broker's log below ``before``, because of an order."""

    before: Offset


def reason_of(order: OperatorOrder) -> str:
    """Return the reason that is written into the fact of a log start that this order moves."""
    return f"{DeleteReason.OPERATOR_ORDER} {order.id}"


def holds_below(order: OperatorOrder, view: PartitionView) -> Offset:
    """Return the offset below which a delete-records order holds on the lineage in force; 0 if it does not hold.

    An order of version 1 does not identify its records and is not executed. An order for a log that has no common epoch
    with this one is not executed either*: it might delete records of another log.
    """
    if order.kind is not OrderKind.DELETE_RECORDS or order.before is None:
        return Offset(0)
    if last_common(order.lineage, view.lineage) is None:
        return Offset(0)
    return holds_up_to(order.before, order.lineage, view.lineage)


def delete_before(view: PartitionView, high_watermark: Offset) -> tuple[Offset, OperatorOrder] | None:
    """Return the delete-records order that counts and the offset below which it holds; None if there is none.

    It is the highest order at or below the high watermark. Higher ones wait: the log has no such records yet.
    """
    cutting = [(before, order) for order in view.orders if 0 < (before := holds_below(order, view)) <= high_watermark]
    return max(cutting, key=lambda each: each[0]) if cutting else None


def waiting_order(view: PartitionView, high_watermark: Offset) -> Why | None:
    """Return why a delete-records order is not executed, or None.

    The lowest order above the high watermark comes first, then an order for records that another election lost.
    """
    cutting = [(holds_below(order, view), order) for order in view.orders if order.kind is OrderKind.DELETE_RECORDS]
    waiting = [each for each in cutting if each[0] > high_watermark]
    if waiting:
        before, first = min(waiting, key=lambda each: each[0])
        text = f"order {first.id} waits: {before} is above the high watermark {high_watermark}"
        return Why(Reason.ORDER_WAITS, text)
    return next((Why(Reason.ORDER_LOST, f"order {order.id}: {text}") for text, order in lost_orders(view)), None)


def lost_orders(view: PartitionView) -> list[tuple[str, OperatorOrder]]:
    """Return the delete-records orders that hold only in part or not at all, each with the reason."""
    lost = []
    for order in view.orders:
        end = holds_below(order, view)
        if order.kind is not OrderKind.DELETE_RECORDS or order.before is None or end >= order.before:
            continue
        if not order.lineage.entries:
            why = "an older version gave it, without saying for which records: give it again"
        elif last_common(order.lineage, view.lineage) is None:
            why = "nothing shows that the records it was given for are of this log: give it again"
        else:
            why = f"another election lost the records it was given for from {end} on: what is there now stays"
        lost.append((why, order))
    return lost


def standing(view: PartitionView) -> OperatorOrder | None:
    """Return the newest of pause, resume and disable if it stops a step, else None.

    The newest order has the highest position in the topic: the clocks of operators do not count.
    """
    orders = [order for order in view.orders if order.kind is not OrderKind.DELETE_RECORDS]
    return orders[-1] if orders and orders[-1].kind is not OrderKind.RESUME else None


def gives_up_remote(view: PartitionView) -> OperatorOrder | None:
    """Return the order in force to disable tiering and to delete the remote tier, or None."""
    order = standing(view)
    return order if order is not None and order.kind is OrderKind.DISABLE_DELETE else None


def reasons_standing(view: PartitionView) -> set[str]:
    """Return the reasons that a log start may have if an order moves it now."""
    given_up = gives_up_remote(view)
    cutting = [order for order in view.orders if order.kind is OrderKind.DELETE_RECORDS]
    return {reason_of(order) for order in (*cutting, *([given_up] if given_up else []))}


def next_cut(view: PartitionView, bounds: LocalBounds) -> CutLocal | None:
    """Return the cut of the broker's log that an order requires after its log start was accepted, or None."""
    ordered = delete_before(view, bounds.high_watermark)
    if ordered is None or doubt_of_orders(view) is not None:
        return None
    before, _ = ordered
    accepted = view.log_start is not None and view.log_start >= before
    return CutLocal(before) if accepted and bounds.local_start < before else None


def order_done(order: OperatorOrder, view: PartitionView, local_start: Offset) -> bool:
    """Return whether a delete-records order has reached both tiers; pause, resume and disable are never done.

    Only the part that holds counts. The other part covers lost records: if their branch becomes the log again, they
    stay. A forced order is not done while objects below its offset exist, because it overrides the leases.
    """
    if order.kind is not OrderKind.DELETE_RECORDS or view.log_start is None:
        return False
    before = holds_below(order, view)
    if min(view.log_start, local_start) < before:
        return False
    return not (order.force and _objects_below(view, before))


def is_forced(view: PartitionView, end: Offset) -> bool:
    """Return whether an order with --force covers all of a segment that ends at ``end`` (inclusive)."""
    return any(order.force and holds_below(order, view) > end for order in view.orders)


def _objects_below(view: PartitionView, before: Offset) -> bool:
    return any(
        segment.state is not SegmentState.DELETE_SEGMENT_FINISHED
        and segment.segment_id not in view.kept
        and segment.subject is not None
        and segment.subject.offsets.end < before
        for segment in view.segments.values()
    )

"""What operators ordered, as far as it touches data: delete-records, and giving up the remote tier. Pure.

Of delete-records orders the highest offset counts, of {pause, resume, disable} the newest by position in the topic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..state.facts import DeleteReason, OperatorOrder, OrderKind
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..state.segment import SegmentState
from .reasons import Reason, Why
from .trim_rule import doubt_of


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


def delete_before(view: PartitionView, high_watermark: Offset) -> OperatorOrder | None:
    """The delete-records order that counts: the highest that is not above the high watermark.

    One above it waits: what does not exist yet, or was lost in an election, nobody can have meant.
    """
    possible = [
        (order.before, order) for order in view.orders if order.before is not None and order.before <= high_watermark
    ]
    cutting = [each for each in possible if each[1].kind is OrderKind.DELETE_RECORDS]
    return max(cutting, key=lambda each: each[0])[1] if cutting else None


def waiting_order(view: PartitionView, high_watermark: Offset) -> Why | None:
    """The lowest order that asks for more than there is, as people are told of it; None when none does."""
    beyond = [order for order in view.orders if order.before is not None and order.before > high_watermark]
    if not beyond:
        return None
    first = min(beyond, key=lambda order: order.before or 0)
    said = f"order {first.id} waits: {first.before} is above the high watermark {high_watermark}"
    return Why(Reason.ORDER_WAITS, said)


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
    doubt = doubt_of(view)
    if doubt is not None:
        return NoCut(doubt.said)
    order = delete_before(view, bounds.high_watermark)
    if order is None or order.before is None:
        return NoCut("nobody ordered to delete records")
    if view.log_start is None or view.log_start < order.before:
        return NoCut(f"the log start has not reached {order.before} yet")
    if bounds.local_start >= order.before:
        return NoCut(f"the broker's log begins at {bounds.local_start} already")
    return CutLocal(order.before)


def order_done(order: OperatorOrder, view: PartitionView, local_start: Offset) -> bool:
    """Whether a delete-records order has reached both tiers; pause, resume and disable are never done.

    A forced one stands until no object below it is left: it is what overrides the leases.
    """
    if order.kind is not OrderKind.DELETE_RECORDS or order.before is None:
        return False
    if view.log_start is None or view.log_start < order.before or local_start < order.before:
        return False
    return not (order.force and _objects_below(view, order.before))


def is_forced(view: PartitionView, end: Offset) -> bool:
    """Whether an order with --force reaches beyond a segment that ends there."""
    return any(
        order.kind is OrderKind.DELETE_RECORDS and order.force and order.before is not None and order.before > end
        for order in view.orders
    )


def _objects_below(view: PartitionView, before: Offset) -> bool:
    return any(
        segment.state is not SegmentState.DELETE_SEGMENT_FINISHED
        and segment.subject is not None
        and segment.subject.offsets.end < before
        for segment in view.segments.values()
    )

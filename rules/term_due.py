"""Decides when a term is begun although there may be nothing to do. Pure.

An epoch without a term leaves no trace once Kafka's retention, or DeleteRecords, has deleted its records. The broker's
checkpoint then begins with an epoch that no fact relates to the earlier ones, so the remote data cannot be placed.
After a log was emptied, only its new beginning identifies the next epoch's place, so a term records this beginning.
"""

from __future__ import annotations

from ..state.epochs import Lineage
from ..state.ids import RECOVERER, BrokerId
from ..state.lineage import compose
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from .earlier_lineages import earlier_lineages


def term_due(
    view: PartitionView, bounds: LocalBounds, checkpoint: Lineage, broker: BrokerId, address: str
) -> str | None:
    """Return why the leader with these ``bounds`` must begin a new term; None if the term in force is sufficient.

    ``address``: the address of this broker's agent. If a fact of the partition cannot be read, no term begins.
    """
    epoch = bounds.leader_epoch
    if epoch is None or view.degraded:
        return None
    if view.term is None or view.term.epoch < epoch:
        return "the leader epoch changed"
    if view.term.epoch > epoch or view.leader is None:
        return None
    if view.leader.broker_id == RECOVERER:
        return "a recovery began the term in force"  # no agent answers for that term
    if view.leader.broker_id == broker and view.leader.management_address != address:
        return "its agent answers elsewhere"  # requests for reasons would go to the old address
    if is_emptied(view, bounds):
        return "the broker's log was emptied"
    if view.lineage_unknown and not view.cannot_place(compose(checkpoint, earlier_lineages(view, checkpoint))[0]):
        return "the log's past is known now"
    return None


def is_emptied(view: PartitionView, bounds: LocalBounds) -> bool:
    """Return whether the broker's log is empty and no term has recorded where it begins now.

    The remote segments of the view do not count: the view may not have the newest copies yet.
    """
    nothing_left = bounds.local_start == bounds.high_watermark
    return nothing_left and view.leader is not None and view.leader.local_start < bounds.local_start

"""When a term is begun though there may be nothing to do. Pure.

An epoch in which no term was written leaves no trace once Kafka's retention, or DeleteRecords, has taken its records:
the broker's checkpoint then begins with an epoch that nobody can place, and with it everything that is remote*. And of
a log that was emptied the next epoch leaves nothing but its own beginning: so a term says where that is*.
"""

from __future__ import annotations

from ..state.epochs import Lineage
from ..state.ids import RECOVERER, BrokerId
from ..state.lineage import compose
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from .elders import elders_of


def term_due(
    view: PartitionView, bounds: LocalBounds, checkpoint: Lineage, broker: BrokerId, address: str
) -> str | None:
    """Why a new term is to begin, of a broker that leads within ``bounds``; None when the one in force will do.

    ``address``: where this broker's agent answers. Nothing is written about a partition of which a fact cannot be read.
    """
    epoch = bounds.leader_epoch
    if epoch is None or view.degraded:
        return None
    if view.term is None or view.term.epoch < epoch:
        return "the leader epoch changed"
    if view.term.epoch > epoch or view.leader is None:
        return None
    if view.leader.broker_id == RECOVERER:
        return "a recovery began the term in force"  # nobody answers for it
    if view.leader.broker_id == broker and view.leader.management_address != address:
        return "its agent answers elsewhere"  # who asks why something waits would not come to it
    if is_emptied(view, bounds):
        return "the broker's log was emptied"
    if view.lineage_unknown and not view.cannot_place(compose(checkpoint, elders_of(view, checkpoint))[0]):
        return "the log's past is known now"
    return None


def is_emptied(view: PartitionView, bounds: LocalBounds) -> bool:
    """Whether the broker has nothing left, and no term says since where.

    Whatever this view knows to be remote: a segment may have been copied that it does not know of yet*.
    """
    nothing_left = bounds.local_start == bounds.high_watermark
    return nothing_left and view.leader is not None and view.leader.local_start < bounds.local_start

"""What facts know of a log's past, to continue a broker's checkpoint below where that begins."""

from __future__ import annotations

from ..state.epochs import Lineage
from ..state.facts import LeaderElected
from ..state.ids import RECOVERER
from ..state.lineage import compose
from ..state.partition_view import PartitionView


def elders_of(view: PartitionView, checkpoint: Lineage) -> list[Lineage]:
    """Who may continue a checkpoint: the live `LeaderElected` facts, highest term first, then what a person settled.

    What was settled continues the others too: whichever epoch of them a person named.
    """
    leaders = [
        (live.fact.epoch, live.position, live.fact) for live in view.others if isinstance(live.fact, LeaderElected)
    ]
    leaders.sort(key=lambda each: each[:2], reverse=True)
    settled = settled_by_people(view)
    begun = begun_on_an_empty_log(view, checkpoint)
    known = [fact.lineage for _, _, fact in leaders] + ([begun] if begun else [])
    return [*(compose(each, settled)[0] for each in known), *settled]


def settled_by_people(view: PartitionView) -> list[Lineage]:
    """What people said of the log where nothing else says it, the newest first*."""
    return [fact.lineage for fact in reversed(view.settled_lineages)]


def begun_on_an_empty_log(view: PartitionView, checkpoint: Lineage) -> Lineage | None:
    """The lineage of an epoch that began exactly where the log began in the newest term*.

    On a log that Kafka's retention has emptied, a new epoch takes the place of the one before it in the checkpoint, and
    nobody has heard of it. What is below is what that term said: nothing was written in between. Not where that term
    knew an epoch above its log's beginning: that log was not empty, and this one is another branch, cut there*. Nor
    where that term is a recovery's: it names where the log begins now, in an epoch that it has not seen begin*.
    """
    if view.leader is None or view.leader.broker_id == RECOVERER or not checkpoint.entries:
        return None
    first, elder = checkpoint.entries[0], view.leader
    if not 0 < first.start_offset == elder.local_start or first.epoch <= (elder.lineage.last_epoch or 0):
        return None
    if any(entry.start_offset > elder.local_start for entry in elder.lineage.entries):
        return None
    return Lineage((*elder.lineage.up_to(first.start_offset).entries, first))

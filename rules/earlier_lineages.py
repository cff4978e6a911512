"""Finds lineages in the facts that continue a broker's checkpoint below its first offset."""

from __future__ import annotations

from ..state.epochs import Lineage
from ..state.facts import LeaderElected
from ..state.ids import RECOVERER
from ..state.lineage import compose
from ..state.partition_view import PartitionView


def earlier_lineages(view: PartitionView, checkpoint: Lineage) -> list[Lineage]:
    """Return the lineages that may continue a checkpoint: of live `LeaderElected` facts, highest term first, of an
    epoch begun on an empty log, then those that people settled. Settled lineages also continue the others.
    """
    leaders = [
        (live.fact.epoch, live.position, live.fact) for live in view.others if isinstance(live.fact, LeaderElected)
    ]
    leaders.sort(key=lambda each: each[:2], reverse=True)
    settled = settled_by_people(view)
    new_epoch = begun_on_an_empty_log(view, checkpoint)
    lineages = [fact.lineage for _, _, fact in leaders] + ([new_epoch] if new_epoch else [])
    return [*(compose(each, settled)[0] for each in lineages), *settled]


def settled_by_people(view: PartitionView) -> list[Lineage]:
    """Return the lineages that people settled, the newest first."""
    return [fact.lineage for fact in reversed(view.settled_lineages)]


def begun_on_an_empty_log(view: PartitionView, checkpoint: Lineage) -> Lineage | None:
    """Return the newest term's lineage plus the checkpoint's first epoch, if it began where that term's log began.

    On a log that Kafka's retention has emptied, a new epoch replaces the previous one in the checkpoint. It continues
    that term's lineage, because nothing was written in between. Returns None if that term knew an epoch above its log's
    beginning: that log was not empty, so this one is another branch. Also returns None for a recovery's term, which
    names where the log begins now, in an epoch whose beginning it has not seen.
    """
    if view.leader is None or view.leader.broker_id == RECOVERER or not checkpoint.entries:
        return None
    first, leader = checkpoint.entries[0], view.leader
    if not 0 < first.start_offset == leader.local_start or first.epoch <= (leader.lineage.last_epoch or 0):
        return None
    if any(entry.start_offset > leader.local_start for entry in leader.lineage.entries):
        return None
    return Lineage((*leader.lineage.up_to(first.start_offset).entries, first))

"""How a log continues: lineages below a broker's checkpoint, the terms that record them, a person's decision. Pure.

An epoch without a term leaves no trace once Kafka's retention, or DeleteRecords, has deleted its records. The broker's
checkpoint then begins with an epoch that no fact relates to the earlier ones, so the remote data cannot be placed.
So a term is begun although there may be nothing to do. After a log was emptied, only its new beginning identifies the
next epoch's place: a term records this beginning. If no fact shows how the log continues, a person decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.facts import LeaderElected
from ..state.ids import RECOVERER, BrokerId
from ..state.lineage import compose, laid_over
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from .observed import Observed
from .recovery import lineage_of


def earlier_lineages(view: PartitionView, checkpoint: Lineage) -> list[Lineage]:
    """Return the lineages that may continue a checkpoint, in this order: those of live `LeaderElected` facts, highest
    term first; that of an epoch begun on an empty log; those that people settled, which also continue the others.
    """
    settled = settled_by_people(view)
    new_epoch = begun_on_an_empty_log(view, checkpoint)
    lineages = [leader.lineage for leader in _leaders(view)] + ([new_epoch] if new_epoch else [])
    return [*(compose(each, settled)[0] for each in lineages), *settled]


def _leaders(view: PartitionView) -> list[LeaderElected]:
    """Return the live `LeaderElected` facts, highest term first."""
    leaders = view.of_kind(LeaderElected)
    return [fact for _, fact in sorted(leaders, key=lambda each: (each[1].epoch, each[0].position), reverse=True)]


def settled_by_people(view: PartitionView) -> list[Lineage]:
    """Return the lineages that people settled, the newest first."""
    return [fact.lineage for fact in reversed(view.settled_lineages)]


def begun_on_an_empty_log(view: PartitionView, checkpoint: Lineage) -> Lineage | None:
    """Return the newest term's lineage plus the checkpoint's first epoch, if it began where that term's log began.

    On a log that Kafka's retention has emptied, a new epoch replaces the previous one in the checkpoint. It continues
    that term's lineage, because nothing was written in between. Returns None if that term knew an epoch above its log's
    beginning: that log was not empty, so this one is another branch. Also returns None for a recovery's term, because
    a recovery knows where the log begins now, but not where its epoch began.
    """
    if view.leader is None or view.leader.broker_id == RECOVERER or not checkpoint.entries:
        return None
    first, leader = checkpoint.entries[0], view.leader
    if not 0 < first.start_offset == leader.local_start or first.epoch <= (leader.lineage.last_epoch or 0):
        return None
    if any(entry.start_offset > leader.local_start for entry in leader.lineage.entries):
        return None
    return Lineage((*leader.lineage.up_to(first.start_offset).entries, first))


def continued(view: PartitionView, checkpoint: Lineage, log: Lineage, earlier: Sequence[Lineage]) -> Lineage:
    """Return the lineage of a log from its checkpoint, ``earlier`` lineages, and the epochs in its batches (``log``).

    Terms began in the epochs of checkpoints, so the checkpoint is composed first. A log that begins below it may begin
    with an epoch in which no term began. Returns the first of these lineages that has a place for the remote segments:
    the composed checkpoint with the log's epochs, the composed epochs of the log, the composed checkpoint. Without such
    a lineage, returns the one that reaches furthest down.
    """
    composed = compose(checkpoint, earlier)[0]
    lineages = laid_over(composed, log), compose(log, earlier)[0], composed
    furthest_down = min(lineages, key=lambda each: each.first_offset or 0)
    return next((each for each in lineages if not view.cannot_place(each)), furthest_down)


def term_due(view: PartitionView, seen: Observed, broker: BrokerId, address: str) -> str | None:
    """Return why the leader that was observed must begin a new term; None if the term in force is sufficient.

    ``address``: the address of this broker's agent. If a fact of the partition cannot be read, no term begins.
    """
    bounds, epoch = seen.bounds, seen.bounds.leader_epoch
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
    if view.lineage_unknown:
        earlier = earlier_lineages(view, seen.checkpoint)
        if not view.cannot_place(continued(view, seen.checkpoint, seen.epochs, earlier)):
            return "the log's past is known now"
    return None


def is_emptied(view: PartitionView, bounds: LocalBounds) -> bool:
    """Return whether the broker's log is empty and no term has recorded where it begins now.

    The remote segments of the view do not count: the view may not have the newest copies yet.
    """
    nothing_left = bounds.local_start == bounds.high_watermark
    return nothing_left and view.leader is not None and view.leader.local_start < bounds.local_start


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown lineage. ``begins``: the first epoch that the term in force knows, and its start offset.

    ``leader``: the newest term that knows the remote segments. ``lineage``: its lineage; without such a term, that of
    the segments' own epochs. ``continues``: the lineage if the log continued; ``anew``: if it is another log.
    """

    begins: tuple[int, int]
    leader: LeaderElected | None
    lineage: Lineage
    continues: Lineage
    anew: Lineage


def unknown_of(view: PartitionView) -> Unknown | None:
    """Return the lineage to settle. Returns None if it is known, or if the term in force knows no epoch at all."""
    if not view.lineage_unknown or not view.lineage.entries:
        return None
    first = view.lineage.entries[0]
    leader = next((each for each in _leaders(view) if not view.leaves_unplaced(each.lineage)), None)
    below = [each for each in view.readable if each.offsets.start < first.start_offset]
    lineage = leader.lineage if leader is not None else lineage_of(below)
    older = tuple(e for e in lineage.entries if e.epoch < first.epoch and e.start_offset <= first.start_offset)
    begins = (int(first.epoch), int(first.start_offset))
    return Unknown(begins, leader, lineage, Lineage((*older, first)), Lineage((first,)))

"""Prepares a person's decision on how a log continues below its broker's checkpoint, if no fact shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..state.epochs import Lineage
from ..state.facts import LeaderElected
from ..state.partition_view import PartitionView
from .recovery import lineage_of


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
    leader = _newest_leader(view)
    below = [each for each in view.readable if each.offsets.start < first.start_offset]
    lineage = leader.lineage if leader is not None else lineage_of(below)
    older = tuple(e for e in lineage.entries if e.epoch < first.epoch and e.start_offset <= first.start_offset)
    begins = (int(first.epoch), int(first.start_offset))
    return Unknown(begins, leader, lineage, Lineage((*older, first)), Lineage((first,)))


def _newest_leader(view: PartitionView) -> LeaderElected | None:
    terms = [
        (live.fact.epoch, live.position, live.fact) for live in view.others if isinstance(live.fact, LeaderElected)
    ]
    candidates = [each for each in terms if not view.leaves_unplaced(each[2].lineage)]
    return max(candidates, key=lambda each: each[:2])[2] if candidates else None

"""Decides which facts may be erased now, and in which order. Pure.

A tombstone has no term and cannot be fenced. So a fact is erased only if the meaning of the other facts stays the same,
now and later. These facts may be erased:

    of a deleted segment    in this order: copy-finished, copy-started, delete-started, delete-finished (accepted last)
    fenced, about no copy   deletes, trims and log starts: at any time
    superseded              a trim below the newest; a log start if another one holds as far on every lineage*
    orders                  once done or superseded; an older order before the order that supersedes it
    leases                  once expired, even by a clock that is 5 minutes behind
    decisions of people     once no longer needed (`_settled`)
    a lower LeaderElected   once no fenced fact is below the LeaderElected in force*, and the lineage in force contains
                            everything in its lineage that is still needed (`knows`)*

Without the rules marked *, facts that only the erased fact fenced would count again. Or the next leader could not
continue the lineage of its log, which may be a branch that was lost before.
With an archive, a fact is erased only after it is archived. Without an archive, nothing waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, takewhile

from ..state.epochs import LeaderEpoch, Lineage
from ..state.facts import (
    ContradictionSettled,
    GapAccepted,
    LeaderElected,
    LineageSettled,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    OrderKind,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from ..state.lifecycle import contradicted_segment
from ..state.lineage import stands_for
from ..state.offsets import Offset, Position, TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import SegmentState, Term
from .leases import expired_leases
from .orders import holds_below, order_done
from .trim import doubt_of


@dataclass(frozen=True, slots=True)
class Erase:
    """The decision to append tombstones for ``keys``, in this order. Each is applied before the next is sent."""

    keys: tuple[str, ...]
    why: str


def next_erasure(
    view: PartitionView, term: Term, local_start: Offset, archived_to: Position | None, now: TimestampMs
) -> Erase | str:
    """Return the facts that the term in force may erase next, or why it erases none.

    ``archived_to``: positions below it are archived. Without an archive it is None, and nothing waits.
    """
    if (doubt := doubt_of(view)) is not None:
        return doubt.text
    waiting = False
    for why, facts in _erasable(view, term, local_start, now):
        if archived_to is not None and any(live.position >= archived_to for live in facts):
            waiting = True
            continue
        return Erase(tuple(live.key for live in facts), why)
    return "not archived yet" if waiting else "nothing to erase"


def _erasable(
    view: PartitionView, term: Term, local_start: Offset, now: TimestampMs
) -> Iterator[tuple[str, list[LiveFact]]]:
    for segment in view.unsettled:
        if segment.state is SegmentState.DELETE_SEGMENT_FINISHED and segment.segment_id not in view.kept:
            yield f"segment {segment.segment_id} is deleted", in_erasing_order(segment)
    for live in _fenced_in_segments(view):
        if isinstance(live.fact, SegmentDeleteStarted | SegmentDeleteFinished):
            if live.fact.subject.segment_id not in view.kept:
                yield "fenced delete", [live]
    expired = expired_leases(view, now)
    yield from (("expired lease", [live]) for live in view.others if live.key in expired)
    yield from (("fenced or superseded", [live]) for live in _without_effect(view))
    yield from (("order done or superseded", [live]) for live in _past_orders(view, local_start))
    yield from (("settled and over", [live]) for live in _settled(view))
    yield from (("lower term", [live]) for live in _lower_leaders(view, term))


def in_erasing_order(segment: SegmentMeaning) -> list[LiveFact]:
    """Return the facts of a deleted segment in the order of erasing. An accepted delete-finished comes last."""

    def rank(live: LiveFact) -> tuple[int, bool, int]:
        kinds = (SegmentCopyFinished, SegmentCopyStarted, SegmentDeleteStarted, SegmentDeleteFinished)
        kind = next(at for at, each in enumerate(kinds) if isinstance(live.fact, each))
        return kind, live.key not in segment.fenced, live.position

    return sorted(segment.facts, key=rank)


def _without_effect(view: PartitionView) -> Iterator[LiveFact]:
    """Iterate over log starts and trims that are fenced or that another one replaces."""
    trims = [live for live, _ in view.of_kind(LocalTrimIntended)]
    newest = max((live for live in trims if live.key not in view.fenced), key=lambda live: live.position, default=None)
    needed_keys = _log_starts_needed(view)
    yield from (live for live, _ in view.of_kind(LogStartAdvanced) if live.key not in needed_keys)
    yield from (live for live in trims if live is not newest)


def _log_starts_needed(view: PartitionView) -> set[str]:
    """Return the keys of accepted log starts without a replacement (`stands_for`). If two are equal, keep the newer."""
    accepted = [each for each in view.of_kind(LogStartAdvanced) if each[0].key not in view.fenced]
    facts: dict[str, LogStartAdvanced] = {}
    for live, fact in sorted(accepted, key=lambda each: (each[1].log_start, each[0].position), reverse=True):
        if not any(stands_for(higher, fact) for higher in facts.values()):
            facts[live.key] = fact
    return set(facts)


def _past_orders(view: PartitionView, local_start: Offset) -> Iterator[LiveFact]:
    """Iterate over erasable orders, oldest first: if an order were erased after its successor, it would apply again."""
    orders = view.of_kind(OperatorOrder)
    standing = [each for each in orders if each[1].kind is not OrderKind.DELETE_RECORDS]
    if len(standing) > 1 or (standing and standing[0][1].kind is OrderKind.RESUME):
        yield standing[0][0]
    cutting = [each for each in orders if each[1].kind is OrderKind.DELETE_RECORDS]
    for live, first in cutting[:1]:
        # an order that does not hold in full is kept until the next one, and reported to its author
        ends = len(cutting) > 1 or holds_below(first, view) >= (first.before or 0)
        if ends and order_done(first, view, local_start):
            yield live


def _settled(view: PartitionView) -> Iterator[LiveFact]:
    """Iterate over the decisions of people that are no longer needed.

    A settled lineage is needed until the lineage in force contains it, and while remote segments cannot be placed
    without it. A settled contradiction is needed until its segment has no facts, so it cannot recur. An accepted gap is
    needed until it holds in full and the log start is above it. If a branch with a lower log start becomes the log
    again, the gap is reported again.
    """
    log_start = view.log_start or Offset(0)
    for live in view.others:
        if isinstance(live.fact, LineageSettled):
            is_needed = view.leaves_unplaced(view.lineage)
            if not is_needed and knows(view.lineage, live.fact.lineage, log_start):
                yield live
        elif isinstance(live.fact, ContradictionSettled) and _is_over(view, live.fact.contradiction):
            yield live
        elif isinstance(live.fact, GapAccepted) and (live.fact, live.fact.offsets) in view.gaps_in_force:
            if live.fact.offsets.end < log_start:
                yield live


def _is_over(view: PartitionView, contradiction: str) -> bool:
    segment_id = contradicted_segment(contradiction)
    if segment_id is not None:
        return segment_id not in view.segments
    return all(segment.contradiction != contradiction for segment in view.segments.values())


def _lower_leaders(view: PartitionView, term: Term) -> Iterator[LiveFact]:
    if unfences(view, term):
        return
    copied = _copied_below_log_start(view)
    for live, fact in view.of_kind(LeaderElected):
        if (fact.epoch, live.position) < term.order:
            if knows(view.lineage, fact.lineage, view.log_start or Offset(0), copied):
                yield live


def _copied_below_log_start(view: PartitionView) -> set[LeaderEpoch]:
    """Return the epochs of readable segments that start below the log start. Their branch may become the log again."""
    below = takewhile(lambda segment: segment.offsets.start < (view.log_start or 0), view.readable)
    return {entry.epoch for segment in below for entry in segment.leader_epochs.entries}


def unfences(view: PartitionView, term: Term) -> bool:
    """Return whether a fenced fact is below the LeaderElected in force: only a lower LeaderElected can fence it."""
    others = (live for live in view.others if live.key in view.fenced)
    return any(live.position < term.position for live in chain(others, _fenced_in_segments(view)))


def _fenced_in_segments(view: PartitionView) -> Iterator[LiveFact]:
    if view.fenced:
        for segment in view.segments.values():
            yield from (live for live in segment.facts if live.key in segment.fenced)


def knows(lineage: Lineage, earlier: Lineage, log_start: Offset, copied: Collection[LeaderEpoch] = frozenset()) -> bool:
    """Return whether ``lineage`` contains all that ``earlier`` contains about offsets from the log start on.

    An epoch of ``earlier`` is contained if ``lineage`` has it from the same or a lower offset. Any other epoch is not
    needed once the log start has reached the next epoch of ``earlier``. The last epoch of ``earlier`` is not needed
    once the log start is above its start: a leader of that branch then has it as its first epoch, trusted at any
    offset. ``copied``: epochs of readable segments that start below the log start. If ``lineage`` does not contain such
    an epoch, it is needed*: the log start passed the epoch here, but not on the epoch's own branch.
    """
    for at, entry in enumerate(earlier.entries):
        own = lineage.owned_by(entry.epoch)
        if own is not None and own[0] <= entry.start_offset:
            continue
        last = at + 1 == len(earlier.entries)
        is_passed = log_start > entry.start_offset if last else log_start >= earlier.entries[at + 1].start_offset
        if not is_passed or entry.epoch in copied:
            return False
    return True

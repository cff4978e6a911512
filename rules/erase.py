"""Which facts may be erased now, in which order. Pure.

A tombstone carries no term and cannot be fenced, so each is sent only when what it erases is implied by accepted facts
in the view and can never matter again. What may go, and its order:

    a deleted segment       copy-finished, copy-started, every delete-started, every delete-finished (accepted one last)
    fenced, about no copy   deletes, trims, log starts: at any time
    superseded              trims below the newest; log starts for which another one stands on every lineage*
    orders                  once done or superseded, an older one before the one that supersedes it
    leases                  expired, by the clock of whoever is most behind
    what a person settled   of a lineage, once a term carries it on; of a contradiction, once its segment is gone
    a lower LeaderElected   only when no fenced fact stands below the LeaderElected in force*, and when that one knows
                            its lineage, or the log start has passed it and nothing copied of it is left*

*Erased earlier, it would un-fence what only it fences; and the next leader could not continue the log's lineage, be it
that of a branch that comes back.
Nothing goes that the archive does not hold yet, so compaction can never drop what nobody recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, takewhile

from ..state.epochs import LeaderEpoch, Lineage
from ..state.facts import (
    LeaderElected,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
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
from ..state.termless_facts import ContradictionSettled, GapAccepted, LineageSettled, OperatorOrder, OrderKind
from .leases import expired_leases
from .orders import holds_below, order_done
from .trim import doubt_of


@dataclass(frozen=True, slots=True)
class Erase:
    """Tombstones for these keys, in this order, each applied before the next."""

    keys: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class NothingToErase:
    """Why no fact is erased now."""

    reason: str


def next_erasure(
    view: PartitionView, term: Term, local_start: Offset, archived_to: Position | None, now: TimestampMs
) -> Erase | NothingToErase:
    """What the term in force may erase next. ``archived_to``: what is below is archived; None: no archive is kept."""
    doubt = doubt_of(view)
    if doubt is not None:
        return NothingToErase(doubt.said)
    waiting = False
    for why, facts in _erasable(view, term, local_start, now):
        if archived_to is not None and any(live.position >= archived_to for live in facts):
            waiting = True
            continue
        return Erase(tuple(live.key for live in facts), why)
    return NothingToErase("not archived yet" if waiting else "nothing to erase")


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
    """The facts of a deleted segment, as they may go. The last one that says it is deleted goes last."""

    def rank(live: LiveFact) -> tuple[int, bool, int]:
        kinds = (SegmentCopyFinished, SegmentCopyStarted, SegmentDeleteStarted, SegmentDeleteFinished)
        kind = next(at for at, each in enumerate(kinds) if isinstance(live.fact, each))
        return kind, live.key not in segment.fenced, live.position

    return sorted(segment.facts, key=rank)


def _without_effect(view: PartitionView) -> Iterator[LiveFact]:
    """Log starts and trims that are fenced, or for which another one stands."""
    trims = [live for live in view.others if isinstance(live.fact, LocalTrimIntended)]
    newest = max((live for live in trims if live.key not in view.fenced), key=lambda live: live.position, default=None)
    needed = _log_starts_needed(view)
    yield from (live for live in view.others if isinstance(live.fact, LogStartAdvanced) and live.key not in needed)
    yield from (live for live in trims if live is not newest)


def _log_starts_needed(view: PartitionView) -> set[str]:
    """The keys of the accepted log starts for which no other one stands; of equals the newest."""
    accepted = [
        (live.fact.log_start, live.position, live.key, live.fact)
        for live in view.others
        if isinstance(live.fact, LogStartAdvanced) and live.key not in view.fenced
    ]
    needed: dict[str, LogStartAdvanced] = {}
    for _, _, key, fact in sorted(accepted, key=lambda each: each[:2], reverse=True):
        if not any(stands_for(higher, fact) for higher in needed.values()):
            needed[key] = fact
    return set(needed)


def _past_orders(view: PartitionView, local_start: Offset) -> Iterator[LiveFact]:
    """One at a time, oldest first: an order erased after the one that supersedes it would come back to life."""
    standing = [live for live in view.others if isinstance(live.fact, OperatorOrder) and not _cuts(live)]
    if len(standing) > 1 or (standing and _kind(standing[0]) is OrderKind.RESUME):
        yield standing[0]
    cutting = [live for live in view.others if _cuts(live)]
    first = cutting[0].fact if cutting else None
    if isinstance(first, OperatorOrder) and order_done(first, view, local_start):
        # whoever gave one that does not hold is told of it until the next one
        if len(cutting) > 1 or holds_below(first, view) >= (first.before or 0):
            yield cutting[0]


def _kind(live: LiveFact) -> OrderKind | None:
    return live.fact.kind if isinstance(live.fact, OperatorOrder) else None


def _cuts(live: LiveFact) -> bool:
    return _kind(live) is OrderKind.DELETE_RECORDS


def _settled(view: PartitionView) -> Iterator[LiveFact]:
    """What a person settled, once it is no longer needed.

    A lineage: a term that knows it carries it on; one that says that what lies below is another log stands until that
    is gone. A contradiction: it stands as long as any fact of its segment does, so none begins anew. An accepted gap:
    the log start has passed it; a branch that comes back shows the gap again.
    """
    log_start = view.log_start or Offset(0)
    for live in view.others:
        if isinstance(live.fact, LineageSettled):
            needed = view.leaves_unplaced(view.lineage)
            if not needed and knows(view.lineage, live.fact.lineage, log_start):
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
    for live in view.others:
        fact = live.fact
        if isinstance(fact, LeaderElected) and (fact.epoch, live.position) < term.order:
            if knows(view.lineage, fact.lineage, view.log_start or Offset(0), copied):
                yield live


def _copied_below_log_start(view: PartitionView) -> set[LeaderEpoch]:
    """Epochs of readable segments there: of a branch that may come back, when they stay."""
    below = takewhile(lambda segment: segment.offsets.start < (view.log_start or 0), view.readable)
    return {entry.epoch for segment in below for entry in segment.leader_epochs.entries}


def unfences(view: PartitionView, term: Term) -> bool:
    """Whether a fenced fact stands below the LeaderElected in force: only a lower one can be what fences it."""
    others = (live for live in view.others if live.key in view.fenced)
    return any(live.position < term.position for live in chain(others, _fenced_in_segments(view)))


def _fenced_in_segments(view: PartitionView) -> Iterator[LiveFact]:
    if view.fenced:
        for segment in view.segments.values():
            yield from (live for live in segment.facts if live.key in segment.fenced)


def knows(lineage: Lineage, elder: Lineage, log_start: Offset, copied: Collection[LeaderEpoch] = frozenset()) -> bool:
    """Whether ``lineage`` says all that ``elder`` says of offsets from the log start on.

    An epoch that ``lineage`` has from the same offset (or from below) is known. One that it has not is passed once the
    log start is at the elder's next epoch; the elder's last one, whose end nobody knows, once the log start is above
    its beginning: from there on a leader of that branch has it as its first epoch, which is trusted at any offset.
    ``copied``: epochs of which there are segments below the log start. One of a lost branch is needed as long as they
    are there*: the log start passed it here, and not on its own branch.
    """
    for at, entry in enumerate(elder.entries):
        own = lineage.owned_by(entry.epoch)
        if own is not None and own[0] <= entry.start_offset:
            continue
        last = at + 1 == len(elder.entries)
        passed = log_start > entry.start_offset if last else log_start >= elder.entries[at + 1].start_offset
        if not passed or entry.epoch in copied:
            return False
    return True

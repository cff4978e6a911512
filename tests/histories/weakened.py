"""The functions that stand in for guards of production when a history removes them (`guards.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING

from tierstate.broker.answers import FetchSpec
from tierstate.log.transaction_index import OpenBefore, parse_transaction_index
from tierstate.log.transactions import decide
from tierstate.rules.erase import in_erasing_order
from tierstate.rules.expire import AdvanceLogStart, StartDelete, next_delete, next_log_start
from tierstate.rules.reasons import Reason, Why
from tierstate.rules.sweep import only_copy
from tierstate.rules.trim import doubt_of
from tierstate.state.epochs import Lineage
from tierstate.state.errors import CorruptData
from tierstate.state.facts import DeleteReason, OperatorOrder, OrderKind, SegmentCopyFinished
from tierstate.state.lineage import EpochEnd, compose, folded
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange, SegmentState


def nothing(*arguments: object, **named: object) -> None:
    return None


def empty(*arguments: object) -> tuple[()]:
    return ()


def no(*arguments: object) -> bool:
    return False


def yes(*arguments: object) -> bool:
    return True


def no_wait(*arguments: object, **named: object) -> float:
    return 0.0


def what_stands(claim: Any) -> bytes:
    return bytes(claim._store.get(claim._key))


def fences_by_epoch_alone(leaders: Any, position: int, term: Any) -> bool:
    return any(each.epoch > term.epoch for at, each in leaders.terms.items() if at < position)


def bare_checkpoint(checkpoint: Lineage, earlier: Any) -> tuple[Lineage, bool]:
    return checkpoint, True


def uncontinued(checkpoint: Lineage, *rest: Any) -> Lineage:
    return checkpoint


def highest_leader(checkpoint: Lineage, earlier: Any) -> tuple[Lineage, bool]:
    """Continue with the highest `LeaderElected`, even if it has another epoch at the checkpoint's first offset."""
    first = checkpoint.entries[0] if checkpoint.entries else None
    for each in earlier:
        if first is None or not each.entries:
            break
        below = tuple(e for e in each.entries if e.epoch < first.epoch and e.start_offset <= first.start_offset)
        return Lineage(below + checkpoint.entries), True
    return compose(checkpoint, ())


def brokers_start_counts(view: Any, bounds: Any, *rest: Any) -> Any:
    """Take a broker's log start above tierstate's own trims for an operator's order."""
    if view.log_start is not None and bounds.local_start > max(view.log_start, view.trim_intended or 0):
        return AdvanceLogStart(bounds.local_start, "log-start")
    return next_log_start(view, bounds, *rest)


def lineage_condemns(view: Any, *rest: Any) -> Any:
    owned = {piece.segment.segment_id for piece in view.coverage.owned}
    for segment in view.readable:
        if segment.segment_id not in owned and not view.holds:
            return StartDelete(view.segments[segment.segment_id], DeleteReason.LOG_START)
    return next_delete(view, *rest)


def sweeps_what_is_in_progress(view: Any, bounds: Any, *rest: Any) -> Any:
    for segment in view.unsettled:
        if segment.state in (SegmentState.ABANDONED, SegmentState.COPY_SEGMENT_STARTED):
            return StartDelete(segment, DeleteReason.ABANDONED)
    return Why(Reason.RETENTION_KEEPS, "nothing")


def backwards(segment: Any) -> Any:
    return in_erasing_order(segment)[::-1]


def doubt_but_holds(view: Any) -> Why | None:
    return doubt_of(replace(view, holds=()))


def doubt_but_degraded(view: Any) -> Why | None:
    return doubt_of(replace(view, degraded=()))


def highest_remote(view: Any, bounds: Any, copied_before: int) -> int:
    found: int = max((piece.offsets.end for piece in view.coverage.owned), default=bounds.local_start - 1)
    return found


def newest_first(view: Any, local_start: int) -> Any:
    orders = [live for live in view.others if isinstance(live.fact, OperatorOrder)]
    standing = [live for live in orders if live.fact.kind is not OrderKind.DELETE_RECORDS]
    if len(standing) > 1:
        yield standing[-1]


def as_the_index_says(log: Any) -> tuple[AbortedRange, ...]:
    """Take the ranges that end in this segment from the index, and the ones that end behind it from markers."""
    try:
        said = parse_transaction_index(log.files.transaction_index or b"", log.transaction_index_file)
    except CorruptData:
        said = []
    return (*(entry.range for entry in said), *log.files.aborted_later(log._transactions.open))


def taken_at_its_word(asked: Any, found: Any, end: Any, first: Any) -> EpochEnd | None:
    return None if found is None else EpochEnd(found, end)


def highest_said(said: Any, ruling: Lineage) -> Any:
    return max((fact.log_start for fact in said), default=None)


def below_any_log_start(fact: Any, segment: Any) -> bool:
    return bool(segment.offsets.end < fact.log_start)


def as_ordered(order: Any, view: Any) -> int:
    return order.before if order.kind is OrderKind.DELETE_RECORDS else 0


def higher(log_start: Any, other: Any) -> bool:
    return bool(log_start.log_start >= other.log_start)


def without_owner(lineage: Lineage, log_start: int | None) -> Lineage:
    kept = folded(lineage, Offset(log_start) if log_start is not None else None)
    return lineage if kept == lineage else Lineage(kept.entries[1:])


def of_finished_copies(view: Any, segment: Any, bounds: Any) -> str | None:
    finished = any(isinstance(live.fact, SegmentCopyFinished) for live in segment.facts)
    return only_copy(view, segment, bounds) if finished else None


def from_the_beginning(position: int) -> int:
    return position or OFFSET_BEGINNING


def spool_kept(tail: Any, epoch: Any, walked: Any) -> None:
    tail.checkpoint = tail.lineage = walked.lineage
    tail.log_start, tail.epoch = walked.log_start, epoch


def of_any_epoch(*fields: Any, **more: Any) -> Any:
    return replace(FetchSpec(*fields, **more), leader_epoch=None)


def of_any_topic(*fields: Any, **more: Any) -> Any:
    return replace(FetchSpec(*fields, **more), topic_id=None)


def snapshot_of_any_log(spool: Any, offset: Any, epoch: Any) -> Any:
    return spool.folder / f"{offset:020d}-0.snapshot"


def missing_by_any_log(view: Any, lineage: Any, log_start: Any) -> Any:
    return view.coverage.prefix_end(Offset(max(view.log_start or 0, log_start))) + 1


def undecided_is_committed(files: Any, opened: Any) -> Any:
    return tuple(decide(dict(opened), files._later(), str(files.path))) if opened else ()


def nothing_open(log: Any, partition: Any, tail: Any, view: Any, offset: Any) -> Any:
    return OpenBefore(complete=True), offset

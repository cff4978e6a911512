"""All guards by name. Tests remove one guard at a time, and check that a promise breaks without it.

A guard is one named function of production, which ``broken`` replaces. No production file knows of this one. ``seed``:
a history that breaks without the guard, found by search (`python -m tests.histories.prove --guards`). A guard without a
seed has a history in `directed.py`, or a reason in decision 0014 why it is kept. Rules marked * are in
`docs/tier-state.md`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. ``rule``: the rule in the design's words. ``place``: the module and the name that production looks up.

    ``more``: further places that check the same rule right before the operation, with what replaces them. They are
    removed together.
    """

    rule: str
    place: str
    broken: Any
    seed: int | None
    more: tuple[tuple[str, Callable[..., Any]], ...] = ()
    source: str = "disk"
    """Where the agents of the history read logs: ``agent.source``."""


def _nothing(*arguments: object, **named: object) -> None:
    return None


def _empty(*arguments: object) -> tuple[()]:
    return ()


def _no(*arguments: object) -> bool:
    return False


def _yes(*arguments: object) -> bool:
    return True


def _no_wait(*arguments: object, **named: object) -> float:
    return 0.0


def _what_stands(claim: Any) -> bytes:
    return bytes(claim._store.get(claim._key))


def _fences_by_epoch_alone(leaders: Any, position: int, term: Any) -> bool:
    return any(each.epoch > term.epoch for at, each in leaders.terms.items() if at < position)


def _bare_checkpoint(checkpoint: Lineage, earlier: Any) -> tuple[Lineage, bool]:
    return checkpoint, True


def _highest_leader(checkpoint: Lineage, earlier: Any) -> tuple[Lineage, bool]:
    """Continue with the highest `LeaderElected`, even if it has another epoch at the checkpoint's first offset."""
    first = checkpoint.entries[0] if checkpoint.entries else None
    for each in earlier:
        if first is None or not each.entries:
            break
        below = tuple(e for e in each.entries if e.epoch < first.epoch and e.start_offset <= first.start_offset)
        return Lineage(below + checkpoint.entries), True
    return compose(checkpoint, ())


def _brokers_start_counts(view: Any, bounds: Any, *rest: Any) -> Any:
    """Take a broker's log start above tierstate's own trims for an operator's order."""
    if view.log_start is not None and bounds.local_start > max(view.log_start, view.trim_intended or 0):
        return AdvanceLogStart(bounds.local_start, "log-start")
    return next_log_start(view, bounds, *rest)


def _lineage_condemns(view: Any, *rest: Any) -> Any:
    owned = {piece.segment.segment_id for piece in view.coverage.owned}
    for segment in view.readable:
        if segment.segment_id not in owned and not view.holds:
            return StartDelete(view.segments[segment.segment_id], DeleteReason.LOG_START)
    return next_delete(view, *rest)


def _sweeps_what_is_in_progress(view: Any, bounds: Any, *rest: Any) -> Any:
    for segment in view.unsettled:
        if segment.state in (SegmentState.ABANDONED, SegmentState.COPY_SEGMENT_STARTED):
            return StartDelete(segment, DeleteReason.ABANDONED)
    return Why(Reason.RETENTION_KEEPS, "nothing")


def _backwards(segment: Any) -> Any:
    return in_erasing_order(segment)[::-1]


def _doubt_but_holds(view: Any) -> Why | None:
    return doubt_of(replace(view, holds=()))


def _doubt_but_degraded(view: Any) -> Why | None:
    return doubt_of(replace(view, degraded=()))


def _highest_remote(view: Any, bounds: Any, copied_before: int) -> int:
    found: int = max((piece.offsets.end for piece in view.coverage.owned), default=bounds.local_start - 1)
    return found


def _newest_first(view: Any, local_start: int) -> Any:
    orders = [live for live in view.others if isinstance(live.fact, OperatorOrder)]
    standing = [live for live in orders if live.fact.kind is not OrderKind.DELETE_RECORDS]
    if len(standing) > 1:
        yield standing[-1]


def _as_the_index_says(log: Any) -> tuple[AbortedRange, ...]:
    """Take the ranges that end in this segment from the index, and the ones that end behind it from markers."""
    try:
        said = parse_transaction_index(log.files.transaction_index or b"", log.transaction_index_file)
    except CorruptData:
        said = []
    return (*(entry.range for entry in said), *log.files.aborted_later(log._transactions.open))


def _taken_at_its_word(asked: Any, found: Any, end: Any, first: Any) -> EpochEnd | None:
    return None if found is None else EpochEnd(found, end)


def _highest_said(said: Any, ruling: Lineage) -> Any:
    return max((fact.log_start for fact in said), default=None)


def _below_any_log_start(fact: Any, segment: Any) -> bool:
    return bool(segment.offsets.end < fact.log_start)


def _as_ordered(order: Any, view: Any) -> int:
    return order.before if order.kind is OrderKind.DELETE_RECORDS else 0


def _higher(log_start: Any, other: Any) -> bool:
    return bool(log_start.log_start >= other.log_start)


def _without_owner(lineage: Lineage, log_start: int | None) -> Lineage:
    kept = folded(lineage, Offset(log_start) if log_start is not None else None)
    return lineage if kept == lineage else Lineage(kept.entries[1:])


def _of_finished_copies(view: Any, segment: Any, bounds: Any) -> str | None:
    finished = any(isinstance(live.fact, SegmentCopyFinished) for live in segment.facts)
    return only_copy(view, segment, bounds) if finished else None


def _from_the_beginning(position: int) -> int:
    return position or OFFSET_BEGINNING


def _spool_kept(tail: Any, epoch: Any, walked: Any) -> None:
    tail.lineage, tail.log_start, tail.epoch = walked.lineage, walked.log_start, epoch


def _of_any_epoch(*fields: Any, **more: Any) -> Any:
    return replace(FetchSpec(*fields, **more), leader_epoch=None)


def _of_any_topic(*fields: Any, **more: Any) -> Any:
    return replace(FetchSpec(*fields, **more), topic_id=None)


def _snapshot_of_any_log(spool: Any, offset: Any, epoch: Any) -> Any:
    return spool.folder / f"{offset:020d}-0.snapshot"


def _missing_by_any_log(view: Any, lineage: Any, log_start: Any) -> Any:
    return view.coverage.prefix_end(Offset(max(view.log_start or 0, log_start))) + 1


def _undecided_is_committed(files: Any, opened: Any) -> Any:
    return tuple(decide(dict(opened), files._later(), str(files.path))) if opened else ()


def _nothing_open(log: Any, partition: Any, tail: Any, view: Any, offset: Any) -> Any:
    return OpenBefore(complete=True), offset


GUARDS: dict[str, Guard] = {
    "fencing": Guard("a fact at p is fenced by a higher term below p", "state.fencing:Leaders.fences", _no, None),
    "terms by position": Guard("a term is (E, Q)*", "state.fencing:Leaders.fences", _fences_by_epoch_alone, 1345),
    "read own writes": Guard("read your own writes*", "leader.term:TermSession.read_own_write", _nothing, 0),
    "new term on unknown outcome": Guard(
        "an unknown append is never repeated: the partition starts a new term",
        "leader.term:TermSession.outcome_unknown",
        _nothing,
        47,
    ),
    "write-once keys": Guard("every key is written once", "leader.term:TermSession.counter", lambda session: 1, 0),
    "a term at every leader epoch": Guard(
        "a term begins at every change of leader epoch, whether or not there is something to do*",
        "leader.partition_worker:term_due",
        _nothing,
        None,
    ),
    "begun on an empty log": Guard(
        "an epoch that begins where the log began in the newest term goes on with what that term said*",
        "rules.lineages:begun_on_an_empty_log",
        _nothing,
        None,
    ),
    "told by people": Guard(
        "what a person settled of a lineage continues the checkpoint*",
        "rules.lineages:settled_by_people",
        _empty,
        None,
    ),
    "kept by people": Guard(
        "what a person keeps is never condemned, swept, removed*", "state.meaning:kept_segments", _empty, None
    ),
    "epoch on disk": Guard("E counts only when the checkpoint ends in E*", "leader.term:ends_in", _yes, None),
    "logical lineage": Guard(
        "the checkpoint is continued below*",
        "leader.term:compose",
        _bare_checkpoint,
        14,
        (("rules.lineages:compose", _bare_checkpoint),),
    ),
    "matching lineage": Guard(
        "continued by the highest that has the same epoch at that offset*",
        "leader.term:compose",
        _highest_leader,
        0,
        (("rules.lineages:compose", _highest_leader),),
    ),
    "finish needs its start": Guard(
        "a copy-finished is readable with its own copy-started only", "state.lifecycle:_mismatch", _nothing, None
    ),
    "gap-free prefix": Guard(
        "a gap-free prefix of accepted, finished, lineage-valid segments",
        "rules.trim:_durable_end",
        _highest_remote,
        None,
        (("leader.trimmer:still_replaced", _yes),),
    ),
    "leadership before irreversible acts": Guard(
        "leadership is confirmed immediately before*", "leader.term:TermSession.confirm_leadership", _nothing, None
    ),
    "groups asked again": Guard(
        "the offsets of all groups are asked for again after the decision and before DeleteRecords*",
        "leader.trimmer:let_go_now",
        _yes,
        3,
    ),
    "groups asked just now": Guard(
        "with nothing slow between that and DeleteRecords*", "leader.trimmer:in_time", _nothing, 1271
    ),
    "holds": Guard(
        "while a hold lives: no trim, expiry, sweep, erase there*",
        "leader.expirer:doubt_of",
        _doubt_but_holds,
        1,
        tuple(
            (f"{module}:doubt_of", _doubt_but_holds)
            for module in ("rules.trim", "leader.trimmer", "rules.erase", "rules.expire", "rules.sweep")
        ),
    ),
    "later facts": Guard(
        "while a fact stands that this release cannot read and may not ignore: no trim, expiry, sweep, erase there*",
        "leader.expirer:doubt_of",
        _doubt_but_degraded,
        20,
        tuple(
            (f"{module}:doubt_of", _doubt_but_degraded)
            for module in ("rules.trim", "leader.trimmer", "rules.erase", "rules.expire", "rules.sweep")
        ),
    ),
    "broker's log start": Guard(
        "the broker's log start never moves the tier's log start*",
        "rules.decide:next_log_start",
        _brokers_start_counts,
        999,
    ),
    "pause asked again": Guard(
        "no pause landed since the decision*",
        "leader.expirer:paused",
        _nothing,
        0,
        (("leader.trimmer:standing_order", _nothing),),
    ),
    "topic asked again": Guard(
        "the tier-state topic's settings are asked for again after the decision*",
        "leader.term:TermSession.require_safe_topic",
        _nothing,
        0,
    ),
    "lineage never condemns": Guard(
        "lineage never condemns remote data*",
        "rules.decide:next_delete",
        _lineage_condemns,
        None,
        (("leader.expirer:may_go", _yes),),
    ),
    "only copy": Guard(
        "a fenced segment whose copy-finished is live is swept only if its range is covered*",
        "rules.sweep:only_copy",
        _nothing,
        None,
        (("leader.expirer:only_copy", _nothing),),
    ),
    "sweep only ended attempts": Guard(
        "a term may delete-start its own S once its process ended that attempt*",
        "rules.decide:next_sweep",
        _sweeps_what_is_in_progress,
        None,
    ),
    "tombstone order": Guard(
        "copy-finished, copy-started, every delete-started, every delete-finished, in that order",
        "rules.erase:in_erasing_order",
        _backwards,
        15,
    ),
    "fenced facts first": Guard(
        "a lower LeaderElected only when no fenced fact below the term in force is left*",
        "rules.erase:unfences",
        _no,
        548,
    ),
    "lineage kept": Guard(
        "only when the LeaderElected in force contains its lineage or the log start has passed it*",
        "rules.erase:knows",
        _yes,
        None,
    ),
    "older order first": Guard(
        "an older order is erased before the one that supersedes it*",
        "rules.erase:_past_orders",
        _newest_first,
        20,
    ),
    "age of the position": Guard(
        "a view is rebuilt when catch-up would end too long after it stood at the end*",
        "follower.as_of:AsOf.in_time",
        _yes,
        None,
    ),
    "log start in its lineage": Guard(
        "a log start holds as far as the log in force is the log that it names*",
        "state.meaning:highest_log_start",
        _highest_said,
        21,
    ),
    "expired on its own branch": Guard(
        "a segment is expired by a log start of its own lineage only*",
        "rules.expire:is_below",
        _below_any_log_start,
        271,
    ),
    "log starts for every branch": Guard(
        "a log start is erased only when another one holds as far on every lineage*",
        "rules.erase:stands_for",
        _higher,
        None,
    ),
    "copied branches are known": Guard(
        "the term of a lost branch stays as long as segments of it do*",
        "rules.erase:_copied_below_log_start",
        lambda view: set(),
        None,
    ),
    "orders in their lineage": Guard(
        "an order means the records that were there when it was given*", "rules.orders:holds_below", _as_ordered, None
    ),
    "orders of this log alone": Guard(
        "an order holds only on a log that is shown to be the one it was given for*",
        "rules.orders:last_common",
        lambda said, ruling: 0 if said.entries else None,
        7855,
    ),
    "folding keeps the owner": Guard(
        "folding keeps the entry that owns the offset below the log start*", "leader.term:folded", _without_owner, None
    ),
    "topic id": Guard(
        "a topic with another id is another topic", "follower.follower:Follower._check_topic_id", _nothing, None
    ),
    "own objects only": Guard("a fact speaks of its own objects only*", "state.object_keys:is_named_so", _yes, 8),
    "transaction index": Guard(
        "no index is asked for what is aborted, the markers are*",
        "leader.checked_log:CheckedLog.aborted",
        _as_the_index_says,
        13,
    ),
    "confirmed by the leader": Guard(
        "the view counts while its term has the leader's epoch, else as far as the broker confirms it*",
        "state.routing:in_force",
        _yes,
        18,
    ),
    "forgotten epochs": Guard(
        "an answer for an epoch before the first that the log knows proves nothing*",
        "state.lineage:epoch_end",
        _taken_at_its_word,
        18,
    ),
    "head of the topic": Guard(
        "a log start above what a view has consumed, or above 0 for a view from nothing, is a lost head*",
        "broker.tier_reader:check_head",
        _nothing,
        39,
        (("broker.tier_reader:assigned", _from_the_beginning),),
    ),
    "first log start": Guard(
        "a first term says where the log starts only where nothing was ever copied*",
        "leader.term:check_known",
        _nothing,
        5,
    ),
    "recorded deletes": Guard(
        "no object goes whose delete the archive does not have*",
        "rules.expire:is_recorded",
        _yes,
        50,
        (("rules.custody:is_recorded", _yes),),
    ),
    "anchor": Guard(
        "a reader that continues a view, a checkpoint or an archive reads the record that it ended with*",
        "follower.as_of:parted",
        _nothing,
        None,
        (("follower.archive:parted", _nothing), ("follower.archives:parted", _nothing)),
    ),
    "clocks that agree": Guard(
        "the machine's clock decides no age alone, nor any clock while two differ by more than a minute",
        "rules.clocks:Clocks.for_deletion",
        property(lambda clocks: clocks.machine.now),
        71,
        (("rules.clocks:differ", _nothing),),
    ),
    "a proof before each change": Guard(
        "the bucket is changed only with a proof that no other cluster writes there, which is asked for right before*",
        "follower.prefix_claim:PrefixClaim.require",
        _nothing,
        None,
    ),
    "strange signatures": Guard(
        "a heartbeat whose record is not in this topic was written by another cluster*",
        "follower.prefix_claim:is_signed_here",
        _yes,
        None,
    ),
    "answers": Guard(
        "a process that starts waits until each living one has signed again, in its own cluster's topic*",
        "rules.prefix:_is_in_doubt",
        _no,
        None,
    ),
    "trial": Guard(
        "a process that takes over after a silence, or at another place, deletes nothing*",
        "follower.prefix_claim:trial_of",
        _no_wait,
        None,
    ),
    "own heartbeat": Guard(
        "a process whose own heartbeat is not what it wrote last begins as new, and looks again for what is missing",
        "follower.prefix_claim:PrefixClaim._attempt_that_landed",
        _what_stands,
        None,
    ),
    "writers have stopped": Guard(
        "the last pass of a move begins when every process that could change the source has stopped",
        "app.operating.migration:wait_for_writers",
        _nothing,
        None,
    ),
    "a look before each change": Guard(
        "a process changes the bucket only with a recent look for a move, after a heartbeat",
        "follower.movable_claim:MovableClaim._no_look",
        _nothing,
        None,
    ),
    "a look after a slow write": Guard(
        "a write without a heartbeat that took longer than a move waits for it looks for a move again",
        "follower.followed_store:FollowedStore._is_late",
        _no,
        None,
    ),
    "bytes, not sizes": Guard(
        "the last copy on the broker goes only when the objects hold what was sent*",
        "leader.object_proof:ObjectProof._require_contents",
        _nothing,
        48,
    ),
    "leases": Guard("objects only when no live lease covers them", "rules.expire:lease_on", _nothing, None),
    "leases that go on": Guard(
        "a lease that its holder took to read on counts since the first one, which is not erased before it is over",
        "rules.leases:_goes_on",
        _no,
        None,
    ),
    "lost facts": Guard(
        "a whole segment that no fact finished and whose offsets are in no tier stays until a recovery*",
        "leader.lost_facts:LostFactsWatch.why",
        _nothing,
        None,
        (("rules.sweep:only_copy", _of_finished_copies), ("leader.expirer:only_copy", _of_finished_copies)),
    ),
    "a spool for each epoch": Guard(
        "what was fetched in one leader epoch is not copied in another",
        "tail.fetch_log:_begin_epoch",
        _spool_kept,
        None,
        source="fetch",
    ),
    "fetched in one epoch": Guard(
        "each Fetch names the leader epoch whose lineage was asked for",
        "tail.fetch_log:FetchSpec",
        _of_any_epoch,
        None,
        source="fetch",
    ),
    "fetched by topic id": Guard(
        "each Fetch names the topic id",
        "tail.fetch_log:FetchSpec",
        _of_any_topic,
        None,
        source="fetch",
    ),
    "confirmed by the spool": Guard(
        "a segment is finished only while the spool still holds it, and the leader answers for its epoch",
        "tail.spool:SpooledSegment.confirm",
        _nothing,
        None,
        source="fetch",
    ),
    "owned before a term": Guard(
        "a term begins only while the group confirmed a moment ago that the partition is owned",
        "tail.fetch_log:FetchLog.require_owned",
        _nothing,
        None,
        source="fetch",
    ),
    "snapshots name their log": Guard(
        "a snapshot of open transactions is of the log that has its epoch before its offset",
        "tail.spool:Spool._snapshot",
        _snapshot_of_any_log,
        None,
        source="fetch",
    ),
    "copied of this log": Guard(
        "a copied offset counts as far as the leader's log is the log that was copied",
        "tail.fetch_log:first_missing",
        _missing_by_any_log,
        None,
        source="fetch",
    ),
    "open where the spool begins": Guard(
        "a spool begins with the transactions that are open there",
        "tail.fetch_log:FetchLog._open_before",
        _nothing_open,
        None,
        source="fetch",
    ),
    "ends behind the segment": Guard(
        "a transaction that ends behind its segment is looked for in the spool, and at the leader",
        "tail.spool:SpooledSegment.aborted_later",
        _empty,
        1,
        source="fetch",
    ),
    "an end for each transaction": Guard(
        "no segment is copied before the end of each of its transactions is found",
        "tail.spool:SpooledSegment.aborted_later",
        _undecided_is_committed,
        354,
        source="fetch",
    ),
}


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """Run the body without this guard; None: with all guards."""
    if name is None:
        yield
        return
    guard = GUARDS[name]
    with ExitStack() as kept:
        for place, broken in ((guard.place, guard.broken), *guard.more):
            kept.enter_context(_replaced(place, broken))
        yield


@contextmanager
def _replaced(place: str, broken: Callable[..., Any]) -> Iterator[None]:
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(f"tierstate.{module}")
    *parents, last = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    kept = owner.__dict__[last]
    setattr(owner, last, broken)
    try:
        yield
    finally:
        setattr(owner, last, kept)

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
from typing import Any

from tests.histories import weakened
from tests.histories.fetch_guards import FETCH_GUARDS
from tests.histories.guard import Guard

GUARDS: dict[str, Guard] = {
    "fencing": Guard(
        "a fact at p is fenced by a higher term below p", "state.fencing:Leaders.fences", weakened.no, None
    ),
    "terms by position": Guard(
        "a term is (E, Q)*", "state.fencing:Leaders.fences", weakened.fences_by_epoch_alone, 1345
    ),
    "read own writes": Guard("read your own writes*", "leader.term:TermSession.read_own_write", weakened.nothing, 0),
    "new term on unknown outcome": Guard(
        "an unknown append is never repeated: the partition starts a new term",
        "leader.term:TermSession.outcome_unknown",
        weakened.nothing,
        47,
    ),
    "write-once keys": Guard("every key is written once", "leader.term:TermSession.counter", lambda session: 1, 0),
    "a term at every leader epoch": Guard(
        "a term begins at every change of leader epoch, whether or not there is something to do*",
        "leader.partition_worker:term_due",
        weakened.nothing,
        None,
    ),
    "begun on an empty log": Guard(
        "an epoch that begins where the log began in the newest term goes on with what that term said*",
        "rules.lineages:begun_on_an_empty_log",
        weakened.nothing,
        None,
    ),
    "told by people": Guard(
        "what a person settled of a lineage continues the checkpoint*",
        "rules.lineages:settled_by_people",
        weakened.empty,
        None,
    ),
    "kept by people": Guard(
        "what a person keeps is never condemned, swept, removed*", "state.meaning:kept_segments", weakened.empty, None
    ),
    "epoch on disk": Guard("E counts only when the checkpoint ends in E*", "leader.term:ends_in", weakened.yes, None),
    "logical lineage": Guard(
        "the checkpoint is continued below*",
        "rules.lineages:compose",
        weakened.bare_checkpoint,
        14,
        (("leader.term:compose", weakened.bare_checkpoint),),
    ),
    "matching lineage": Guard(
        "continued by the highest that has the same epoch at that offset*",
        "rules.lineages:compose",
        weakened.highest_leader,
        0,
        (("leader.term:compose", weakened.highest_leader),),
    ),
    "finish needs its start": Guard(
        "a copy-finished is readable with its own copy-started only",
        "state.lifecycle:_mismatch",
        weakened.nothing,
        None,
    ),
    "gap-free prefix": Guard(
        "a gap-free prefix of accepted, finished, lineage-valid segments",
        "rules.trim:_durable_end",
        weakened.highest_remote,
        None,
        (("leader.trimmer:still_replaced", weakened.yes),),
    ),
    "leadership before irreversible acts": Guard(
        "leadership is confirmed immediately before*",
        "leader.term:TermSession.confirm_leadership",
        weakened.nothing,
        None,
    ),
    "groups asked again": Guard(
        "the offsets of all groups are asked for again after the decision and before DeleteRecords*",
        "leader.trimmer:let_go_now",
        weakened.yes,
        3,
    ),
    "groups asked just now": Guard(
        "with nothing slow between that and DeleteRecords*", "leader.trimmer:in_time", weakened.nothing, 1271
    ),
    "holds": Guard(
        "while a hold lives: no trim, expiry, sweep, erase there*",
        "leader.expirer:doubt_of",
        weakened.doubt_but_holds,
        1,
        tuple(
            (f"{module}:doubt_of", weakened.doubt_but_holds)
            for module in ("rules.trim", "leader.trimmer", "rules.erase", "rules.expire", "rules.sweep")
        ),
    ),
    "later facts": Guard(
        "while a fact stands that this release cannot read and may not ignore: no trim, expiry, sweep, erase there*",
        "leader.expirer:doubt_of",
        weakened.doubt_but_degraded,
        20,
        tuple(
            (f"{module}:doubt_of", weakened.doubt_but_degraded)
            for module in ("rules.trim", "leader.trimmer", "rules.erase", "rules.expire", "rules.sweep")
        ),
    ),
    "broker's log start": Guard(
        "the broker's log start never moves the tier's log start*",
        "rules.decide:next_log_start",
        weakened.brokers_start_counts,
        999,
    ),
    "pause asked again": Guard(
        "no pause landed since the decision*",
        "leader.expirer:paused",
        weakened.nothing,
        0,
        (("leader.trimmer:standing_order", weakened.nothing),),
    ),
    "topic asked again": Guard(
        "the tier-state topic's settings are asked for again after the decision*",
        "leader.term:TermSession.require_safe_topic",
        weakened.nothing,
        0,
    ),
    "lineage never condemns": Guard(
        "lineage never condemns remote data*",
        "rules.decide:next_delete",
        weakened.lineage_condemns,
        None,
        (("leader.expirer:may_go", weakened.yes),),
    ),
    "only copy": Guard(
        "a fenced segment whose copy-finished is live is swept only if its range is covered*",
        "rules.sweep:only_copy",
        weakened.nothing,
        None,
        (("leader.expirer:only_copy", weakened.nothing),),
    ),
    "sweep only ended attempts": Guard(
        "a term may delete-start its own S once its process ended that attempt*",
        "rules.decide:next_sweep",
        weakened.sweeps_what_is_in_progress,
        None,
    ),
    "tombstone order": Guard(
        "copy-finished, copy-started, every delete-started, every delete-finished, in that order",
        "rules.erase:in_erasing_order",
        weakened.backwards,
        15,
    ),
    "fenced facts first": Guard(
        "a lower LeaderElected only when no fenced fact below the term in force is left*",
        "rules.erase:unfences",
        weakened.no,
        548,
    ),
    "lineage kept": Guard(
        "only when the LeaderElected in force contains its lineage or the log start has passed it*",
        "rules.erase:knows",
        weakened.yes,
        None,
    ),
    "older order first": Guard(
        "an older order is erased before the one that supersedes it*",
        "rules.erase:_past_orders",
        weakened.newest_first,
        20,
    ),
    "age of the position": Guard(
        "a view is rebuilt when catch-up would end too long after it stood at the end*",
        "follower.as_of:AsOf.in_time",
        weakened.yes,
        None,
    ),
    "log start in its lineage": Guard(
        "a log start holds as far as the log in force is the log that it names*",
        "state.meaning:highest_log_start",
        weakened.highest_said,
        21,
    ),
    "expired on its own branch": Guard(
        "a segment is expired by a log start of its own lineage only*",
        "rules.expire:is_below",
        weakened.below_any_log_start,
        271,
    ),
    "log starts for every branch": Guard(
        "a log start is erased only when another one holds as far on every lineage*",
        "rules.erase:stands_for",
        weakened.higher,
        None,
    ),
    "copied branches are known": Guard(
        "the term of a lost branch stays as long as segments of it do*",
        "rules.erase:_copied_below_log_start",
        lambda view: set(),
        None,
    ),
    "orders in their lineage": Guard(
        "an order means the records that were there when it was given*",
        "rules.orders:holds_below",
        weakened.as_ordered,
        None,
    ),
    "orders of this log alone": Guard(
        "an order holds only on a log that is shown to be the one it was given for*",
        "rules.orders:last_common",
        lambda said, ruling: 0 if said.entries else None,
        7855,
    ),
    "folding keeps the owner": Guard(
        "folding keeps the entry that owns the offset below the log start*",
        "leader.term:folded",
        weakened.without_owner,
        None,
    ),
    "topic id": Guard(
        "a topic with another id is another topic", "follower.follower:Follower._check_topic_id", weakened.nothing, None
    ),
    "own objects only": Guard(
        "a fact speaks of its own objects only*", "state.object_keys:is_named_so", weakened.yes, 8
    ),
    "transaction index": Guard(
        "no index is asked for what is aborted, the markers are*",
        "leader.checked_log:CheckedLog.aborted",
        weakened.as_the_index_says,
        13,
    ),
    "confirmed by the leader": Guard(
        "the view counts while its term has the leader's epoch, else as far as the broker confirms it*",
        "state.routing:in_force",
        weakened.yes,
        18,
    ),
    "forgotten epochs": Guard(
        "an answer for an epoch before the first that the log knows proves nothing*",
        "state.lineage:epoch_end",
        weakened.taken_at_its_word,
        18,
    ),
    "head of the topic": Guard(
        "a log start above what a view has consumed, or above 0 for a view from nothing, is a lost head*",
        "broker.tier_reader:check_head",
        weakened.nothing,
        39,
        (("broker.tier_reader:assigned", weakened.from_the_beginning),),
    ),
    "first log start": Guard(
        "a first term says where the log starts only where nothing was ever copied*",
        "leader.term:check_known",
        weakened.nothing,
        5,
    ),
    "recorded deletes": Guard(
        "no object goes whose delete the archive does not have*",
        "rules.expire:is_recorded",
        weakened.yes,
        50,
        (("rules.custody:is_recorded", weakened.yes),),
    ),
    "anchor": Guard(
        "a reader that continues a view, a checkpoint or an archive reads the record that it ended with*",
        "follower.as_of:parted",
        weakened.nothing,
        None,
        (("follower.archive:parted", weakened.nothing), ("follower.archives:parted", weakened.nothing)),
    ),
    "clocks that agree": Guard(
        "the machine's clock decides no age alone, nor any clock while two differ by more than a minute",
        "rules.clocks:Clocks.for_deletion",
        property(lambda clocks: clocks.machine.now),
        71,
        (("rules.clocks:differ", weakened.nothing),),
    ),
    "a proof before each change": Guard(
        "the bucket is changed only with a proof that no other cluster writes there, which is asked for right before*",
        "follower.prefix_claim:PrefixClaim.require",
        weakened.nothing,
        None,
    ),
    "strange signatures": Guard(
        "a heartbeat whose record is not in this topic was written by another cluster*",
        "follower.prefix_claim:is_signed_here",
        weakened.yes,
        None,
    ),
    "answers": Guard(
        "a process that starts waits until each living one has signed again, in its own cluster's topic*",
        "rules.prefix:_is_in_doubt",
        weakened.no,
        None,
    ),
    "trial": Guard(
        "a process that takes over after a silence, or at another place, deletes nothing*",
        "follower.prefix_claim:trial_of",
        weakened.no_wait,
        None,
    ),
    "own heartbeat": Guard(
        "a process whose own heartbeat is not what it wrote last begins as new, and looks again for what is missing",
        "follower.prefix_claim:PrefixClaim._attempt_that_landed",
        weakened.what_stands,
        None,
    ),
    "writers have stopped": Guard(
        "the last pass of a move begins when every process that could change the source has stopped",
        "app.operating.migration:wait_for_writers",
        weakened.nothing,
        None,
    ),
    "a look before each change": Guard(
        "a process changes the bucket only with a recent look for a move, after a heartbeat",
        "follower.movable_claim:MovableClaim._no_look",
        weakened.nothing,
        None,
    ),
    "a look after a slow write": Guard(
        "a write without a heartbeat that took longer than a move waits for it looks for a move again",
        "follower.followed_store:FollowedStore._is_late",
        weakened.no,
        None,
    ),
    "bytes, not sizes": Guard(
        "the last copy on the broker goes only when the objects hold what was sent*",
        "leader.object_proof:ObjectProof._require_contents",
        weakened.nothing,
        48,
    ),
    "leases": Guard("objects only when no live lease covers them", "rules.expire:lease_on", weakened.nothing, None),
    "leases that go on": Guard(
        "a lease that its holder took to read on counts since the first one, which is not erased before it is over",
        "rules.leases:_goes_on",
        weakened.no,
        None,
    ),
    "lost facts": Guard(
        "a whole segment that no fact finished and whose offsets are in no tier stays until a recovery*",
        "leader.lost_facts:LostFactsWatch.why",
        weakened.nothing,
        None,
        (
            ("rules.sweep:only_copy", weakened.of_finished_copies),
            ("leader.expirer:only_copy", weakened.of_finished_copies),
        ),
    ),
    **FETCH_GUARDS,
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

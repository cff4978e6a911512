"""The promises that must hold after every step of a history, checked against ledgers that no agent can change.

erasing      the live set means the same as all facts that ever landed
followers    every ready follower at a captured end holds the same live set
objects      a readable segment has its three objects; an object that no live fact names belongs to a deleted segment
records      every record of the branch in force that is neither expired nor ordered away on that branch is on the
             leader, or in a readable segment with its true bytes; while the leader's own term is in force, routing
             finds exactly that version
lineage      the lineage is known, except after an epoch that left no trace, until a person settles its past
settled      a contradiction that a person settled makes no hold, and an object that is to be kept is never deleted
aborted      read_committed of a readable segment hides all records of aborted transactions, and no other record
readers      at any time and with any view, readers get the leader's own record or a named error (`readers.py`)
log start    the log start is never above a record that must be readable
gaps         readers skip records that no tier has and whose loss a person accepted, and no other records
own objects  other partitions' objects that forged facts name are never deleted, and are readable in no view
groups       no trim takes records that a counted consumer group has not read, even if it moved after a listing
later facts  a fact of a later release is never erased; agents that saw one they may not ignore write and delete nothing
lost heads   once the head of the topic is lost, only agents with a complete view write or delete
lost topics  once the topic is re-created empty and the bucket has segments, no agent writes or deletes anything
lost tails   until a recovery adds the facts of a cut tail, no object with the only copy of a record is deleted
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.histories.forger import EVIL, THEIRS
from tests.histories.readers import Readers
from tests.histories.record_promises import RecordPromises
from tierstate.follower.follower import Follower
from tierstate.rules.decide import paused, standing_order
from tierstate.schemas.codec import decode_fact
from tierstate.state.apply import PartitionState
from tierstate.state.epochs import Lineage
from tierstate.state.errors import TierstateError, TierStateLost, Unavailable
from tierstate.state.facts import (
    ContradictionSettled,
    DeleteReason,
    IntegrityHold,
    LeaderElected,
    LiveFact,
    LogStartAdvanced,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    SegmentDeleteStarted,
)
from tierstate.state.lifecycle import contradicted_segment
from tierstate.state.lineage import highest_log_start
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.objects import ObjectInfo
from tierstate.state.segment import SegmentState, Term
from tierstate.state.view import Entry, is_second_value

if TYPE_CHECKING:
    from tests.histories.world import World

GONE = SegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Pinned:
    """A lease. ``since``: the position of the first lease of this holder that it continues."""

    key: str
    lease: ReaderLease
    since: int


class Promises:
    """`landed` receives every record of the tier-state topic. Broken promises raise AssertionError."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lost = False
        self.replaying = False
        """The records of a cut topic are replayed, or a person restores facts: agents decide nothing then."""
        self.live = PartitionState(world.cluster.partition)
        self.history = PartitionState(world.cluster.partition)
        self.evil = PartitionState(EVIL)
        self.records = RecordPromises(world)
        self._written: dict[str, bytes] = {}
        self._elected: set[Lineage] = set()
        """The lineages of all terms. Each branch may become the log again: erasing must not change its log start."""
        self._leases: list[Pinned] = []
        self._readers = Readers(world, self.records.stored)
        self._kept: set[str] = set()
        """Keys of objects that a person decided never to delete."""
        self._unnamed: set[str] = set()
        """Base keys of objects whose facts may have been lost."""
        self._ended = False
        """A PartitionDeleted landed: all facts of the partition are erased then, also those of a later release."""
        self._first: dict[str, int] = {}
        """Key to the position at which it landed first. A second landing changes no lease's rights."""

    @property
    def is_lost(self) -> bool:
        return self._lost

    def lose(self) -> None:
        """Follow the loss of the topic, which is empty now. Promises about its facts are no longer checked."""
        self._lost = True
        self.live = PartitionState(self._world.cluster.partition)

    def lose_tail(self, unnamed: set[str]) -> None:
        """Rebuild the ledgers from the remaining topic. ``unnamed``: base keys of all existing objects."""
        partition = self._world.cluster.partition
        self.live, self.history, self._unnamed = PartitionState(partition), PartitionState(partition), unnamed
        leases, self._leases, self._kept, self._first, self._written = self._leases, [], set(), {}, {}
        self.replaying = True
        for entry in self._world.topic.log:
            self.landed(entry)
        self._leases = [each for each in leases if each.key in self._first]
        self.replaying = False

    def writing(self, who: int, key: str) -> None:
        """Check a process right before it appends a record with this key, or deletes the object of this key."""
        if key.startswith(self._world.topic.not_ours):
            return  # no promise holds for forged facts
        assert not self._lost, f"{who} acts on {key}, though no fact is left of what is in the bucket"
        if who >= len(self._world.processes):
            return  # a recovery: it reads its own view
        stopped = self._world.processes[who].stopped_by  # the upgrade may come during an operation
        assert not stopped or not self.live.view().later, f"{who} acts on {key}, though its view has {stopped[0]}"
        if self._world.topic.start:
            follower = self._world.processes[who].follower
            held, expected = _held(follower), self._world.topic.live_at(follower.store.position(0))
            assert held == expected, f"{who} acts on {key} by half a view: {_difference(held, expected)}"

    def landed(self, entry: Entry) -> None:
        if self._lost:
            return
        if entry.key.startswith(self._world.topic.not_ours):
            if entry.value is None:
                self.evil.erase(entry.key)
            else:
                self.evil.insert(LiveFact(entry.key, entry.position, decode_fact(entry.key, entry.value)))
            return
        unasked = self._world.topic.landing_late or self.replaying
        if not unasked and "/hold/" not in entry.key and (stops := self._what_stops()):
            assert not self._destroys(entry), f"{entry.key} landed while {stops}"
        if entry.value is None:
            self.live.erase(entry.key)
            if not self.replaying:
                self._world.seen["erased"] += 1
                self._erasing_changed_nothing()
            return
        live = LiveFact(entry.key, entry.position, decode_fact(entry.key, entry.value))
        self._first.setdefault(entry.key, entry.position)
        written = self._written.setdefault(entry.key, entry.value)
        assert written == entry.value or not is_second_value(live.fact), (
            f"{entry.key} was written twice, with two values"
        )
        if isinstance(live.fact, ReaderLease):
            self._leases.append(Pinned(live.key, live.fact, self._read_since(live.fact, live.position)))
        if isinstance(live.fact, IntegrityHold):
            assert live.fact.reason == "seen", f"an agent holds the partition: {live.fact.reason}"
        if isinstance(live.fact, ContradictionSettled) and live.fact.keep:
            self._keep(live.fact.contradiction)
        self._ended |= isinstance(live.fact, PartitionDeleted)
        if isinstance(live.fact, PartitionDeleted | PartitionMissing):
            lies = self._world.cluster.forgetful is not None
            assert not self._world.cluster.exists or (lies and isinstance(live.fact, PartitionMissing)), entry.key
        if isinstance(live.fact, LeaderElected):
            self._elected.add(live.fact.lineage)
        self.live.insert(live)
        self.history.insert(live)

    def _destroys(self, entry: Entry) -> bool:
        """Return whether no agent may decide this under a hold. A failed attempt may still delete its own objects."""
        if entry.value is None:  # an agent gets the broker's time by a tombstone for a key that never existed
            return any(live.key == entry.key for live in self.live.facts())
        match decode_fact(entry.key, entry.value):
            case LogStartAdvanced(reason=reason):
                return reason != "first term"
            case SegmentDeleteStarted(reason=reason):
                return reason is not DeleteReason.FAILED_ATTEMPT
            case _:
                return False

    def _what_stops(self) -> str | None:
        """Return why nothing irreversible is allowed now, or None. A pause is ignored once the topic is deleted."""
        view, drift = self.live.view(), self._world.topic.drift
        if view.holds:
            return "a hold stands"
        if view.later:
            return "a fact of a later release stands"
        if drift is not None:
            return f"the tier-state topic has drifted: {drift}"
        return "a pause stands" if paused(view) is not None and self._world.cluster.exists else None

    def deleting(self, key: str) -> None:
        """Check an object that is about to be deleted.

        It is not another partition's, nor of a finished copy while `_what_stops` has a reason.
        """
        assert key not in THEIRS, f"{key} of another partition is deleted"
        self.writing(self._world.acting, key)
        base = key.rsplit(".", 1)[0]
        self._is_recorded(key, base)
        stops = self._what_stops()
        if stops is not None:
            finished = [s for s in self.history.view().segments.values() if s.remote and s.remote.object_key == base]
            assert not finished, f"{key} is deleted while {stops}"

    def _is_recorded(self, key: str, base: str) -> None:
        archived = self._world.archived
        if archived is None:
            return
        for each in self.history.view().segments.values():
            if each.remote is not None and each.remote.object_key == base:
                recorded = any(_condemns(live) and live.position < archived for live in each.facts)
                assert recorded, f"{key} is deleted, and the archive does not have that it was to go"

    def trimming(self, before: int) -> None:
        """Check a DeleteRecords that was sent to the leader. A person's order does not wait for groups."""
        stops = self._what_stops()
        assert stops is None, f"the broker's log is cut below {before} while {stops}"
        if self._world.cluster.is_ordered(before):
            return
        rotten = self._world.bit_rot.replacing(before)
        assert not rotten, f"the broker's log is cut below {before}, and bits are flipped in {rotten}"
        needing = [f"{each.name} at {each.committed}" for each in self._world.groups.needing(before)]
        assert not needing, f"the broker's log is cut below {before}, and {', '.join(needing)} still reads there"

    def check(self) -> None:
        if self._lost:
            return
        self._world.cut_tail.look_again()
        if self._world.cut_tail.waiting:
            self._world.cut_tail.check()
            return
        self._erasing_changed_nothing()
        later = self._world.later_release.key
        assert later is None or self._ended or later in self._world.topic.live_at(len(self._world.topic.log)), (
            f"{later} was erased"
        )
        self._objects_are_there()
        self._others_are_untouched()
        self.records.are_readable()
        self.records.hide_what_was_aborted()
        if self._world.cluster.exists:
            self._readers.ask(self.live.view())

    # Erasing.

    def _erasing_changed_nothing(self) -> None:
        live, history = self.live.view(), self.history.view()
        for segment_id, meant in history.segments.items():
            if meant.state is GONE:
                continue
            now = live.segments.get(segment_id)
            assert now is not None, f"erasing lost {segment_id}, which is {meant.state}"
            assert now.state is meant.state, f"erasing turned {segment_id} from {meant.state} into {now.state}"
        ghosts = [
            meant.segment_id
            for meant in live.readable
            if history.segments[meant.segment_id].state is not SegmentState.COPY_SEGMENT_FINISHED
        ]
        assert not ghosts, f"ghosts: {ghosts}"
        assert live.term == history.term
        if history.deleted is not None:
            return  # all other facts of an ended partition are erased
        replicas = (Lineage.of(*broker.epochs) for broker in self._world.cluster.brokers)
        for ruling in {live.lineage, *self._elected, *replicas} if live.log_starts != history.log_starts else ():
            left, said = (highest_log_start(view.log_starts, ruling) for view in (live, history))
            assert left == said, f"log start {left} on {ruling.entries}, all facts say {said}"
        assert live.lineage == history.lineage
        if not self._world.lands_twice and not self._world.forger.forged:
            assert not live.contradictions, f"a legal history contradicts itself: {live.contradictions}"
        assert standing_order(live) == standing_order(history), "an order came back, or was forgotten"

    # Followers.

    def captured(self, follower: Follower) -> None:
        world, end = self._world, len(self._world.topic.log)
        try:
            follower.require_fresh(0, 0)
        except (Unavailable, TierStateLost):
            return
        at = follower.store.position(0)
        held = _held(follower)
        expected = world.topic.live_at(at)
        assert at >= end, f"fresh at {at}, but the end was {end}"
        assert held == expected, f"a follower at {at}: {_difference(held, expected)}"
        world.seen["captured end"] += 1

    # Objects.

    def _objects_are_there(self) -> None:
        view = self.live.view()
        there = {info.key for info in listed(self._world)}
        for segment in view.readable:
            for kind in ObjectKind:
                key = object_key(segment.object_key, kind)
                assert key in there, f"readable {segment.segment_id}, but {key} is gone"
        by_term: dict[Term, int] = {}
        for segment in view.readable:
            assert self._unnamed or segment.offsets.start > by_term.get(segment.term, -1), (
                f"{segment.offsets} was copied twice by one term"
            )
            by_term[segment.term] = segment.offsets.end
        named = {found.subject.object_key for found in view.segments.values() if found.subject}
        ever = {found.subject.object_key: found for found in self.history.view().segments.values() if found.subject}
        self._leases_are_kept(there)
        assert self._kept <= there, f"{sorted(self._kept - there)} were to be kept"
        for key in there - THEIRS:
            base = key.rsplit(".", 1)[0]
            if base not in named and (base in ever or base not in self._unnamed):
                assert ever[base].state is GONE, f"{key} is named by no live fact, and nobody deleted it"

    def _others_are_untouched(self) -> None:
        for view in (self.live.view(), self.evil.view()):
            for segment in view.readable:
                log = object_key(segment.object_key, ObjectKind.LOG)
                assert log not in THEIRS, f"{log} of another partition is served as {view.topic}"

    def _keep(self, contradiction: str) -> None:
        segment_id = contradicted_segment(contradiction)
        meant = self.live.view().segments.get(segment_id) if segment_id else None
        if meant is not None and meant.subject is not None:
            base = meant.subject.object_key
            self._kept |= {info.key for info in listed(self._world) if info.key.rsplit(".", 1)[0] == base}

    def _read_since(self, lease: ReaderLease, position: int) -> int:
        """Return the position since which the lease's holder has pinned all its offsets without a break."""
        now, live = self._world.clock.now_ms(), {each.key for each in self.live.view().others}
        before = [
            each.since
            for each in self._leases
            if each.lease.holder == lease.holder
            and each.lease.offsets == lease.offsets
            and each.lease.expires_at >= now
            and each.key in live
        ]
        return min(before, default=position)

    def _leases_are_kept(self, there: set[str]) -> None:
        """Check the objects that a reader pinned before their delete-started, until the lease ends or is overridden.

        A lease that continues an unexpired lease pins since that one.
        """
        now, history = self._world.clock.now_ms(), self.history.view()
        self._leases = [each for each in self._leases if each.lease.expires_at >= now]
        for each in self._leases:
            offsets = each.lease.offsets
            for meant in history.segments.values():
                whole, deleting = meant.remote, meant.deleting
                if whole is None or deleting is None or self._first[deleting.key] < each.since:
                    continue
                forced = any(o.force and (o.before or 0) > whole.offsets.end for o in history.orders)
                if offsets.overlap(whole.offsets) and not forced:
                    key = object_key(whole.object_key, ObjectKind.LOG)
                    assert key in there, f"{key} is gone, but {each.key} pins it"


def _held(follower: Follower) -> dict[str, tuple[int, bytes | None]]:
    return {entry.key: (entry.position, entry.value) for _, entry in follower.store.entries(0)}


def listed(world: World) -> list[ObjectInfo]:
    """Return all objects in the store; repeats the request until the store answers."""
    while True:
        try:
            return list(world.store.list())
        except TierstateError:
            continue


def _difference(held: Mapping[str, tuple[int, bytes | None]], expected: Mapping[str, tuple[int, bytes]]) -> str:
    keys = sorted(key for key in held.keys() | expected.keys() if held.get(key) != expected.get(key))
    return ", ".join(f"{key}: {_at(held.get(key))} instead of {_at(expected.get(key))}" for key in keys)


def _at(found: tuple[int, bytes | None] | None) -> str:
    return "nothing" if found is None else f"position {found[0]}"


def _condemns(live: LiveFact) -> bool:
    return isinstance(live.fact, SegmentDeleteStarted)

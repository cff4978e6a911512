"""A process's proof that no other cluster writes below its bucket prefix (`rules/prefix.py` has the rules).

    write own heartbeat -> list all heartbeats -> read those that are new -> judge

This order matters: if two processes start at the same time, at least one of them sees the other's heartbeat.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

from ..broker.tier_topic import TierTopic
from ..rules.observed import PROVEN, PrefixProof
from ..rules.prefix import (
    FIRST_TRIAL_S,
    PROOF_PERIODS,
    Alone,
    Before,
    Contested,
    NotYet,
    Peer,
    Verdict,
    is_dead,
    judge,
    trial_of,
)
from ..rules.reasons import Reason, Why, lasting
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.watchdog import go_round
from ..state.errors import ObjectExists, ObjectNotFound, PrefixContested, TierstateError, Unavailable
from ..state.ids import COPIER, FactId
from ..state.objects import ObjectInfo
from ..state.view import Anchor
from ..storage.object_store import ObjectStore
from .heartbeat import (
    NO_PROOF_YET,
    WAY_OUT,
    Claimant,
    Heartbeat,
    Keeper,
    OtherTopics,
    SeenHeartbeat,
    chosen_of,
    is_empty,
    is_signed_here,
    no_other_topics,
    read_heartbeat,
    read_keeper,
    sign,
)
from .object_names import agents_prefix, heartbeat_key, is_heartbeat, kept_number

SIGN_AGAIN_S = 3600.0
"""Seconds between two signatures. A copy of the cluster that is older than this lacks the newest signature."""
FORGET_S = 24 * 3600.0
"""Seconds of silence after which the heartbeat of an ended process is deleted."""
LOOKS = 10
"""Number of beats per period while this process waits for answers."""
NOT_LOOKED = NotYet("the heartbeats in the bucket have not been read yet")


class PrefixClaim:
    """The claim of one process on its prefix. One thread calls `run`; any thread may call the other methods."""

    def __init__(
        self,
        topic: TierTopic,
        store: ObjectStore,
        claimant: Claimant,
        clock: Clock,
        ids: IdSource,
        others: OtherTopics = no_other_topics,
    ) -> None:
        self._is_here = partial(is_signed_here, topic, others)
        self._topic, self._store, self._claimant, self._clock, self._ids = topic, store, claimant, clock, ids
        self._prefix = agents_prefix(claimant.cluster_id)
        self._beating = threading.Lock()
        self._keepers: list[Keeper] = []
        self._kept = 0
        self._verdict: Verdict
        self._trouble: str | None = None
        self._over = False
        self.heartbeats_lost = 0
        """The number of times that the bucket lacked the heartbeat that this process wrote last."""
        self._begin()

    def _begin(self) -> None:
        """Start over with a new process id, as a process that no other process has seen."""
        self._verdict = NOT_LOOKED
        self._process = FactId.of(self._ids.uuid())
        self._written, self._attempts = b"", list[bytes]()
        self._signature: Anchor | None = None
        self._answers = frozenset[str]()
        self._signed_s = self._proven_s = float("-inf")
        self._first_written_s: float | None = None
        self._first_proof_s: float | None = None
        self._trial_s, self._chosen, self._began_empty = self._claimant.trial_s, False, False
        self._others: dict[str, SeenHeartbeat] = {}

    @property
    def contested(self) -> str | None:
        """The reason why a person must decide, or None."""
        verdict = self._verdict
        return f"{verdict.why}; {WAY_OUT}" if isinstance(verdict, Contested) else None

    @property
    def proof(self) -> PrefixProof:
        """The reasons not to copy, trim or delete now. New segments have random names, so copies need no answers."""
        if self.contested is not None:
            contested = Why(Reason.PREFIX_CONTESTED, self.contested)
            alive = isinstance(self._verdict, Contested) and self._verdict.alive
            return PrefixProof(contested if alive else None, contested, contested)
        if (why := self._unproven()) is not None:
            unproven = Why(Reason.PREFIX_UNPROVEN, why)
            has_looked = self._verdict is not NOT_LOOKED and not self._over
            return PrefixProof(None if has_looked else unproven, unproven, unproven)
        if not (left := self._trial_left()):
            return PROVEN
        why = (
            "this process does not continue one that wrote here a moment ago: a copy of the cluster would not, either. "
            f"Nothing is deleted for {lasting(1000 * left)} more; tierstate keep-prefix --execute ends the wait"
        )
        return PrefixProof(delete=Why(Reason.PREFIX_ON_TRIAL, why))

    @property
    def on_trial(self) -> bool:
        """True if the agent has its proof, but deletes nothing yet."""
        return self.proof.trim is None and self.proof.delete is not None

    def require(self, *, harms: bool) -> None:
        """Raise Unavailable if `proof` forbids the change now: `proof.delete` if it ``harms``, else `proof.copy`."""
        proof = self.proof
        why = proof.delete if harms else proof.copy
        if why is not None:
            raise Unavailable(f"nothing is changed in the bucket: {why}")

    def check(self) -> None:
        """Raise PrefixContested if a person must decide."""
        if self.contested is not None:
            raise PrefixContested(self.contested)

    def _unproven(self) -> str | None:
        if not isinstance(self._verdict, Alone):
            return self._trouble or self._verdict.why
        age = self._clock.monotonic() - self._proven_s
        if self._over or age >= PROOF_PERIODS * self._claimant.period_s:
            return f"no proof that no other cluster writes here: {self._trouble or 'it is too old'}"
        return None

    def _trial_left(self) -> float:
        since = self._first_proof_s
        return self._trial_s if since is None else max(0.0, self._trial_s - (self._clock.monotonic() - since))

    def run(self, stop: threading.Event) -> None:
        """Call `beat` once per period until ``stop`` is set, or `LOOKS` times per period while waiting for answers."""
        period_s = self._claimant.period_s
        go_round("heartbeat", stop, self.beat, lambda: period_s / (LOOKS if isinstance(self._verdict, NotYet) else 1))

    def wait(self, stop: threading.Event) -> None:
        """Wait until there is a proof, or ``stop`` is set. Raises PrefixContested.

        Raises Unavailable if `PROOF_PERIODS` periods have passed and the last beat failed.
        """
        latest = self._clock.monotonic() + PROOF_PERIODS * self._claimant.period_s
        while not stop.is_set():
            self.check()
            why = self._unproven()
            if why is None:
                return
            if self._trouble and self._clock.monotonic() >= latest:
                raise Unavailable(f"nothing is changed in the bucket: {why}")
            stop.wait(min(0.05, self._claimant.period_s))

    def older_agents(self) -> list[Heartbeat]:
        """Return the heartbeats of this cluster's running agents that wrote here before this process had a proof."""
        with self._beating:
            now, older = self._clock.monotonic(), [seen for seen in self._agents() if seen.answered and seen.is_older]
            return [seen.beat for seen in older if not is_dead(self._peer(seen, now), self._claimant.period_s)]

    def beat(self) -> None:
        """Write the heartbeat, read the others and judge once. An error is recorded, and the proof is not renewed."""
        with self._beating:
            if self._over:
                return
            try:
                self._beat()
                self._trouble = None
            except TierstateError as error:
                self._trouble = str(error)

    def leave(self) -> None:
        """Mark the heartbeat as stopped, so that the next process need not wait. From now on there is no proof."""
        with self._beating:
            was, self._over = self._over, True
            if was or self._signature is None or isinstance(self._verdict, Contested):
                return
            with suppress(TierstateError):
                self._sign()  # a copy of the cluster that was made before lacks this signature
                self._write(stopped=True)
            if self._claimant.broker_id < 0:
                with suppress(TierstateError):
                    self._store.delete(self._key)

    @property
    def _key(self) -> str:
        return heartbeat_key(self._claimant.cluster_id, self._claimant.broker_id, self._process)

    def _beat(self) -> None:
        now = self._clock.monotonic()
        # once a person gave the prefix to another cluster, this process writes nothing
        if (self._signature is None or self.contested) and not self._look(self._list(), now):
            return
        if self._signature is None:
            self._began_empty = is_empty(self._store)  # before anything is copied
            self._sign()
        elif now - self._signed_s >= SIGN_AGAIN_S:
            with suppress(TierstateError):  # tried again by the next beat
                self._sign()
        self._write()
        now = self._clock.monotonic()
        listed = self._list()
        if self._key not in listed:
            self.heartbeats_lost += 1
            self._begin()
            raise Unavailable(
                "this process's heartbeat is gone, by a later process or a rolled back bucket: it begins as new"
            )
        if not self._look(listed, now):
            return
        if not self._answers.issuperset(each.beat.process for each in self._others.values()):  # wait for answers
            self._sign()
            self._write()
        peers = [self._peer(each, now) for each in self._others.values()]
        verdict = judge(peers, self._claimant.period_s)
        if isinstance(verdict, Alone):
            if self._first_proof_s is None:
                self._begin_trial(listed, now)
                self._write()  # shows the trial before the heartbeat of the predecessor is deleted
            self._proven_s = now
        self._verdict = verdict
        if isinstance(verdict, Alone):
            self._tidy(now)

    def _list(self) -> dict[str, ObjectInfo]:
        return {each.key: each for each in self._store.list(self._prefix)}

    def _sign(self) -> None:
        answers = frozenset(each.beat.process for each in self._others.values())
        self._signature = sign(self._topic, self._process)
        self._answers = answers
        self._signed_s = self._clock.monotonic()

    def _write(self, *, stopped: bool = False) -> None:
        data = self._heartbeat(stopped=stopped)
        self._attempts.append(data)
        if not self._written and self._put(data):
            return
        try:
            done = self._store.replace_if_same(self._key, data, self._written)
        except ObjectNotFound:
            return  # the next listing shows that the heartbeat was deleted
        if not done:
            self._written = self._attempt_that_landed()
            done = self._store.replace_if_same(self._key, data, self._written)
        if not done:
            raise Unavailable("the heartbeat of this process changed while it was written")
        self._landed(data)

    def _heartbeat(self, *, stopped: bool) -> bytes:
        claimant, record = self._claimant, self._signature
        assert record is not None
        return Heartbeat(
            self._process,
            claimant.broker_id,
            FactId.of(self._ids.uuid()),
            claimant.host,
            claimant.place,
            self._topic.topic_id,
            record.position,
            record.sha256,
            " ".join(sorted(self._answers)),
            int(stopped),
            NO_PROOF_YET if self._first_proof_s is None else round(self._trial_left()),
            self._kept,
        ).sealed()

    def _put(self, data: bytes) -> bool:
        try:
            self._store.put_if_absent(self._key, data)
        except ObjectExists:  # an attempt whose outcome was unknown
            self._written = self._attempt_that_landed()
            return False
        self._landed(data)
        return True

    def _landed(self, data: bytes) -> None:
        self._written, self._attempts = data, []
        if self._first_written_s is None:
            self._first_written_s = self._clock.monotonic()

    def _attempt_that_landed(self) -> bytes:
        """Return the stored heartbeat. If this process did not write it, start over and raise Unavailable."""
        standing = self._store.get(self._key)
        if standing not in self._attempts:
            self.heartbeats_lost += 1
            self._begin()
            raise Unavailable(
                "this process's heartbeat was changed: a copy of this machine runs, or the bucket was rolled back"
            )
        return standing

    def _look(self, listed: dict[str, ObjectInfo], now: float) -> bool:
        """Read new heartbeats and decisions. Return False if a person gave the prefix to another cluster."""
        cluster = self._claimant.cluster_id
        keys = {key for key in listed if is_heartbeat(cluster, key) and key != self._key}
        for key in self._others.keys() - keys:
            del self._others[key]
        for key in sorted(keys):
            self._read(key, listed[key], now)
        numbers = sorted(number for key in listed if (number := kept_number(cluster, key)) is not None)
        self._keepers += [read_keeper(self._store, cluster, number) for number in numbers[len(self._keepers) :]]
        keeper = chosen_of(self._keepers)
        if keeper is None or self._kept == keeper.number:
            return True
        knowing = [each for each in self._agents() if each.ours and each.beat.kept >= keeper.number]
        # agents that start together all use the decision: it is used up once one of them has its proof
        is_used_up = any(each.beat.trial_s != NO_PROOF_YET for each in knowing)
        if not is_used_up and not self._is_here(keeper):
            self._verdict = Contested(
                f"{keeper.by} gave this prefix to another cluster: give this one another store.url"
            )
            return False
        self._kept = keeper.number
        if not is_used_up:
            self._chosen, self._trial_s = True, 0.0
        return True

    def _agents(self) -> list[SeenHeartbeat]:
        """Return the heartbeats of other agents. Commands are left out: their heartbeats are deleted when they end."""
        return [each for each in self._others.values() if each.beat.broker_id >= 0]

    def _read(self, key: str, info: ObjectInfo, now: float) -> None:
        mark, seen = (int(info.modified_at), info.size), self._others.get(key)
        if seen is not None and seen.mark == mark:
            return
        if seen is not None and seen.answered:  # one answer is enough: a process never changes its cluster
            seen.mark, seen.changed_s = mark, now
            return
        beat = read_heartbeat(self._store, key)
        if beat is None:
            return
        ours = self._is_here(beat)
        answered = ours and self._process in beat.answers.split()
        is_older = self._first_proof_s is None if seen is None else seen.is_older
        self._others[key] = SeenHeartbeat(beat, ours, answered and not beat.stopped, is_older, mark, now)

    def _peer(self, seen: SeenHeartbeat, now: float) -> Peer:
        beat, first = seen.beat, self._first_written_s
        since = now if first is None else max(first, seen.changed_s)
        disowned = not seen.ours and any(beat.process in keeper.others.split() for keeper in self._keepers)
        rival = seen.is_older and self._is_of_our_broker(beat)
        name = f"{beat.writer} at {beat.host} (process {beat.process})"
        return Peer(name, seen.ours, seen.answered, bool(beat.stopped), rival, disowned, now - since)

    def _is_of_our_broker(self, beat: Heartbeat) -> bool:
        """Return whether an agent does our broker's work. A group shares out the work of the agents by Fetch: False."""
        own = (self._claimant.broker_id, self._topic.topic_id)
        return 0 <= self._claimant.broker_id < COPIER and (beat.broker_id, beat.topic_id) == own

    def _begin_trial(self, listed: dict[str, ObjectInfo], now: float) -> None:
        """Start the trial with the first proof. The silence before it is measured by the object store's clock."""
        claimant, written_at = self._claimant, listed[self._key].modified_at
        proven = [each for each in self._agents() if each.beat.trial_s != NO_PROOF_YET]
        before = []
        for each in proven:
            if each.ours and each.is_older:
                is_alive = not is_dead(self._peer(each, now), claimant.period_s)
                place = (each.beat.broker_id, each.beat.place)
                is_here = claimant.broker_id < 0 or place == (claimant.broker_id, claimant.place)
                before.append(Before(is_alive, is_here, written_at - each.mark[0], each.beat.trial_s))
        if self._chosen:
            self._trial_s = 0.0
        elif proven:
            self._trial_s = trial_of(before, claimant.trial_s)
        else:  # no agent has a proof: a person's command does not wait
            first = min(claimant.trial_s, FIRST_TRIAL_S)
            self._trial_s = 0.0 if claimant.broker_id < 0 or self._began_empty else first
        self._first_proof_s = now

    def _tidy(self, now: float) -> None:
        """Delete heartbeats of ended processes: that of the predecessor at once, others after `FORGET_S`."""
        for key, each in list(self._others.items()):
            peer = self._peer(each, now)
            is_old = (peer.ours and self._is_of_our_broker(each.beat)) or peer.silent_s >= FORGET_S
            if is_old and is_dead(peer, self._claimant.period_s):
                self._store.delete(key)
                del self._others[key]

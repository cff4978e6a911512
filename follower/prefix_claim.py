"""A process's proof that no other cluster writes below its bucket prefix (`rules/prefix.py` has the rules).

    write own heartbeat -> list all heartbeats -> read those that are new -> judge

In this order: of two processes that start at once at least one sees the other.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..rules.observed import PROVEN, PrefixProof
from ..rules.prefix import PROOF_PERIODS, Alone, Before, Contested, NotYet, Peer, Verdict, is_dead, judge, trial_of
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.watchdog import go_round
from ..state.anchor import Anchor
from ..state.errors import ObjectExists, ObjectNotFound, PrefixContested, TierstateError, Unavailable
from ..state.ids import FactId
from ..state.objects import ObjectInfo
from ..storage.object_store import ObjectStore
from .heartbeat import Heartbeat, is_signed_here, read_heartbeat, sign
from .keeper import Keeper, read_keeper
from .object_names import ROOT, agents_prefix, heartbeat_key, is_heartbeat, kept_number

SIGN_AGAIN_S = 3600.0
"""A copy that was taken longer ago does not know the newest signature."""
FORGET_S = 24 * 3600.0
"""Heartbeats of processes that ended are deleted after so long."""
NOT_LOOKED = NotYet("the heartbeats in the bucket have not been read yet")
WAY_OUT = (
    "tierstate keep-prefix shows both sides, and gives the prefix to one (docs/operations.md#a-copy-of-the-cluster)"
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims. ``broker_id`` -1: a command. ``place``: see `Heartbeat`. ``period_s``: between two heartbeats."""

    cluster_id: str
    broker_id: int
    host: str
    place: str
    period_s: float
    trial_s: float


@dataclass(slots=True)
class _Seen:
    """A heartbeat of another process. ``mark``: by which a listing shows that it was written again."""

    beat: Heartbeat
    ours: bool
    answered: bool
    elder: bool
    mark: tuple[int, int]
    changed_s: float


class PrefixClaim:
    """One thread beats; any thread asks."""

    def __init__(self, topic: TierTopic, store: ObjectStore, claimant: Claimant, clock: Clock, ids: IdSource) -> None:
        self._topic, self._store, self._claimant, self._clock, self._ids = topic, store, claimant, clock, ids
        self._prefix = agents_prefix(claimant.cluster_id)
        self._beating = threading.Lock()
        self._keepers: list[Keeper] = []
        self._kept = 0
        self._verdict: Verdict
        self._trouble: str | None = None
        self._over = False
        self._begin()

    def _begin(self) -> None:
        """As a process that nobody knows."""
        self._verdict = NOT_LOOKED
        self._process = FactId.of(self._ids.uuid())
        self._written, self._attempts = b"", list[bytes]()
        self._signature: Anchor | None = None
        self._first_signed = 0
        self._signed_s = self._proven_s = float("-inf")
        self._first_written_s: float | None = None
        self._first_proof_s: float | None = None
        self._trial_s, self._chosen = self._claimant.trial_s, False
        self._predecessor = ""
        self._others: dict[str, _Seen] = {}

    # What everybody asks.

    @property
    def contested(self) -> str | None:
        """Why a person must decide; None: nobody need."""
        verdict = self._verdict
        return f"{verdict.why}; {WAY_OUT}" if isinstance(verdict, Contested) else None

    @property
    def proof(self) -> PrefixProof:
        """What may be done now."""
        why = self._unproven()
        left = self._trial_left()
        if why is not None or not left:
            return PrefixProof(why) if why is not None else PROVEN
        return PrefixProof(
            None,
            "this process took over after a silence, or at another place: a copy of the cluster would do the same. "
            f"Nothing is deleted for {left:.0f} s more; tierstate keep-prefix ends the wait",
        )

    def require(self, *, harms: bool) -> None:
        """Return if the bucket may be changed now (`claimed_store.py`). Raises Unavailable: nothing was done."""
        proof = self.proof
        why = proof.unproven or (proof.on_trial if harms else None)
        if why is not None:
            raise Unavailable(f"nothing is changed in the bucket: {why}")

    def check(self) -> None:
        """Raises PrefixContested when a person must decide."""
        if self.contested is not None:
            raise PrefixContested(self.contested)

    def _unproven(self) -> str | None:
        if not isinstance(self._verdict, Alone):
            return self.contested or self._trouble or self._verdict.why
        age = self._clock.monotonic() - self._proven_s
        if self._over or age >= PROOF_PERIODS * self._claimant.period_s:
            return f"no proof that no other cluster writes here: {self._trouble or 'it is too old'}"
        return None

    def _trial_left(self) -> float:
        since = self._first_proof_s
        return self._trial_s if since is None else max(0.0, self._trial_s - (self._clock.monotonic() - since))

    # The thread that beats.

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        go_round("heartbeat", stop, self.beat, lambda: self._claimant.period_s)

    def wait(self, stop: threading.Event) -> None:
        """Until the bucket may be changed, or ``stop``. Raises PrefixContested."""
        while self._unproven() is not None and not stop.is_set():
            self.check()
            stop.wait(min(0.05, self._claimant.period_s))

    def beat(self) -> None:
        """Write, look and judge once. What fails leaves the proof as old as it is."""
        with self._beating:
            if self._over:
                return
            try:
                self._beat()
                self._trouble = None
            except TierstateError as error:
                self._trouble = str(error)

    def leave(self) -> None:
        """Say goodbye: the next process need not wait. Nothing may be changed any more."""
        with self._beating:
            was, self._over = self._over, True
            if was or self._signature is None or isinstance(self._verdict, Contested):
                return
            with suppress(TierstateError):
                self._sign()  # a copy that was taken before does not know it
                self._write(stopped=True)
            if self._claimant.broker_id < 0:
                with suppress(TierstateError):
                    self._store.delete(self._key)

    @property
    def _key(self) -> str:
        return heartbeat_key(self._claimant.cluster_id, self._claimant.broker_id, self._process)

    def _beat(self) -> None:
        now = self._clock.monotonic()
        # who was told to leave writes nothing
        if (self._signature is None or self.contested) and not self._look(self._list(), now):
            return
        if self._signature is None:
            self._sign()
            self._first_signed = self._position
        elif now - self._signed_s >= SIGN_AGAIN_S:
            with suppress(TierstateError):  # tried again by the next beat
                self._sign()
        self._write()
        before, now = set(self._others), self._clock.monotonic()
        listed = self._list()
        if self._key not in listed:
            self._begin()
            raise Unavailable("this process's heartbeat was removed by a later process: it begins as a new one")
        if not self._look(listed, now):
            return
        if self._others.keys() - before:  # they wait for an answer
            self._sign()
            self._write()
        peers = [self._peer(each, now) for each in self._others.values()]
        verdict = judge(self._claimant.broker_id, peers, self._claimant.period_s)
        if isinstance(verdict, Alone):
            if self._first_proof_s is None:
                self._begin_trial(listed, now)
            self._proven_s = now
        self._verdict = verdict
        if isinstance(verdict, Alone):
            self._tidy(now)

    @property
    def _position(self) -> int:
        assert self._signature is not None
        return self._signature.position

    def _list(self) -> dict[str, ObjectInfo]:
        return {each.key: each for each in self._store.list(self._prefix)}

    def _sign(self) -> None:
        self._signature = sign(self._topic, self._claimant.broker_id, self._process)
        self._signed_s = self._clock.monotonic()

    def _write(self, *, stopped: bool = False) -> None:
        data = self._heartbeat(stopped=stopped)
        self._attempts.append(data)
        if not self._written and self._put(data):
            return
        try:
            done = self._store.replace_if_same(self._key, data, self._written)
        except ObjectNotFound:
            return  # the listing shows it
        if not done:
            self._written = self._attempt_that_landed()
            done = self._store.replace_if_same(self._key, data, self._written)
        if not done:
            raise Unavailable("the heartbeat of this process changed while it was written")
        self._landed(data)

    def _heartbeat(self, *, stopped: bool) -> bytes:
        who, record = self._claimant, self._signature
        assert record is not None
        return Heartbeat(
            self._process,
            who.broker_id,
            FactId.of(self._ids.uuid()),
            who.host,
            who.place,
            self._topic.topic_id,
            record.position,
            record.sha256,
            self._predecessor,
            int(stopped),
            round(self._trial_left()),
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
        """Raises Unavailable for what a copy of this very process wrote, which has its id and its memory."""
        standing = self._store.get(self._key)
        if standing not in self._attempts:
            self._begin()
            raise Unavailable("another process writes the heartbeat of this one: a copy of this machine runs")
        return standing

    # What stands in the bucket.

    def _look(self, listed: dict[str, ObjectInfo], now: float) -> bool:
        """Take in what was listed. Return False if a person gave the prefix to another cluster."""
        cluster = self._claimant.cluster_id
        keys = {key for key in listed if is_heartbeat(cluster, key) and key != self._key}
        for key in self._others.keys() - keys:
            del self._others[key]
        for key in sorted(keys):
            self._read(key, listed[key], now)
        numbers = sorted(number for key in listed if (number := kept_number(cluster, key)) is not None)
        self._keepers += [read_keeper(self._store, cluster, number) for number in numbers[len(self._keepers) :]]
        if not self._keepers or self._kept == self._keepers[-1].number:
            return True
        keeper = self._keepers[-1]
        is_old = any(each.ours and each.beat.kept >= keeper.number for each in self._others.values())
        if not is_old and not keeper.is_here(self._topic):
            self._verdict = Contested(
                f"{keeper.by} gave this prefix to another cluster: give this one another store.url"
            )
            return False
        self._kept = keeper.number
        if not is_old:
            self._chosen, self._trial_s = True, 0.0
        return True

    def _read(self, key: str, info: ObjectInfo, now: float) -> None:
        mark, seen = (int(info.modified_at), info.size), self._others.get(key)
        if seen is not None and seen.mark == mark:
            return
        if seen is not None and seen.answered:  # once is enough: it is of this cluster as long as it lives
            seen.mark, seen.changed_s = mark, now
            return
        beat = read_heartbeat(self._store, key)
        if beat is None:
            return
        ours = is_signed_here(self._topic, beat.topic_id, beat.position, beat.sha256)
        answered = ours and self._signature is not None and beat.position > self._first_signed
        elder = self._first_proof_s is None if seen is None else seen.elder
        self._others[key] = _Seen(beat, ours, answered and not beat.stopped, elder, mark, now)

    def _peer(self, seen: _Seen, now: float) -> Peer:
        beat, first = seen.beat, self._first_written_s
        since = now if first is None else max(first, seen.changed_s)
        disowned = any(beat.process in keeper.others.split() for keeper in self._keepers)
        name = f"broker {beat.broker_id} at {beat.host} (process {beat.process})"
        stopped = bool(beat.stopped)
        return Peer(name, beat.broker_id, seen.ours, seen.answered, stopped, seen.elder, disowned, now - since)

    def _begin_trial(self, listed: dict[str, ObjectInfo], now: float) -> None:
        """With the first proof. The store's own clock tells how long nobody wrote."""
        who, written_at = self._claimant, listed[self._key].modified_at
        ours = [each for each in self._others.values() if each.ours and each.elder]
        before = []
        for each in ours:
            is_alive = not is_dead(self._peer(each, now), who.period_s)
            is_here = who.broker_id < 0 or (each.beat.broker_id, each.beat.place) == (who.broker_id, who.place)
            before.append(Before(is_alive, is_here, written_at - each.mark[0], each.beat.trial_s))
        self._predecessor = next((e.beat.process for e in ours if e.beat.broker_id == who.broker_id), "")
        # a person's command waits only where agents do
        first = not before and (who.broker_id < 0 or self._is_empty())
        self._trial_s = 0.0 if self._chosen else trial_of(before, who.trial_s, first=first)
        self._first_proof_s = now

    def _is_empty(self) -> bool:
        """Whether nothing but what agents keep is in the bucket."""
        outside = (next(iter(self._store.list("", after)), None) for after in (None, ROOT[:-1] + "0"))
        return all(each is None or each.key.startswith(ROOT) for each in outside)

    def _tidy(self, now: float) -> None:
        """Delete heartbeats of processes that ended: of the predecessor at once, of the others after a day."""
        for key, each in list(self._others.items()):
            peer = self._peer(each, now)
            if not is_dead(peer, self._claimant.period_s):
                continue
            if (peer.ours and peer.broker_id == self._claimant.broker_id) or peer.silent_s >= FORGET_S:
                self._store.delete(key)
                del self._others[key]

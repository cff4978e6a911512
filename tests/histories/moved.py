"""Generated histories of a move to another store (0108), while agents copy and delete, and a topic is restored.

Production's `Migration`, `Cleanup`, claims, followed stores and restore ledgers run over one topic and two
stores in memory. Any request may take long, and meanwhile all other processes go on. Any process is killed or frozen,
also within a request; `migrate` is cancelled, begun again and finished; the stores fail.

Promised: every segment that a fact names is read by every reader, whether it opened the old store before the move, the
old one after it, or the new one once the objects have arrived. A step of a restore that was acknowledged is read by
every later restore, and no two processes write the same step. Without failures a move ends, and agents go on at the
target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, cast
from unittest.mock import patch

from tests.app.moving import NamedStore
from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.operating import migration
from tierstate.follower.followed_store import FollowedStore
from tierstate.follower.heartbeat import Claimant, sign
from tierstate.follower.movable_claim import MovableClaim
from tierstate.follower.move import ARRIVED, ARRIVING, Move
from tierstate.follower.object_names import ROOT
from tierstate.restore.ledger import Ledger, Origin, Progress
from tierstate.restore.names import steps_prefix
from tierstate.rules.prefix import SILENT_PERIODS
from tierstate.runtime.operation import Operation
from tierstate.runtime.operation import run as run_operation
from tierstate.state.errors import InvalidRequest, ObjectNotFound, StorageUnavailable, TierstateError
from tierstate.state.ids import TopicId
from tierstate.state.offsets import Offset
from tierstate.storage import mirror
from tierstate.storage.object_store import Data, ObjectStore
from tierstate.storage.wrapped_stores import claimed

STEPS, PERIOD, AGENTS = 90, 20.0, 2
OLD, NEW = "s3://old", "s3://new"
SLOW = (0.02, 0.005, *(0.0,) * 9)
"""The chance that a request takes long, at the top and within another slow request; several times that for writes."""
LENGTHS = (0.0, 0.5, 4.0, 12.0, 70.0, 110.0)
"""Seconds that a slow request takes, and how long a process is frozen."""
STEPS_OF_RESTORE = steps_prefix("cluster", TopicId("A" * 21 + "Q"), 0)
ORIGIN = Origin("lost", "t", "A" * 22, 0)


class Killed(BaseException):
    """The process ended at this point, as kill -9 ends it."""


class Slow(NamedStore):
    """A store whose writes also call its faults when they are done, before the answer."""

    def put_if_absent(self, key: str, data: Data) -> None:
        super().put_if_absent(key, data)
        self._faults("answer", key, 0)

    def peek(self, key: str) -> bytes | None:
        """Return the object's bytes without a request."""
        return self._objects[key][0] if key in self._objects else None


class Process:
    """A process with one thread of work, which is ``busy`` within a request."""

    def __init__(self, world: MovedWorld) -> None:
        self.world = world
        self.busy = self.frozen = False

    def take(self, work: Callable[[], None]) -> None:
        """Do some work, and stay busy meanwhile. An error ends the work."""
        world, self.busy = self.world, True
        world.running.append(self)
        try:
            with suppress(TierstateError):
                work()
        except Killed:
            self.killed()
        world.running.pop()
        self.busy = False

    def killed(self) -> None:
        """Begin again as a new process."""

    def step(self) -> None:
        self.take(self.work)

    def work(self) -> None:
        raise NotImplementedError


class Agent(Process):
    """Copies and deletes. Its thread of heartbeats is the process ``heart``."""

    def __init__(self, world: MovedWorld, number: int) -> None:
        super().__init__(world)
        self.number, self.heart = number, Heart(self)
        self.start(world.source)

    def start(self, at: ObjectStore) -> None:
        world = self.world
        world.started += 1
        self.place = FollowedStore(at, lambda move: world.target, world.clock)
        with suppress(StorageUnavailable):
            self.place.stay()
        store = cast(ObjectStore, self.place)
        who = Claimant("cluster", self.number, "host", f"host-{self.number}:/data", PERIOD, 0.0)
        self.claim = MovableClaim(world.topic, store, who, world.clock, CountingIds(world.started))
        self.store = claimed(store, self.claim.require, ROOT)

    def killed(self) -> None:
        world = self.world
        world.seen.add("agent killed")
        early = world.target.peek(ARRIVING) is not None and world.rnd.random() < 0.3
        with world.undisturbed():
            self.start(world.target if early else world.source)

    def step(self) -> None:
        self.take(self.restart if self.claim.move is not None else self.work)

    def restart(self) -> None:
        if not self.heart.busy and self.place.has_moved():
            self.claim.leave()
            self.start(self.world.source)

    def work(self) -> None:
        world, claim = self.world, self.claim
        key, content = f"t/{len(world.copied):020d}-S.log", b"%d" % len(world.copied)
        world.copied.append(key)
        self.store.put_stream(key, [content])
        claim.require(harms=False)
        world.live[key] = content  # the append of copy-finished
        world.seen.add("copied at the target" if self.place.here is world.target else "copied")
        if len(world.live) > 3:
            oldest = min(world.live)
            claim.require(harms=True)
            if world.live.pop(oldest, None) is not None:  # the append of delete-started
                self.store.delete(oldest)


class Heart(Process):
    def __init__(self, agent: Agent) -> None:
        self.world, self.agent, self.busy = agent.world, agent, False

    @property
    def frozen(self) -> bool:  # type: ignore[override]
        return self.agent.frozen

    def step(self) -> None:
        self.take(self.agent.claim.beat)

    def killed(self) -> None:
        self.agent.killed()


class Restore(Process):
    """Restores a topic: it has no heartbeat."""

    def __init__(self, world: MovedWorld) -> None:
        super().__init__(world)
        self.killed()

    def killed(self) -> None:
        self.ledger = Ledger(self.world.followed(), STEPS_OF_RESTORE)
        self.progress: Progress | None = None

    def step(self) -> None:
        if self.progress is None and self.world.rnd.random() < 0.5:
            self.killed()
        self.take(self.work)

    def work(self) -> None:
        progress, self.progress, world = self.progress or self.ledger.read(), None, self.world
        number = 0 if progress is None else progress.following
        if progress is None:
            progress = self.ledger.begin(ORIGIN, Offset(0), Offset(0))
        else:
            self.ledger.add_term(progress, number)
        assert number not in world.acknowledged, f"TWICE: step {number} of a restore"
        world.acknowledged.add(number)
        world.seen.add("restored a step")
        self.progress = progress  # after an error the process ends instead


class Reader(Process):
    """Reads all segments, with the store that it opened once."""

    def __init__(self, world: MovedWorld) -> None:
        super().__init__(world)
        self.store = world.followed()

    def work(self) -> None:
        for key in list(self.world.live):
            try:
                self.store.get(key)
            except ObjectNotFound:
                assert key not in self.world.live, f"LOST: {key} was deleted while it was read"


class Migrate(Process):
    """The command and its options, each time as a new process. Only one runs at a time (`prefix_lock.py`)."""

    operation: Iterator[object] | None = None

    def killed(self) -> None:
        self.operation = None

    def work(self) -> None:
        world, rnd = self.world, self.world.rnd
        if self.operation is None:
            self.operation = self.begin()
        elif rnd.random() < 0.03:
            world.seen.add("migrate killed")
            self.operation = None
        else:
            operation, self.operation = self.operation, None
            for _ in range(rnd.choice((1, 1, 4))):
                if next(operation, None) is None:
                    return
            self.operation = operation

    def begin(self) -> Iterator[object] | None:
        world, chance = self.world, self.world.rnd.random()
        if world.target.peek(ARRIVED) is not None and chance < 0.5:
            world.seen.add("finish")
            bases = [key.removesuffix(".log") for key in world.live]
            return migration.Cleanup(world.source, world.target, bases, lambda: None).steps()
        if chance > 0.85:
            with suppress(InvalidRequest):
                run_operation(migration.cancel(world.source, world.target))
                world.seen.add("cancelled")
            return None
        return self.move()

    def move(self) -> Operation[Move]:
        world = self.world
        move = migration.standing_move(world.source, world.target, world.new_move)
        return migration.Migration(world.source, world.target, lambda: None, self.quiet).steps(move)

    def quiet(self) -> None:
        clock: Any = Waiting(self.world)
        migration.wait_for_writers(self.world.source, "cluster", PERIOD, clock, lambda names: None)


@dataclass
class Waiting:
    """The clock of `migrate`: while it sleeps all others go on."""

    world: MovedWorld

    def monotonic(self) -> float:
        return self.world.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.world.pass_time(seconds * self.world.rnd.choice((1, 8)))
        self.world.another_steps()


class MovedWorld:
    """Two stores, the cluster's topic and all processes."""

    def __init__(self, seed: int) -> None:
        self.rnd, self.clock, self.started = Random(seed), ManualClock(), 0
        self.seen: set[str] = set()
        self.running: list[Process] = []
        self.quiet = True
        self.topic = MemoryTierTopic(1, clock=self.clock)
        self.source, self.target = (Slow(url, self.clock, self._request) for url in (OLD, NEW))
        self.live: dict[str, bytes] = {}
        """The contents of the segments that facts name."""
        self.copied: list[str] = []
        self.acknowledged: set[int] = set()
        self.agents = [Agent(self, number) for number in range(AGENTS)]
        self.readers = [Reader(self) for _ in range(2)]
        self.migrate = Migrate(self)
        hearts = [each.heart for each in self.agents]
        self.processes = [*self.agents, *self.agents, *hearts, *self.readers, Restore(self), Restore(self)]
        self.migrates_at = self.rnd.randrange(STEPS // 3)
        self.pass_time(SILENT_PERIODS * PERIOD)

    def followed(self) -> ObjectStore:
        return cast(ObjectStore, FollowedStore(self.source, lambda move: self.target, self.clock))

    def new_move(self) -> Move:
        record = sign(self.topic, "A" * 22)
        topic_id, now = self.topic.topic_id, self.clock.now_ms()
        return Move("A" * 22, OLD, NEW, "", "", topic_id, record.position, record.sha256, "", now)

    def run(self) -> None:
        """Run all steps. Raises AssertionError if a promise breaks."""
        # the threads of a mirror would have an order of their own
        with patch.object(mirror, "AT_ONCE", 1), patch.object(migration, "AT_ONCE", 1):
            try:
                self.quiet = False
                for number in range(STEPS):
                    if number == self.migrates_at:
                        self.processes += [self.migrate] * 6
                    self.another_steps()
                    self.pass_time(self.rnd.choice((0.0, 1.0, 6.0, PERIOD)))
                    self.check()
                self.quiet = True
                self.a_move_ends()
            except TierstateError as error:
                raise AssertionError(f"LOST, or a bug: {error!r}") from error

    def another_steps(self) -> None:
        """Let a process take a step that is not within a request."""
        able = [each for each in self.processes if not each.busy and not each.frozen]
        if able:
            self.rnd.choice(able).step()

    def pass_time(self, seconds: float) -> None:
        """Let time pass. Agents send a heartbeat each period, as far as they are not frozen or within one."""
        while seconds > 0:
            self.clock.advance(min(seconds, PERIOD))
            seconds -= PERIOD
            for agent in self.agents:
                if not agent.frozen and not agent.heart.busy:
                    agent.heart.step()

    def _request(self, operation: str, key: str, writes: int) -> None:
        """Let a request take long, fail, or be the last of its process."""
        chance = self.rnd.random() if not self.quiet and self.running else 1.0
        if chance < 0.002:
            raise Killed
        if chance < 0.01 and operation != "answer":
            raise StorageUnavailable("the store does not answer", key=key)
        times = 20 if key.startswith(STEPS_OF_RESTORE) else 8
        slow = SLOW[len(self.running) - 1] * (times if operation in ("put", "complete", "answer") else 1)
        if 0.01 < chance < 0.01 + slow:
            self.meanwhile(self.running[-1])

    def meanwhile(self, process: Process) -> None:
        """Let others go on during a request of ``process``, or `migrate` alone. An agent may be frozen as a whole."""
        agent = process.agent if isinstance(process, Heart) else process
        looks = isinstance(agent, Agent) and agent.place._looking.locked()  # its other thread would wait for it
        was, agent.frozen = agent.frozen, agent.frozen or looks or self.rnd.random() < 0.5
        hurries = self.migrate in self.processes and not self.migrate.busy and self.rnd.random() < 0.5
        for _ in range(self.rnd.choice((3, 30)) if hurries else self.rnd.choice((0, 1, 3, 8))):
            self.migrate.step() if hurries else self.another_steps()
        self.pass_time(self.rnd.choice(LENGTHS))
        agent.frozen = was
        self.seen.add("slow request")

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let no request in this block fail or take long."""
        was, self.quiet = self.quiet, True
        yield
        self.quiet = was

    def check(self) -> None:
        """Check that every reader reads every segment, and that a restore begins where the last one ended."""
        with self.undisturbed():
            stores = [each.store for each in self.readers if not each.busy] + [self.followed()]
            if self.target.peek(ARRIVED) is not None:
                self.seen.add("arrived")
                stores.append(cast(ObjectStore, self.target))
            for store in stores:
                for key, content in self.live.items():
                    assert store.get(key) == content, f"{key} has other bytes"
            progress = Ledger(self.followed(), STEPS_OF_RESTORE).read()
            following = 0 if progress is None else progress.following
            assert self.acknowledged <= set(range(following)), f"LOST: steps of a restore, {following} are left"

    def a_move_ends(self) -> None:
        """Check that the move ends without failures, and that each agent copies at the target."""
        self.processes = [each for each in self.processes if each is not self.migrate]
        run_operation(self.migrate.move())
        assert self.target.peek(ARRIVED) is not None, "the move does not end"
        for _ in range(2 * SILENT_PERIODS):
            self.pass_time(PERIOD)
            for agent in self.agents:
                agent.step()
        for agent in self.agents:
            agent.step()
            assert agent.place.here is self.target, f"agent {agent.number} stays at the old store"
            assert self.copied[-1] in self.live, f"agent {agent.number}: {agent.claim.proof.copy}"
        self.check()


GUARDS_OF_MOVES = ("writers have stopped", "a look before each change", "a look after a slow write")
"""Names of guards without which one of these histories breaks a promise."""


def broken_by_moves(seeds: Iterable[int] = (3, 8, 29, 37)) -> str | None:
    """Return what breaks in the first broken world of these seeds, or None."""
    for seed in seeds:
        try:
            MovedWorld(seed).run()
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return None

"""Generated histories of a cluster whose disks are copied, so that two clusters share one bucket.

Production's claims run over `MemoryTierTopic` and one `MemoryStore`. Agents start, stop, crash, freeze and restart, and
the store fails. The disks are copied at any step, also while all agents are down. The bucket may be put back to an
older state once, at any step. Folders do not matter: an agent keeps nothing about the prefix on disk.

Promised until a person decides: the copy deletes no object that existed when the cluster was copied. The cluster
deletes none either, soon after the copy's agents have noticed the cluster. Without a copy no agent is locked out: a few
heartbeats after the last crash all agents may write. After a person's decision all agents may delete, whether they
started before or after it. A decision for the cluster, after which it may lose power, never lets the copy delete. An
agent notices with its next heartbeat that the bucket was put back.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.heartbeat import Claimant, Decision, keep_prefix
from tierstate.follower.object_names import ROOT, agents_prefix, kept_number
from tierstate.follower.prefix_claim import PrefixClaim
from tierstate.rules.prefix import SILENT_PERIODS
from tierstate.state.errors import StorageUnavailable, Unavailable
from tierstate.state.objects import ObjectInfo
from tierstate.state.offsets import TimestampMs
from tierstate.storage.memory import MemoryStore
from tierstate.storage.wrapped_stores import claimed

STEPS, PERIOD, TRIAL = 250, 20.0, 24 * 3600.0
OBJECTS = 20


class Bucket(MemoryStore):
    """A store that can be put back to an older state, like a bucket with versions or a folder with snapshots."""

    def snapshot(self) -> dict[str, tuple[bytes, ObjectInfo]]:
        return dict(self._objects)

    def put_back(self, snapshot: dict[str, tuple[bytes, ObjectInfo]]) -> None:
        self._objects = dict(snapshot)


@dataclass
class Agent:
    """One agent. ``beat_at``: the last step at which a heartbeat left it with a proof; -1: none."""

    claim: PrefixClaim
    frozen: bool = False
    beat_at: int = -1


class Cluster:
    """The cluster that was copied, or its copy: the topic and the running agents."""

    def __init__(self, world: ClonedWorld, topic: MemoryTierTopic, place: str) -> None:
        self.world, self.topic, self.place = world, topic, place
        self.agents: dict[int, Agent] = {}
        self.copied = 0

    def start(self, broker: int) -> None:
        world = self.world
        world.started += 1
        who = Claimant("cluster", broker, self.place, f"{self.place}-{broker}", PERIOD, TRIAL)
        claim = PrefixClaim(self.topic, world.store, who, world.clock, CountingIds(world.started))
        self.agents[broker] = Agent(claim)

    def stop(self, broker: int, *, cleanly: bool) -> None:
        agent = self.agents.pop(broker)
        if cleanly and not agent.frozen:
            agent.claim.leave()

    def act(self, broker: int) -> None:
        """Copy, archive and delete, as far as the agent's claim allows. Raises AssertionError if it must not delete."""
        world, claim = self.world, self.agents[broker].claim
        store = claimed(world.store, claim.require, ROOT)
        before = world.held
        try:
            self.copied += 1
            store.put_if_absent(f"{self.place}/{self.copied}", b"")
            world.seen.add(f"{self.place} copied")
            store.put_if_absent(f"{ROOT}archive/{self.place}/{self.copied}", b"")
            store.delete(f"old/{world.rnd.randrange(OBJECTS)}")
            world.seen.add(f"{self.place} deleted")
        except Unavailable:
            pass
        gone = before - world.held
        assert not gone or world.may_delete(self), f"{self.place} deleted {gone}, and another cluster has it"


class ClonedWorld:
    """The cluster (production), its copy (clone) and their bucket.

    ``copied_at``: the step at which the disks are copied. ``put_back_at``: the step at which the bucket is put back to
    its state at ``remembered_at``. `STEPS`: never.
    """

    def __init__(self, seed: int) -> None:
        self.rnd, self.clock, self.started = Random(seed), ManualClock(), 0
        self.seen: set[str] = set()
        self.store = Bucket(self.clock, self._fault)
        self.faults = 0.0
        for number in range(OBJECTS):
            self.store.put_if_absent(f"old/{number}", b"")
        self.production = Cluster(self, MemoryTierTopic(1, clock=self.clock), "production")
        self.clone: Cluster | None = None
        self.brokers = self.rnd.choice((1, 3))
        self.copied_at = self.rnd.choice((self.rnd.randrange(STEPS), STEPS))
        self.clone_deletes_at: float | None = None
        self.now = self.back_at = 0
        rnd = Random(f"put back {seed}")
        self.remembered_at = rnd.randrange(STEPS - 1)
        self.put_back_at = rnd.choice((min(STEPS, self.remembered_at + rnd.choice((1, 4, 30, 100))), STEPS))
        self.remembered = self.store.snapshot()
        self._deciding = Random(f"decided {seed}")
        delay = self._deciding.choice((0, 1, 10)) if self._deciding.random() < 0.25 else STEPS
        self.decided_at = min(STEPS, self.copied_at + delay)
        """The step at which a person gives the prefix to the cluster that was copied. `STEPS`: never."""
        if self.decided_at < STEPS:
            self.put_back_at = STEPS

    def _fault(self, operation: str, key: str, writes: int) -> None:
        if self.rnd.random() < self.faults:
            raise StorageUnavailable("the store does not answer", key=key)

    @property
    def held(self) -> set[str]:
        faults, self.faults = self.faults, 0.0
        keys = {each.key for each in self.store.list("old/")}
        self.faults = faults
        return keys

    def may_delete(self, cluster: Cluster) -> bool:
        """Return whether it may delete: the copy never; production until the copy notices it, or after a decision."""
        clone = self.clone
        if cluster is clone:
            return False
        if self.now >= self.decided_at:
            return True  # a person decided so
        return clone is None or self.clone_deletes_at is None or self.clock.monotonic() < self.clone_deletes_at

    def run(self) -> None:
        """Run all steps. Raises AssertionError if a promise breaks."""
        self.begin()
        for self.now in range(STEPS):
            self.faults = self.rnd.choice((0.0, 0.0, 0.03))
            if self.now == self.copied_at:
                self.copy_disks()
            if self.now == self.decided_at:
                self.decide(self._deciding)
                self.seen.add("decided for the copied cluster")
            if self.now == self.remembered_at:
                self.remembered = self.store.snapshot()
            if self.now == self.put_back_at:
                self.put_back()
            up = [self.production] if self.now >= self.back_at else []
            self.step(self.rnd.choice([*up, self.clone] if self.clone is not None else up))
        self.faults = 0.0
        if self.clone is None:
            self.nobody_is_locked_out()
            self.a_decision_ends_every_wait()

    def begin(self) -> None:
        """Start all of production's agents, and let their trials end."""
        for broker in range(self.brokers):
            self.production.start(broker)
        self.pass_time(SILENT_PERIODS)
        self.clock.advance(TRIAL)
        self.pass_time(SILENT_PERIODS)

    def copy_disks(self) -> None:
        """Copy the disks. Half of the time production is down then, and stays down for a while."""
        if self.rnd.random() < 0.5:
            for broker in list(self.production.agents):
                self.production.stop(broker, cleanly=self.rnd.random() < 0.7)
            self.back_at = self.now + self.rnd.randrange(80)
        if self.now == self.decided_at:  # an agent starts after a crash, and has no proof yet
            for broker in list(self.production.agents):
                self.production.stop(broker, cleanly=False)
            self.production.start(0)
            self.pass_time(1)
        self.clone = Cluster(self, self.production.topic.copied(), "clone")

    def decide(self, rnd: Random) -> None:
        """Give the prefix to production, as a person does. Half of the time production then loses power."""
        self.faults = 0.0
        listed = [kept_number("cluster", each.key) or 0 for each in self.store.list(agents_prefix("cluster"))]
        decision = Decision(max(listed, default=0) + 1, "P" * 22, (), True, "a person", TimestampMs(0))
        keep_prefix(self.store, self.production.topic, "cluster", decision)
        self.pass_time(rnd.choice((0, 1, 2)))
        if rnd.random() < 0.5 and self.clone is not None:
            for broker in list(self.production.agents):
                self.production.stop(broker, cleanly=False)
            self.back_at = self.now + rnd.randrange(80)

    def put_back(self) -> None:
        """Put the bucket back. Each agent that wrote a heartbeat with a proof since ``remembered_at`` must notice it.

        Evidence of the copy is lost. Raises AssertionError.
        """
        self.faults = 0.0
        self.store.put_back(self.remembered)
        self.clone_deletes_at = None
        for side in (self.production, self.clone):
            for broker, agent in (side.agents if side else {}).items():
                lost = agent.claim.heartbeats_lost
                if agent.frozen or agent.beat_at <= self.remembered_at:
                    continue
                self.beat(agent)
                assert agent.claim.heartbeats_lost > lost, (
                    f"broker {broker} did not notice that the bucket was put back"
                )
                self.seen.add("put back")

    def beat(self, agent: Agent) -> None:
        agent.claim.beat()
        if agent.claim.proof.copy is None:
            agent.beat_at = self.now

    def step(self, cluster: Cluster) -> None:
        broker = self.rnd.randrange(self.brokers)
        agent, chance = cluster.agents.get(broker), self.rnd.random()
        if agent is None:
            if chance < 0.3:
                cluster.start(broker)
        elif chance < 0.06:
            cluster.stop(broker, cleanly=self.rnd.random() < 0.5)
        elif chance < 0.1:
            agent.frozen = not agent.frozen
        elif chance < 0.12:
            for each in list(cluster.agents):
                cluster.stop(each, cleanly=self.rnd.random() < 0.5)
        elif not agent.frozen:
            cluster.act(broker)
        else:
            self.seen.add("woke up")
            agent.frozen = False
            cluster.act(broker)  # with what it knew before it froze
        self.pass_time(self.rnd.choice((1, 1, 1, 2, 6)))

    def pass_time(self, periods: int) -> None:
        """Let heartbeat periods pass. All agents that are not frozen beat, in any order."""
        for _ in range(periods):
            everybody = [each for side in (self.production, self.clone) if side for each in side.agents.values()]
            self.rnd.shuffle(everybody)
            for agent in everybody:
                if not agent.frozen:
                    self.beat(agent)
                    self.clock.advance(self.rnd.choice((0.0, 0.5)))
            self.clock.advance(PERIOD)
        clone = self.clone
        beats = clone is not None and any(each.claim.contested for each in clone.agents.values())
        if beats and self.clone_deletes_at is None:
            self.seen.add("contested")
            self.clone_deletes_at = self.clock.monotonic() + SILENT_PERIODS * PERIOD

    def nobody_is_locked_out(self) -> None:
        production = self.production
        for broker in range(self.brokers):
            if broker not in production.agents:
                production.start(broker)
            production.agents[broker].frozen = False
        self.pass_time(3 * SILENT_PERIODS)
        for broker, agent in production.agents.items():
            assert agent.claim.proof.trim is None, f"broker {broker}: {agent.claim.proof.trim}"

    def a_decision_ends_every_wait(self) -> None:
        """Check that all agents may delete after a person's decision, which follows a day of silence.

        The agents start at another place, some before and some after the decision.
        """
        production, rnd = self.production, Random(f"decision {self.started}")
        for broker in list(production.agents):
            production.stop(broker, cleanly=rnd.random() < 0.5)
        self.clock.advance(TRIAL)
        production.place = "elsewhere"
        for broker in range(self.brokers):
            if rnd.random() < 0.5:
                production.start(broker)
                self.pass_time(rnd.choice((0, 0, 1, SILENT_PERIODS)))
        self.decide(rnd)
        for broker in range(self.brokers):
            if broker not in production.agents:
                production.start(broker)
                self.pass_time(rnd.choice((0, 0, 1, SILENT_PERIODS)))
        self.pass_time(3 * SILENT_PERIODS)
        for broker, agent in production.agents.items():
            assert agent.claim.proof.delete is None, f"broker {broker}: {agent.claim.proof.delete}"
        self.seen.add("decided")


GUARDS_OF_CLONES = ("a proof before each change", "strange signatures", "answers", "trial", "own heartbeat")
"""Names of guards without which one of these histories breaks a promise."""


def broken_by_clones(seeds: range = range(10)) -> str | None:
    """Return what breaks in the first broken world of these seeds, or None."""
    for seed in seeds:
        try:
            ClonedWorld(seed).run()
        except AssertionError as error:
            return f"seed {seed}: {error}"
    return None

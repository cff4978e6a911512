"""A bucket in memory, and agents that claim a prefix of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.heartbeat import Claimant, OtherTopics, no_other_topics
from tierstate.follower.object_names import ROOT
from tierstate.follower.prefix_claim import PrefixClaim
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.wrapped_stores import claimed

PERIOD, TRIAL = 20.0, 24 * 3600.0
DATA = "orders/segment.log"


@dataclass
class Bucket:
    """The store and the time, which all sides share."""

    clock: ManualClock = field(default_factory=ManualClock)
    started: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.store.put_if_absent(DATA, b"of production")

    def agent(
        self,
        topic: MemoryTierTopic,
        broker: int = 1,
        place: str = "host1:/data",
        others: OtherTopics = no_other_topics,
    ) -> Agent:
        self.started += 1
        who = Claimant("cluster", broker, place.split(":")[0], place, PERIOD, TRIAL)
        claim = PrefixClaim(topic, self.store, who, self.clock, CountingIds(self.started), others)
        return Agent(claim, claimed(self.store, claim.require, ROOT))

    def pass_periods(self, periods: int, *agents: Agent) -> None:
        """Let periods pass, in which each of these agents sends heartbeats."""
        for _ in range(periods):
            for agent in agents:
                agent.claim.beat()
            self.clock.advance(PERIOD)
        for agent in agents:
            agent.claim.beat()

    def begin(self, topic: MemoryTierTopic) -> Agent:
        """Return the agent of a production cluster, which has been running for a day."""
        agent = self.agent(topic)
        agent.claim.beat()
        self.clock.advance(TRIAL)
        self.pass_periods(2, agent)
        agent.store.put_if_absent("orders/other.log", b"")
        return agent


@dataclass
class Agent:
    claim: PrefixClaim
    store: ObjectStore

    @property
    def may_delete(self) -> bool:
        return self.claim.proof.delete is None

    @property
    def has_proof(self) -> bool:
        return self.claim.proof.trim is None

"""A custodian over a `World`: the test moves time, and a process dies by being forgotten."""

from __future__ import annotations

from typing import TypeVar

from tests.leader.world import World
from tierstate.leader.custody import ClusterEvidence, Custodian, CustodyTools
from tierstate.rules.custody import CustodyPolicy, Evidence
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import encode_fact
from tierstate.state.errors import StorageUnavailable
from tierstate.state.facts import Fact, LiveFact
from tierstate.state.ids import FactId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.view import Entry
from tierstate.storage.object_store import ObjectStore

F = TypeVar("F")
DAY_MS = 86_400_000
GRACE_MS = 7 * DAY_MS
READER_GRACE_MS = 60_000


class Ward:
    """One custodian process at a time; two wards of one world are two custodians."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.recorded_cluster = "memory"
        self.led = {0}
        self.archived: int | None = None
        self.store: ObjectStore = world.store
        self.process()

    def process(self) -> None:
        """Start a new custodian process that knows nothing; the old one, if any, is dead."""
        self.agent = process = self.world.process()
        self.custody = CustodyTools(
            process.context,
            self.look,
            CustodyPolicy(GRACE_MS, READER_GRACE_MS),
            self.store,
            process.events.append,
            lambda number: None if self.archived is None else Position(self.archived),
        )
        self.custodian = Custodian(self.custody, lambda: self.led)

    def look(self, view: PartitionView) -> Evidence:
        """Ask the cluster for evidence, with nothing cached."""
        world = self.world
        return ClusterEvidence(world.broker, self.recorded_cluster, 2, world.topic.problems, world.clock)(view)

    # Events.

    def step(self) -> bool:
        return run(self.custodian.steps())

    def work(self) -> None:
        """Take steps until nothing is left to do now."""
        while self.step():
            pass

    def work_on(self) -> None:
        """Take steps until nothing is left to do, waiting for the grace of readers."""
        self.work()
        self.wait(READER_GRACE_MS)
        self.work()

    def end(self) -> None:
        """Let the topic be deleted for so long that only the facts that ended its partition are left."""
        self.work()
        self.wait(GRACE_MS)
        self.work_on()

    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms / 1000)

    def run_to(self, step: str, steps: Operation[bool] | None = None, passing: int = 0) -> Operation[bool]:
        """Advance until right before ``step``, and return the operation that stopped there."""
        for _ in range(100):
            steps = steps or self.custodian.steps()
            for name in steps:
                if name == step:
                    return steps
            self.wait(passing)
            steps = None
        raise AssertionError(f"{step} was never reached")

    def say(self, fact: Fact) -> None:
        self.world.topic.append(0, key_of(fact), encode_fact(fact))

    def erase(self, key: str) -> None:
        self.world.topic.append(0, key, None)

    def store_is_away(self, away: bool) -> None:
        def fail(operation: str, key: str, writes: int) -> None:
            if away and operation.startswith("delete"):
                raise StorageUnavailable("the store is away", key=key)

        self.world.faults = fail

    # State.

    @property
    def now(self) -> TimestampMs:
        return self.world.clock.now_ms()

    def id(self) -> FactId:
        return FactId.of(self.agent.context.ids.uuid())

    def view(self) -> PartitionView:
        return self.world.view()

    def facts(self, partition: TopicIdPartition | None = None) -> list[LiveFact]:
        self.agent.view.require_fresh(0, 0)
        return self.agent.view.facts(partition or self.world.partition)

    def values(self, kind: type[F]) -> list[F]:
        return [live.fact for live in self.facts() if isinstance(live.fact, kind)]

    def log(self) -> list[Entry]:
        """Return everything that was ever appended, including tombstones."""
        return [entry for batch in self.world.topic.reader({0: Position(0)}).poll(0) for entry in batch.entries]

    def objects(self) -> set[str]:
        return self.world.objects()

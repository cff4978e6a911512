"""A generated history: its seed alone determines all events and their order.

The generator decides nothing that `leader/` decides. It lets brokers, networks, stores and clocks misbehave, and kills
and pauses processes between any two steps. After every third step it checks `promises.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

from tests.histories.accepted_gaps import GapAcceptor
from tests.histories.bit_rot import BitRot
from tests.histories.clocks import Clocks
from tests.histories.cluster import NAME, Cluster, HistoryControl
from tests.histories.cut_tail import CutTail
from tests.histories.forger import Forger
from tests.histories.groups import Groups
from tests.histories.interruptions import Interruptions
from tests.histories.late_store import LateStore
from tests.histories.later_release import LaterRelease
from tests.histories.people import People
from tests.histories.process import Process, follow
from tests.histories.promises import Promises, listed
from tests.histories.steady import finish
from tests.histories.topic import DAY, HOUR, MINUTE, HistoryTopic
from tests.twins.manual_clock import ManualClock
from tierstate.app.operating.deletion import plan_delete
from tierstate.follower.follower import Follower
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.errors import StorageUnavailable, TierstateError
from tierstate.state.facts import Fact, OperatorOrder, OrderKind
from tierstate.state.ids import FactId, TopicId
from tierstate.state.keys import key_of
from tierstate.state.object_keys import ObjectKind
from tierstate.state.offsets import Offset, Position
from tierstate.state.view import MemoryView, ViewStore

STEPS = 320
CRITICAL = {
    "append copy-finished",
    "append delete-started",
    "append leader-elected",
    "delete objects",
    "delete-records",
}
"""Steps before which a pause is most likely to do harm."""
TIMES = [
    (0.4, 5_000),
    (0.6, 10 * MINUTE),
    (0.8, 2 * HOUR),
    (0.93, 8 * HOUR),
    (0.97, 2 * DAY),
    (0.99, 9 * DAY),
    (1.0, 20 * DAY),
]
"""Cumulative chances, each with the longest jump of the clock (ms)."""


class HistoryClock(ManualClock):
    """A clock whose `sleep` lets appends in flight land."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        self.asleep()


class World:
    """The state of a history that outlives its processes. ``agents``: their number."""

    agents = 3
    new_cluster: type[Cluster] = Cluster

    def __init__(self, seed: int) -> None:
        self.seed, self.rnd, self.seen = seed, Random(seed), Counter[str]()
        self.now = -1
        self.clock = HistoryClock()
        self.keeper = 0
        """The broker that leads the tier-state partition."""
        self.topic = HistoryTopic(self.rnd, self.clock)
        self.clocks = Clocks(seed, self.clock)
        if self.clocks.wrong:
            self.seen["wrong clocks"] += 1
        self.topic.wrong_by_ms = lambda: self.clocks.of_broker(self.keeper)
        retention = self.rnd.choice([6 * HOUR, 3 * DAY, 365 * DAY])
        self.cluster = self.new_cluster(self.rnd, self.clock, TopicId.of((1).to_bytes(16, "big")), retention)
        self.store = LateStore(self.clock, self._store_fault, seed, self.seen)
        self.unclean = self.rnd.choice((0.0, 0.0, 0.3, 0.7))
        self.calm = self.rnd.random() < 0.25
        self.lands_twice = self.rnd.random() < 0.3
        self.by_hand = Random(f"by hand {seed}").random() < 0.25
        """People delete records with Kafka's own tools, also while the agent of a new leader is down."""
        self._archiving = Random(f"archive {seed}")
        self.archived = 0 if self._archiving.random() < 0.4 else None
        """Positions below it are archived. None: there is no archive."""
        self.frozen: dict[int, int] = {}
        self.groups = Groups(seed, self.cluster, self.clock, self.seen)
        self.cluster.listed = self.groups.listing
        self.promises = Promises(self)
        self.cut_tail = CutTail(self, STEPS)
        self.topic.landed, self.topic.writing = self.promises.landed, self.promises.writing
        self.cluster.trimming = self.promises.trimming
        self.clock.asleep = lambda: self.topic.land_late() if self.rnd.random() < 0.2 else None
        self.prepare()
        self.processes = [self.new_process(number, 0, None) for number in range(self.agents)]
        self.followers: list[Follower] = [follow(self, 100 + at, kind=True) for at in range(2)]
        self.orders = 0
        self.slow: list[OperatorOrder] = []
        """Orders that are decided, and appended at a later step."""
        self.people = People(self)
        self.forger = Forger(self)
        self.later_release = LaterRelease(self)
        self.gaps = GapAcceptor(self)
        self.interruptions = Interruptions(self)
        self.bit_rot = BitRot(self)
        self.acting = 0
        """The broker whose agent takes a step."""
        self.deleted_at = self.rnd.randrange(STEPS // 3, STEPS) if self.rnd.random() < 0.15 else STEPS
        self.beheaded_at = self.rnd.randrange(STEPS // 3, STEPS) if self.rnd.random() < 0.1 else STEPS
        self.lost_at = self.rnd.randrange(STEPS // 3, STEPS) if self.rnd.random() < 0.1 else STEPS
        if min(self.deleted_at, self.beheaded_at, self.lost_at) < STEPS:
            self.cut_tail.at = STEPS

    def prepare(self) -> None:
        """Do what must be done before the first process starts."""

    def close(self) -> None:
        """Remove what the history leaves on the disk: nothing."""

    def new_process(self, number: int, age: int, store: ViewStore | None) -> Process:
        return Process(self, number, age, store)

    def responsible(self) -> int:
        """Return the number of the process that has the most to do."""
        return self.cluster.leader.number

    def tell(self, event: object) -> None:
        self.seen[type(event).__name__] += 1

    def _store_fault(self, operation: str, key: str, writes: int) -> None:
        if operation == "delete":
            self.promises.deleting(key)
        if self.rnd.random() < 0.006:
            raise StorageUnavailable("the store does not answer", key=key)

    def run(self, steps: Iterable[int] = range(STEPS)) -> None:
        """Run these steps. Raises AssertionError with the broken promise; ``now`` is the step at which it was found.

        The seed and the step's number alone determine the events of a step, so a history can be shrunk by leaving steps
        out. Then all is well, and the agents must finish, if no fact is lost or forged.
        """
        for step in steps:
            self.now = step
            self.rnd.seed(self.seed * 1_000_003 + step)
            if step >= self.deleted_at and self.cluster.exists:
                self.cluster.exists = False
                self.seen["topic deleted"] += 1
            if step >= self.beheaded_at:
                self.cut_head()
            if step >= self.lost_at:
                self.lose_topic()
            self.cut_tail.step(step)
            self.groups.step(step)
            self.clocks.step(step)
            self.interruptions.step()
            self.bit_rot.step()
            self.later_release.step()
            self.gaps.step()
            self.store.step(step)
            if self.archived is not None and self._archiving.random() < 0.01:
                self.archived = len(self.topic.log)
            self.step()
            self.forger.may_forge()
            if step % 3 == 0:
                self.promises.check()
        self.promises.check()
        lost = self.topic.start > 0 or self.promises.is_lost or self.cut_tail.waiting
        if self.cluster.exists and not lost and not self.forger.forged:  # forged facts may stop even a first term
            finish(self)

    def attend(self) -> Process:
        """Return the process that works for the partition."""
        return self.processes[self.responsible()]

    def archived_to(self, tier_partition: int) -> Position | None:
        """Return the position up to which the topic is archived; None if there is no archive."""
        return None if self.archived is None else Position(self.archived)

    def step(self) -> None:
        chance = self.rnd.random()
        for limit, happen in EVENTS:
            if chance < limit:
                happen(self)
                return
        self.work()

    def work(self) -> None:
        """An agent takes its next step."""
        rnd = self.rnd
        process = rnd.choice([*self.processes, *[self.processes[self.responsible()]] * 4])
        if self.frozen.get(process.broker, -1) < self.now:
            process.step()

    # Losses of the tier-state topic; each happens once.

    def cut_head(self) -> None:
        """Cut the head, as ``cleanup.policy=delete`` or DeleteRecords does. Some agents restart without a view."""
        self.beheaded_at = STEPS
        self.topic.start = Position(self.rnd.randint(0, len(self.topic.log)))
        for process in self.processes:
            if self.rnd.random() < 0.6:
                self.restart(process, None)
        self.seen["head cut"] += 1

    def lose_topic(self) -> None:
        """Delete the topic and run only ``tierstate init``. All processes restart.

        Nothing happens if no segment was copied: the topic would be as good as new.
        """
        self.lost_at = STEPS
        own = f"-{self.cluster.partition.topic_id}/"
        if not any(own in each.key and each.key.endswith(ObjectKind.MANIFEST) for each in listed(self)):
            return
        self.topic.lose()
        self.promises.lose()
        for process in self.processes:
            self.restart(process, None)
        self.followers = [follow(self, 100 + at, kind=True) for at in range(len(self.followers))]
        self.seen["topic lost"] += 1

    def restart(self, process: Process, store: ViewStore | None) -> None:
        process.kill()
        self.frozen.pop(process.broker, None)
        self.processes[process.broker] = self.new_process(process.broker, process.age + 1, store)

    # Events in addition to the agents' own steps.

    def produce(self) -> None:
        self.cluster.produce()

    def elect(self) -> None:
        if self.calm and self.rnd.random() < 0.9:
            return  # a term that lasts gets further
        if self.rnd.random() < 0.2:
            self.keeper = self.rnd.randrange(3)
        unclean = self.rnd.random() < self.unclean
        if unclean and self.rnd.random() < 0.2:
            self.cluster.begin_anew()
            self.seen["log begun anew"] += 1
        elif self.cluster.elect(unclean=unclean):
            self.seen["unclean election" if unclean else "clean election"] += 1
            if self.by_hand and self.rnd.random() < 0.5:
                self.leader_is_alone()

    def leader_is_alone(self) -> None:
        """Stop the new leader's agent for a while. Records are produced, and some are deleted by hand."""
        self.frozen[self.responsible()] = self.now + self.rnd.randint(3, 60)
        for _ in range(self.rnd.randint(1, 3)):
            self.produce()
        self.delete_by_hand()

    def toggle(self) -> None:
        self.cluster.toggle()

    def land_late(self) -> None:
        self.topic.land_late()

    def land_again(self) -> None:
        if self.lands_twice:
            self.topic.land_again()

    def freeze(self) -> None:
        """Freeze an agent inside an operation for a while. Other brokers may be elected before it continues."""
        busy = [] if self.calm else [process for process in self.processes if process.busy]
        critical = [process for process in busy if process.next_step in CRITICAL]
        if busy:
            chosen = self.rnd.choice(critical or busy)
            self.frozen[chosen.broker] = self.now + self.rnd.randint(5, 100)
            self.seen["freeze"] += 1
            for _ in range(self.rnd.choice((0, 1, 1, 2, 3))):
                self.elect()
                if self.rnd.random() < 0.5:
                    self.produce()

    def trim_late(self) -> None:
        self.cluster.trim_late()

    def delete_by_hand(self) -> None:
        """Delete some records, never all, with Kafka's own tools; without ``by_hand`` an agent takes a step instead."""
        leader = self.cluster.leader
        if not self.by_hand:
            self.work()
        elif leader.log and leader.start < leader.log[-1].base:
            before = self.rnd.randint(leader.start, leader.log[-1].base)
            self.cluster.order(before)
            self.cluster.trim(leader.number, self.cluster.epoch, before)
            self.seen["deleted by hand"] += 1

    def pass_time(self) -> None:
        chance = self.rnd.random()
        longest = next(each for limit, each in TIMES if chance < limit)
        self.clock.advance(self.rnd.randint(1, longest) / 1000)
        self.topic.time_passed()

    def crash(self) -> None:
        """Kill a process, and start another one with its view, a copy of it, or no view."""
        if self.calm and self.rnd.random() < 0.9:
            return
        dead = self.rnd.choice(self.processes)
        store = dead.kill()
        self.processes[dead.broker] = self.new_process(dead.broker, dead.age + 1, self.left_of(store))
        self.seen["crash"] += 1

    def left_of(self, store: ViewStore) -> ViewStore | None:
        chance = self.rnd.random()
        return store if chance < 0.6 else None if chance < 0.8 else snapshot(store)

    def follow(self) -> None:
        """Let a follower read on, or restart it first. At a captured end it must hold the topic's live set."""
        at = self.rnd.randrange(len(self.followers))
        if self.rnd.random() < 0.2:
            store = self.left_of(self.followers[at].store)
            self.followers[at] = follow(self, 100 + at, store, kind=True)
        self.promises.captured(self.followers[at])

    def admin(self) -> None:
        self.people.act()

    def restart_broker(self) -> None:
        """Restart the leader's broker, in a new epoch. Now and then its log is emptied before agents observe it."""
        self.cluster.restart()
        self.seen["restart"] += 1
        leader = self.cluster.leader
        first = leader.epochs[0][1]
        self.seen["log begins below its epochs"] += leader.start < first
        self.seen["segments below its epochs"] += any(leader.start < base <= first for base in leader.bases)
        if self.rnd.random() < 0.15:
            self.take_all()

    def take_all(self) -> None:
        """Delete all records, as Kafka's retention of the active segment or `kafka-delete-records` with -1 does."""
        if self.cluster.leader.start < self.cluster.leader.end and not self.cluster.leader.open():
            self.promises.records.cut()
            self.cluster.take_all()
            self.seen["active segment taken"] += 1

    def order_below(self, before: int, force: bool = False) -> None:
        """Order the deletion of records below ``before`` with the command's plan. Some orders land steps later."""
        view, now, kind = self.promises.live.view(), self.clock.now_ms(), OrderKind.DELETE_RECORDS
        try:
            bounds = HistoryControl(self.cluster).bounds(NAME, 0)
            plan = plan_delete(view, bounds, Offset(before), force, now)
        except TierstateError:
            return
        self.orders += 1
        identity = FactId.of(self.orders.to_bytes(16, "little"))
        order = OperatorOrder(self.cluster.partition, identity, kind, plan.before, force, "ops", now, plan.lineage)
        self.cluster.order(before)
        if self.rnd.random() < 0.3:
            self.slow.append(order)
        else:
            self.say(order)

    def say(self, fact: Fact) -> None:
        self.seen[type(fact).__name__] += 1
        self.topic.land(key_of(fact), encode_fact(fact))


def snapshot(store: ViewStore) -> ViewStore:
    """Return a copy of a view as it is now."""
    copy = MemoryView(decode_fact)
    copy.apply(0, [entry for _, entry in store.entries(0)], store.position(0), anchor=store.anchor(0))
    copy.mark_as_of(0, store.as_of(0))
    return copy


EVENTS: list[tuple[float, Callable[[World], None]]] = [
    (0.08, World.produce),
    (0.095, World.elect),
    (0.11, World.toggle),
    (0.135, World.land_late),
    (0.15, World.trim_late),
    (0.22, World.pass_time),
    (0.235, World.crash),
    (0.265, World.follow),
    (0.275, World.admin),
    (0.29, World.land_again),
    (0.32, World.freeze),
    (0.325, World.delete_by_hand),
    (0.333, World.restart_broker),
    (0.337, World.take_all),
]
"""Cumulative chances of events. In all other cases an agent takes its next step."""

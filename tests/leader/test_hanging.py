"""Every loop of an agent that is held is named by its health, and is well again once it is let go."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import tierstate
from tests.follower.said import PARTITIONS
from tests.leader.custody_world import Ward
from tests.leader.test_agent import Loop, partition
from tests.leader.world import World
from tests.scenarios.house import eventually
from tests.test_docs import section
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.looking.watching import feed_loop_gauges, longest_silence, why_hanging, why_unhealthy
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.follower.view_watch import ViewWatch
from tierstate.leader.agent import Agent
from tierstate.leader.chores import Chore, ChoreLoop
from tierstate.leader.discovery import Hosted
from tierstate.runtime.listener import ignore
from tierstate.runtime.metrics import Metrics
from tierstate.runtime.operation import Operation
from tierstate.runtime.service import Service
from tierstate.runtime.settings import Settings
from tierstate.runtime.watchdog import Supervisor, Watchdog, alive, loop
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import Position
from tierstate.storage.memory import MemoryStore
from tierstate.storage.probe import StoreWatch
from tierstate.storage.wrapped_stores import living

LIMITS = longest_silence(Settings())
LONG_S = max(LIMITS.values())


class Held:
    """A hook that holds each thread that calls `here` until `let_go`."""

    def __init__(self) -> None:
        self.reached, self._free = threading.Event(), threading.Event()

    def here(self) -> None:
        self.reached.set()
        assert self._free.wait(30)

    def let_go(self) -> None:
        self._free.set()


class Watched:
    """A watchdog with a real agent's limits, over a clock that only the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.watchdog = Watchdog(self.clock, LIMITS, Supervisor({}), lambda event, **facts: None)
        self.held = Held()

    @contextmanager
    def running(self, name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
        service = Service(name, work)
        service.start()
        try:
            yield
        finally:
            self.held.let_go()
            service.stop()
            assert service.join(30)
            assert service.failure is None

    def hangs_until_let_go(self, loop: str, doing: str = "") -> None:
        assert self.held.reached.wait(30)
        self.clock.advance(LIMITS[loop] - 1)
        assert not self.hanging(loop), "it may take that long"
        self.clock.advance(1)
        (sentence,) = [each for each in why_hanging(self.watchdog) if f"loop={loop} " in each]
        assert doing in sentence
        self.held.let_go()
        eventually(lambda: not self.hanging(loop))

    def hanging(self, loop: str) -> bool:
        return loop in [each.loop for each in self.watchdog.hangs()]


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Yield a watchdog of the test's thread, and so of all that the test starts."""
    watch = Watched()
    with watch.watchdog:
        yield watch


def agent_of(loop: Loop) -> Agent:
    return Agent(loop._hosted, loop._new_worker, loop.board, 2, loop.schedule)


def test_an_act_that_hangs_is_named_with_its_partition_while_the_others_go_on(watched: Watched) -> None:
    loop = Loop((3, 0), (3, 0))
    loop.workers[partition(1)].before_act = watched.held.here
    with watched.running("agent", agent_of(loop).run):
        eventually(lambda: loop.journal == [0] * 3)
        watched.hangs_until_let_go("operations", "doing=t-1 ")
        eventually(lambda: sorted(loop.journal) == [0] * 3 + [1] * 3)
        watched.clock.advance(LONG_S)
        assert not watched.hanging("operations"), "who waits for work does not hang"


def test_an_act_that_says_that_it_goes_on_may_take_as_long_as_it_likes(watched: Watched) -> None:
    hangs = list[object]()

    def copy() -> None:
        for _ in range(3):
            watched.clock.advance(LIMITS["operations"] - 1)
            hangs.extend(each for each in watched.watchdog.hangs() if each.loop == "operations")
            alive()

    loop = Loop((1, 0))
    loop.workers[partition(0)].before_act = copy
    with watched.running("agent", agent_of(loop).run):
        eventually(lambda: loop.journal == [0])
    assert hangs == []


def test_a_copy_goes_on_with_each_piece_and_each_answer_of_the_store(watched: Watched, world: World) -> None:
    process, hangs, pieces = world.process(), list[object](), list[int]()

    def slow(size: int) -> None:
        pieces.append(size)
        watched.clock.advance(LIMITS["operations"] - 1)
        hangs.extend(each for each in watched.watchdog.hangs() if each.loop == "operations")

    process.tools = replace(process.tools, store=living(world.store), throttle=slow)
    with loop("operations"):
        worker = process.worker()
        while worker.advance():
            pass
    assert len(pieces) > 10
    assert hangs == []


def test_every_act_of_a_long_turn_has_its_own_time(watched: Watched) -> None:
    hangs = list[object]()

    def act() -> None:
        watched.clock.advance(LIMITS["operations"] - 1)
        hangs.extend(each for each in watched.watchdog.hangs() if each.loop == "operations")

    loop = Loop((5, 0))
    loop.workers[partition(0)].before_act = act
    with watched.running("agent", agent_of(loop).run):
        eventually(lambda: len(loop.journal) == 5)
    assert hangs == []


def test_an_agent_whose_disks_never_answer_hangs(watched: Watched) -> None:
    loop = Loop((0, 0))

    def hosted() -> dict[TopicIdPartition, Hosted]:
        watched.held.here()
        return {}

    agent = Agent(hosted, loop._new_worker, loop.board, 1, loop.schedule)
    with watched.running("agent", agent.run):
        watched.hangs_until_let_go("agent")


def test_a_chore_that_hangs_holds_the_loop_of_all_chores(watched: Watched, world: World) -> None:
    def act(number: int, stop: threading.Event) -> Operation[None]:
        watched.held.here()
        yield "archive"

    custodian = Ward(world).custodian
    chores = ChoreLoop(lambda: {0}, [Chore("archive", 60, act)], custodian, lambda: None, world.clock, ignore)
    with watched.running("chores", chores.run):
        watched.hangs_until_let_go("chores")


def test_a_loop_of_chores_that_has_nothing_to_do_does_not_hang(watched: Watched, world: World) -> None:
    looked = threading.Event()
    chores = ChoreLoop(list, [], Ward(world).custodian, looked.set, world.clock, ignore)
    with watched.running("chores", chores.run):
        assert looked.wait(30)
        watched.clock.advance(LIMITS["chores"])
        eventually(lambda: not watched.hanging("chores"))


class HoldingTopic(MemoryTierTopic):
    """A topic that holds each thread that asks for ends or problems."""

    held: Held | None = None

    def end(self, tier_partition: int) -> Position:
        if self.held is not None:
            self.held.here()
        return super().end(tier_partition)

    def problems(self) -> list[str]:
        if self.held is not None:
            self.held.here()
        return super().problems()


@pytest.mark.parametrize("loop", ["view", "view watch", "topic watch"])
def test_a_loop_that_waits_for_the_tier_state_topic_for_ever_hangs(watched: Watched, loop: str) -> None:
    topic = HoldingTopic(PARTITIONS)
    memory = InMemory(PARTITIONS)
    follower = Follower(topic, memory.fresh(), memory, watched.clock)
    watch = ViewWatch(topic, follower, watched.clock)
    topic.held = watched.held
    works = {"view": lambda stop: None, "view watch": watch.run, "topic watch": watch.run_problems}
    if loop == "view":
        follower.start()
    with watched.running(loop, works[loop]):
        watched.hangs_until_let_go(loop)
    follower.close()


def test_a_store_that_never_answers_in_spite_of_its_deadlines_holds_its_watch(watched: Watched) -> None:
    store = MemoryStore(faults=lambda operation, key, writes: watched.held.here())
    with watched.running("store watch", StoreWatch(store, watched.clock).run):
        watched.hangs_until_let_go("store watch")


def test_a_hanging_thread_is_unhealthy_and_counted_by_its_loop(watched: Watched) -> None:
    metrics, memory = Metrics(), InMemory(PARTITIONS)
    follower = Follower(
        MemoryTierTopic(PARTITIONS), memory.fresh(), memory, watched.clock, Following(tail=False)
    ).start()
    feed_loop_gauges(metrics, watched.watchdog)
    with loop("operations", "t-0"):
        assert why_unhealthy([], watched.watchdog, follower) == []
        watched.clock.advance(LONG_S)
        assert why_unhealthy([], watched.watchdog, follower) == why_hanging(watched.watchdog) != []
        page = metrics.exposition().decode()
        assert 'tierstate_hung_threads{loop="operations"} 1.0' in page
        assert 'tierstate_hung_threads{loop="chores"} 0.0' in page


def test_every_loop_has_a_limit_of_minutes_and_every_limit_a_loop() -> None:
    rooms = Path(tierstate.__file__).parent
    sources = [path.read_text() for room in rooms.iterdir() for path in room.rglob("*.py")]  # rooms may be links
    named = {name for text in sources for name in re.findall(r'(?:loop|go_round)\("([a-z ]+)"', text)}
    assert named == LIMITS.keys()
    assert min(LIMITS.values()) >= 300


def test_a_store_that_is_given_longer_is_given_longer() -> None:
    patient = Settings.model_validate({"store": {"throttle_timeout": 3600}})
    assert longest_silence(patient)["operations"] > 3600


def test_the_page_says_of_every_loop_how_long_it_may_be_silent() -> None:
    rows = re.findall(r"^\| (`.+`) \| .+ \| (\d+) min", section("docs/operations.md", "A thread hangs"), re.M)
    limits = {name: int(minutes) for names, minutes in rows for name in re.findall("`(.+?)`", names)}
    assert limits == {name: round(seconds / 60) for name, seconds in LIMITS.items()}

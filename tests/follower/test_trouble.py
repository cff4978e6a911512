"""A disk that fills, a broker that goes away, a topic that is re-created: callers get an error, nothing is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.follower.file_topic import PARTITIONS as FILE_PARTITIONS
from tests.follower.file_topic import FileTopic
from tests.follower.moody import NO_ROOM, MoodyTopic, MoodyView
from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.tier_topic import TierReader
from tierstate.fetch.recent_views import RecentViews
from tierstate.follower.digests import digests_of
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import Event, ViewRebuilt, ViewStopped
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.errors import AccessDenied, BrokerUnavailable, PositionLost, TierstateError, ViewBehind
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Position
from tierstate.state.view import READY_AGE_S, Entry, ViewStore

NUMBER = tier_partition_of(partition(0), PARTITIONS)


def following(topic: MemoryTierTopic, store: ViewStore, *, tail: bool) -> Follower:
    return Follower(topic, store, InMemory(PARTITIONS), ManualClock(), Following(tail=tail)).start()


NO_RIGHT = AccessDenied("the broker refuses these credentials", needs="READ")


@pytest.mark.parametrize("trouble", [NO_ROOM, NO_RIGHT], ids=["full disk", "no right"])
def test_a_passing_trouble_reaches_all_waiting_callers_and_nothing_is_missing_afterwards(
    trouble: TierstateError, said: Topic
) -> None:
    store = MoodyView(decode_fact, PARTITIONS)
    follower = following(said.topic, store, tail=False)
    leader = elected(0, 3, 1)
    at = said.say(leader)
    follower.require_fresh(NUMBER, 3600)
    store.error = trouble
    said.say(log_start(0, 7, leader, at))
    with pytest.raises(type(trouble)):
        follower.advance()
    with pytest.raises(type(trouble)):
        follower.wait_applied(NUMBER, Position(1), 1)
    with pytest.raises(type(trouble)):
        follower.require_fresh(NUMBER, 3600)
    said.say(log_start(0, 8, leader, at, counter=2))
    store.error = None
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(0)).log_start == 8
    assert len(follower.facts(partition(0))) == 3


def test_a_view_whose_disk_is_full_stays_ready_for_six_hours_and_is_logged_once(said: Topic) -> None:
    store, clock, events = MoodyView(decode_fact, PARTITIONS), ManualClock(), list[Event]()
    options = Following(tail=False, listener=events.append)
    follower = Follower(said.topic, store, InMemory(PARTITIONS), clock, options).start()
    at = said.say(leader := elected(0, 3, 1))
    follower.require_fresh(NUMBER, 0)
    store.error = NO_ROOM
    said.say(log_start(0, 7, leader, at))
    for _ in range(3):
        with pytest.raises(type(NO_ROOM)):
            follower.advance()
    assert [event for event in events if isinstance(event, ViewStopped)] == [ViewStopped(str(NO_ROOM))]
    recent = RecentViews(follower, clock)
    clock.advance(READY_AGE_S - 1)
    recent.require(NUMBER)
    follower.require_ready(NUMBER)
    clock.advance(1)
    for require in (recent.require, follower.require_ready):
        with pytest.raises(type(NO_ROOM)):
            require(NUMBER)
    store.error = None
    recent.require(NUMBER)
    assert follower.partition(partition(0)).log_start == 7


@pytest.mark.parametrize("trouble", [NO_ROOM, NO_RIGHT], ids=["full disk", "no right"])
def test_a_tail_retries_after_a_passing_trouble_by_itself(trouble: TierstateError, said: Topic) -> None:
    store = MoodyView(decode_fact, PARTITIONS)
    store.error = trouble
    follower = following(said.topic, store, tail=True)
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.say(log_start(0, 7, leader, at))
    with pytest.raises(type(trouble)):
        follower.wait_applied(NUMBER, Position(1), 30)
    store.error = None
    for _ in range(600):  # the trouble is over a moment after its records are applied
        with suppress(type(trouble)):
            if follower.store.position(NUMBER) == 2:
                follower.require_fresh(NUMBER, 0)
                break
        SystemClock().sleep(0.05)
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(0)).log_start == 7
    follower.close()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tests.follower.file_topic import FileTopic, PARTITIONS
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.recent_views import RecentViews
from tierstate.follower.digests import digests_of
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.state.errors import DiskFull

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
topic = FileTopic(Path(sys.argv[1]))
follower = open_view(topic, "cluster", ManualClock(), Following(tail=False), state_dir=Path(sys.argv[2]))
more = Path(sys.argv[1] + ".more").read_bytes()
with open(sys.argv[1], "ab") as file:
    file.write(more)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
failures = 0
for _ in range(3):
    try:
        for number in range(PARTITIONS):
            follower.require_fresh(number, 0)
    except DiskFull:
        failures += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert failures == 3, failures
for number in range(PARTITIONS):
    follower.require_fresh(number, 0)
print(digests_of(follower.store).live_set)
follower.close()
again = open_view(topic, "cluster", ManualClock(), Following(tail=False), state_dir=Path(sys.argv[2]))
print(digests_of(again.store).live_set)
again.close()
"""


@pytest.mark.extended
def test_a_real_view_whose_disk_fills_in_a_write_batch_goes_on_when_there_is_room(tmp_path: Path) -> None:
    before, more = FileTopic(tmp_path / "topic"), FileTopic(tmp_path / "topic.more")
    whole = FileTopic(tmp_path / "whole")
    facts = [elected(user, 1, user) for user in range(1, 2_000)]
    records: list[tuple[int, str, bytes | None]] = [
        (tier_partition_of(fact.partition, FILE_PARTITIONS), key_of(fact), encode_fact(fact)) for fact in facts
    ]
    before.say(records[:100])
    more.say(records[100:])
    whole.say(records)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "topic"), str(tmp_path / "state")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    oracle = open_view(whole, "cluster", ManualClock(), Following(tail=False))
    for number in range(FILE_PARTITIONS):
        oracle.require_fresh(number, 0)
    assert done.stdout.split() == [digests_of(oracle.store).live_set] * 2


@pytest.mark.parametrize("tail", [False, True])
def test_a_rebuild_that_fails_is_tried_again_and_nothing_is_fresh_until_then(tmp_path: Path, tail: bool) -> None:
    topic = MoodyTopic(PARTITIONS)
    said = Topic(topic)
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.say(log_start(0, 7, leader, at))
    follower = open_view(topic, "cluster", SystemClock(), Following(tail=tail), state_dir=tmp_path)
    follower.require_fresh(NUMBER, 3600)
    topic.away = True
    topic.truncate(NUMBER, 1)
    said.say(log_start(0, 5, leader, at, counter=2)), said.say(log_start(0, 6, leader, at, counter=3))
    if tail:
        for _ in range(600):
            if follower.lost is not None:
                break
            SystemClock().sleep(0.05)
    else:
        with pytest.raises(BrokerUnavailable):
            follower.advance() or follower.advance()
    assert follower.lost is not None
    with pytest.raises((ViewBehind, BrokerUnavailable)):
        follower.require_fresh(NUMBER, 3600, 0.2)
    topic.away = False
    follower.require_fresh(NUMBER, 0)
    assert follower.partition(partition(0)).log_start == 6
    follower.close()
    assert len([entry for entry in (tmp_path / "view").iterdir() if entry.name.isdigit()]) == 1


@pytest.mark.parametrize("later", [0, 31])
def test_a_recreated_topic_ends_the_follower_with_a_typed_error_and_never_fills_its_view(
    tmp_path: Path, later: int
) -> None:
    topic = MoodyTopic(PARTITIONS)
    said, clock = Topic(topic), ManualClock()
    said.say(elected(0, 3, 1))
    follower = open_view(topic, "cluster", clock, Following(tail=False), state_dir=tmp_path)
    follower.require_fresh(NUMBER, 0)
    topic.other = "AAAAAAAAAAAAAAAAAAAAAw"
    topic.truncate(NUMBER, 0)
    said.say(elected(0, 9, 2))
    clock.advance(later)  # noticed by a rebuild, or by looking now and then
    for _ in range(2):
        with pytest.raises(TierstateError, match="re-created"):
            follower.require_fresh(NUMBER, 0)
    leader = follower.partition(partition(0)).leader
    assert leader is not None
    assert leader.epoch == 3
    follower.close()


def test_a_recreated_topic_with_fewer_partitions_ends_the_follower_too(tmp_path: Path) -> None:
    """The broker created it for a stray client."""
    topic = MoodyTopic(PARTITIONS)
    said = Topic(topic)
    said.say(elected(0, 3, 1))
    follower = open_view(topic, "cluster", ManualClock(), Following(tail=False), state_dir=tmp_path)
    follower.require_fresh(NUMBER, 0)
    topic.truncate(NUMBER, 0)
    topic.other, topic.away = "AAAAAAAAAAAAAAAAAAAAAw", True
    assert follower.advance() == 0
    assert follower.lost is not None
    with pytest.raises(TierstateError, match="re-created"):
        follower.advance()
    assert follower.failure is not None
    follower.close()


@pytest.mark.parametrize("more", [1, 2])
def test_a_checkpoint_of_a_lost_branch_is_not_built_upon(said: Topic, tmp_path: Path, more: int) -> None:
    leader = elected(0, 3, 1)
    at = said.say(leader)
    said.topic.truncate(NUMBER, 1)
    for counter in range(more):  # one: the checkpoint stands exactly at the end, and nothing is left to read
        said.say(log_start(0, 5 + counter, leader, at, counter=counter))
    ghost = log_start(0, 99, leader, at, counter=7)

    def seed(store: ViewStore, number: int, end: Position) -> None:
        if number == NUMBER:
            store.apply(number, [Entry(key_of(ghost), Position(1), encode_fact(ghost))], Position(2), 0)

    follower = open_view(said.topic, "cluster", ManualClock(), Following(tail=False, seed=seed), state_dir=tmp_path)
    assert follower.partition(partition(0)).log_start == 4 + more
    follower.close()


class Cursed(MemoryTierTopic):
    """A topic on which every reader that begins above the beginning has lost its position."""

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        if any(positions.values()):
            raise PositionLost("position is out of range")
        return super().reader(positions, epochs)


def test_a_view_that_is_lost_as_soon_as_it_is_rebuilt_is_not_rebuilt_without_a_pause() -> None:
    topic = Cursed(PARTITIONS)
    events: list[Event] = []
    follower = open_view(topic, "cluster", ManualClock(), Following(tail=False, listener=events.append))
    Topic(topic).say(elected(0, 3, 1))
    follower.advance()
    topic.truncate(NUMBER, 0)
    Topic(topic).say(elected(0, 4, 2))
    for rebuilds in (1, 2):
        with pytest.raises(ViewBehind, match="as soon as"):
            follower.wait_applied(NUMBER, Position(5), 1)
        assert len([event for event in events if isinstance(event, ViewRebuilt)]) == rebuilds
    follower.close()

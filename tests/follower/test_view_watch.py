"""The lag of a view, which is known without waiting: it grows while nothing answers; a thread that died is named."""

from __future__ import annotations

import threading

import pytest

from tests.follower.moody import NO_ROOM, MoodyTopic, MoodyView
from tests.follower.said import PARTITIONS, Topic, elected, log_start, partition
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.app.looking.watching import feed_view_gauges, why_behind, why_unhealthy
from tierstate.broker.tier_reader import lost_heads
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.follower.replay import batches_until
from tierstate.follower.view_watch import ViewWatch
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.metrics import Metrics
from tierstate.runtime.service import Service
from tierstate.runtime.watchdog import Supervisor, Watchdog
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import DiskFull, IllegalTransition, TierStateLost, Unavailable
from tierstate.state.keys import tier_partition_of
from tierstate.state.offsets import Position

NUMBER = tier_partition_of(partition(0), PARTITIONS)
GO = threading.Event()
UNWATCHED = Watchdog(ManualClock(), {}, Supervisor({}), print)


class Watched:
    def __init__(self, *, tail: bool = False) -> None:
        self.clock, self.topic = ManualClock(), MoodyTopic(PARTITIONS)
        self.said = Topic(self.topic)
        self.store = MoodyView(decode_fact, PARTITIONS)
        self.follower = Follower(
            self.topic,
            self.store,
            InMemory(PARTITIONS),
            self.clock if not tail else SystemClock(),
            Following(tail=tail),
        ).start()
        self.watch = ViewWatch(self.topic, self.follower, self.clock)

    def say(self) -> None:
        leader = elected(0, 3, 1)
        self.said.say(log_start(0, 7, leader, self.said.say(leader)))


def test_entries_that_are_not_applied_are_the_lag_and_applying_them_ends_it() -> None:
    watched = Watched()
    watched.say()
    watched.clock.advance(100)
    watched.watch.look(GO)
    assert watched.watch.lags()[NUMBER] == 2
    assert watched.watch.ages()[NUMBER] == 100
    watched.follower.advance()
    watched.clock.advance(5)
    assert watched.watch.lags()[NUMBER] == 0
    assert watched.watch.positions()[NUMBER] == 2
    assert watched.watch.ages()[NUMBER] == 5, "as old as the end that it reached"


def test_a_topic_that_is_away_is_reported_and_the_view_grows_old() -> None:
    watched = Watched()
    watched.watch.look(GO)
    assert why_behind(watched.follower, watched.watch, 60) == []
    watched.topic.away = True
    watched.clock.advance(70)
    watched.watch.look(GO)
    assert "offsets are unknown" in watched.watch.away[0]
    (reason,) = why_behind(watched.follower, watched.watch, 60)
    assert f"{PARTITIONS} tier-state partitions are behind" in reason
    assert "seconds=70" in reason
    assert why_behind(watched.follower, watched.watch, 3600) == []
    watched.topic.away = False
    watched.watch.look(GO)
    assert (watched.watch.away, why_behind(watched.follower, watched.watch, 60)) == ([], [])


def test_a_view_that_was_never_compared_with_its_topic_is_behind() -> None:
    watched = Watched()
    assert why_behind(watched.follower, watched.watch, 3600)


def test_a_full_disk_of_the_view_is_why_it_is_not_ready_and_no_reason_for_a_restart() -> None:
    watched = Watched()
    watched.watch.look(GO)
    watched.store.error = NO_ROOM
    watched.say()
    with pytest.raises(DiskFull):
        watched.follower.advance()
    assert "no room left" in why_behind(watched.follower, watched.watch, 60)[0]
    assert why_unhealthy([], UNWATCHED, watched.follower) == []


def test_a_follower_that_ended_is_unhealthy_with_its_reason() -> None:
    watched = Watched()
    assert why_unhealthy([], UNWATCHED, watched.follower) == []
    watched.store.error = IllegalTransition("two accepted facts contradict each other")
    watched.say()
    with pytest.raises(IllegalTransition):
        watched.follower.advance()
    assert "contradict" in why_unhealthy([], UNWATCHED, watched.follower)[0]
    assert "contradict" in why_behind(watched.follower, watched.watch, 60)[0]


@pytest.mark.parametrize("name", ["agent", "chores", "view watch", "store watch", "management"])
def test_a_thread_of_the_process_that_ended_is_unhealthy_by_its_name(name: str) -> None:
    def die(stop: threading.Event) -> None:
        raise RuntimeError("a bug")

    watched = Watched()
    service = Service(name, die)
    assert why_unhealthy([service], UNWATCHED, watched.follower) == []
    service.start()
    assert service.join(10)
    assert why_unhealthy([service], UNWATCHED, watched.follower) == [f"service {name} died: RuntimeError('a bug')"]


def test_the_gauges_are_of_every_tier_state_partition_and_a_drift_is_counted() -> None:
    watched, metrics = Watched(), Metrics()
    feed_view_gauges(metrics, watched.watch)
    assert "tierstate_topic_problems 0" not in metrics.exposition().decode(), "it was never looked at"
    watched.topic.drift = ["cleanup.policy is delete", "min.insync.replicas is 1"]
    watched.watch.look(GO)
    watched.watch.look_at_problems()
    page = metrics.exposition().decode()
    assert page.count('tierstate_view_age_seconds{tier_partition="') == PARTITIONS
    assert "tierstate_topic_problems 2.0" in page


@pytest.mark.parametrize("consumed", [True, False])
def test_a_lost_head_is_counted_and_reported_also_by_a_view_that_has_it(consumed: bool) -> None:
    watched, metrics = Watched(), Metrics()
    feed_view_gauges(metrics, watched.watch)
    watched.say()
    if consumed:
        watched.follower.require_fresh(NUMBER, 0)
    watched.watch.look(GO)
    watched.watch.look_at_problems()
    assert "tierstate_heads_lost 0.0" in metrics.exposition().decode()
    assert lost_heads("the tier-state topic", watched.watch.beheaded) == []
    watched.topic.cut_head(NUMBER, 1)
    watched.watch.look_at_problems()
    page = metrics.exposition().decode()
    assert "tierstate_heads_lost 1.0" in page
    assert "tierstate_topic_problems 1.0" in page
    (reason,) = lost_heads("the tier-state topic", watched.watch.beheaded)
    assert f"partition {NUMBER} of the tier-state topic begins at 1: its head is gone" in reason
    if not consumed:
        with pytest.raises(TierStateLost):
            watched.follower.advance()
        assert "its head is gone" in why_behind(watched.follower, watched.watch, 60)[0]
    assert why_unhealthy([], UNWATCHED, watched.follower) == [], "a new process would not bring it back"


def test_reading_the_topic_ends_when_the_process_is_told_to_stop() -> None:
    stop, topic = threading.Event(), MemoryTierTopic(1)
    topic.append(0, "key", b"value")
    batches = batches_until(topic.reader({0: Position(0)}), 0, Position(2), stop)
    assert next(batches).following == 1
    stop.set()
    with pytest.raises(Unavailable, match="stops"):
        next(batches)

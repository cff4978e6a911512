"""Reads while the tier-state topic is away: they go on from the view until it is too old, and never guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fetch.two_tiers import Golden
from tests.leader.world import FaultyTopic
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.recent_views import ASK_AGAIN_S, VIEW_AGE_S, RecentViews
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.state.errors import BrokerUnavailable, LogGap, ViewBehind
from tierstate.state.routing import Tier
from tierstate.state.view import READY_AGE_S

Make = Callable[..., Golden]


class Away:
    """A topic that can go away, and a view that was at its end when it did."""

    def __init__(self) -> None:
        self.clock, self.topic = ManualClock(), FaultyTopic()
        self.asked = 0
        self.view: Follower = open_view(self.topic, "cluster", self.clock)
        self.view.require_fresh(0, 0)
        self.recent = RecentViews(self.view, self.clock)

    def goes(self) -> None:
        def refuse() -> None:
            self.asked += 1
            raise BrokerUnavailable("no answer")

        self.topic.on_end = refuse

    def comes(self) -> None:
        def answer() -> None:
            self.asked += 1

        self.topic.on_end = answer


@pytest.fixture
def away() -> Iterator[Away]:
    topic = Away()
    yield topic
    topic.view.close()


def test_reads_go_on_from_the_view_until_it_is_too_old_and_then_say_so(away: Away) -> None:
    away.goes()
    away.clock.advance(VIEW_AGE_S)
    away.recent.require(0)
    away.clock.advance(READY_AGE_S - VIEW_AGE_S - 1)
    away.recent.require(0)
    away.clock.advance(1)
    with pytest.raises(ViewBehind, match=r"too old to read by.*no answer"):
        away.recent.require(0)
    away.clock.advance(ASK_AGAIN_S)
    with pytest.raises(ViewBehind, match=r"too old to read by"):
        away.recent.require(0)


def test_a_topic_that_is_away_is_asked_only_now_and_then(away: Away) -> None:
    """Each attempt takes the time-out of a look; all partitions of its tier-state partition share it."""
    away.goes()
    away.clock.advance(VIEW_AGE_S)
    for _ in range(100):
        away.recent.require(0)
    assert away.asked == 1
    away.clock.advance(ASK_AGAIN_S)
    away.recent.require(0)
    assert away.asked == 2
    away.clock.advance(READY_AGE_S)
    for _ in range(100):
        with pytest.raises(ViewBehind):
            away.recent.require(0)
    assert away.asked == 4, "once for a fresh view, once for one that is ready"


def test_reads_want_a_fresh_view_again_once_the_topic_answers(away: Away) -> None:
    away.goes()
    away.clock.advance(READY_AGE_S)
    with pytest.raises(ViewBehind):
        away.recent.require(0)
    away.comes()
    away.clock.advance(ASK_AGAIN_S)
    away.recent.require(0)
    before = away.asked
    away.clock.advance(VIEW_AGE_S)
    away.recent.require(0)
    assert away.asked == before + 1


def test_an_old_view_never_makes_a_gap_of_later_trims(golden_log: Make) -> None:
    """The agent's view is another one: it may go on copying and trimming while we are cut off."""
    topic = FaultyTopic()
    golden = golden_log(copies=1, topic=topic)
    bases = golden.folder.bases

    def refuse() -> None:
        raise BrokerUnavailable("no answer")

    topic.on_end = refuse
    golden.local.local_start = bases[2]
    golden.reader.bounds("t", 0)
    assert golden.reader.fetch("t", 0, 0).tier is Tier.REMOTE
    with pytest.raises(BrokerUnavailable):
        golden.reader.fetch("t", 0, bases[1])
    topic.on_end = lambda: None
    with pytest.raises(LogGap):
        golden.reader.fetch("t", 0, bases[1])

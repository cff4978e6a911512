"""Readers while the leader's own agent is down: they read what the broker confirms, and never a lost branch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden, Row, golden_rows, rows_of
from tests.leader.world import FaultyTopic
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.logical import BOUNDS_AGE_S, Ask
from tierstate.fetch.plan import plan
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import BrokerUnavailable, LineageUnconfirmed, OffsetOutOfRange
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, ReadRemote, Tier

Make = Callable[..., Golden]


@pytest.fixture
def golden(golden_log: Make) -> Golden:
    """Return a log of which the broker has the last segment; all before is copied. The lineage has epoch 0 alone."""
    log = golden_log()
    log.local.delete_records(log.folder.bases[-1])
    return log


def lose(golden: Golden, at: int) -> None:
    """Elect a leader uncleanly that had the log up to ``at``, and delete its records above that."""
    end = golden.local.high_watermark
    golden.local.local_start = 0
    golden.local.epochs = [(0, 0)]
    golden.local.elect(1, at)
    golden.local.high_watermark = golden.local.last_stable_offset = end
    golden.local.delete_records(golden.folder.bases[-1])


def everything(golden: Golden, tier: Tier = Tier.AUTO) -> list[Row]:
    start, end = golden.reader.extent("t", 0, tier=tier)
    return rows_of(golden.reader.scan("t", 0, start, end, tier=tier, piece_bytes=2000))


def test_after_a_clean_election_reads_go_on_and_the_leader_is_asked_once(golden: Golden) -> None:
    golden.local.elect(1)
    assert everything(golden) == golden_rows("transactions", Isolation.READ_COMMITTED)
    assert golden.local.asked == [0]
    golden.local.elect(2)
    assert everything(golden) == golden_rows("transactions", Isolation.READ_COMMITTED)
    assert golden.local.asked == [0, 0], "a new leader is asked anew"


def test_no_broker_is_asked_during_the_leaders_own_term(golden: Golden) -> None:
    golden.local.elect(1)
    golden.tiers.elect(Lineage.of((0, 0), (1, golden.local.high_watermark)))
    golden.tiers.view.require_fresh(0, 0)
    everything(golden)
    assert golden.local.asked == []


@pytest.mark.parametrize("tier", [Tier.AUTO, Tier.REMOTE, Tier.PREFER_REMOTE])
def test_a_lost_branch_is_never_read_when_the_broker_forgot_where_it_left_it(golden: Golden, tier: Tier) -> None:
    lose(golden, at=500)
    with pytest.raises(LineageUnconfirmed):
        everything(golden, tier)
    for offset in (0, 499, 500, golden.folder.bases[-1] - 1):
        with pytest.raises(LineageUnconfirmed):
            golden.reader.fetch("t", 0, offset, tier=tier)
    with pytest.raises(LineageUnconfirmed):
        plan(golden.reader, {("t", 0): (Offset(0), Offset(golden.local.high_watermark))})
    with pytest.raises(LineageUnconfirmed):
        golden.reader.offset_for_time("t", 0, 0)
    assert golden.reader.fetch("t", 0, golden.folder.bases[-1]).tier is Tier.LOCAL


def part_at(golden: Golden, at: int) -> None:
    """Put a term in force whose leader had the log up to ``at``. Then elect a leader that had all of it before."""
    golden.tiers.elect(Lineage.of((0, 0), (1, at)))
    golden.tiers.view.require_fresh(0, 0)
    golden.local.elect(2)


@pytest.mark.parametrize("at", [500, 900])
def test_it_is_read_up_to_where_the_leader_left_it(golden: Golden, at: int) -> None:
    part_at(golden, at)
    read = rows_of(golden.reader.scan("t", 0, 0, at, piece_bytes=2000))
    assert read == [row for row in golden_rows("transactions", Isolation.READ_COMMITTED) if row[0] < at]
    with pytest.raises(LineageUnconfirmed):
        golden.reader.fetch("t", 0, at)
    assert golden.local.asked == [1]


def test_a_long_read_asks_again_when_it_meets_a_new_leader(golden_log: Make) -> None:
    clock = ManualClock()
    golden = golden_log(clock=clock)
    golden.local.delete_records(golden.folder.bases[-1])
    piece = golden.reader.fetch("t", 0, 0, max_bytes=2000)
    lose(golden, at=500)
    clock.advance(BOUNDS_AGE_S)
    with pytest.raises(LineageUnconfirmed):
        golden.reader.fetch("t", 0, piece.next_offset)


def test_an_election_while_it_is_asked_makes_it_ask_the_next_leader(golden: Golden) -> None:
    golden.local.elect(1)
    golden.reader.bounds("t", 0)
    golden.local.answers = [lambda: golden.local.elect(2)]
    assert golden.reader.fetch("t", 0, 0).tier is Tier.REMOTE
    assert golden.local.asked == [0]


def test_what_is_loaded_ahead_ends_where_the_leader_left_it(golden: Golden) -> None:
    part_at(golden, 900)
    log = golden.reader.partition("t", 0)
    where = log.route(0, Isolation.READ_COMMITTED, Tier.REMOTE)
    assert isinstance(where, ReadRemote)
    ahead = [*log.following(where, Ask(1000, tier=Tier.REMOTE))]
    assert ahead[-1][1].end == 899


def test_the_log_start_of_a_lost_branch_refuses_nothing_that_the_broker_has(golden: Golden) -> None:
    """A reader does not begin there, either: the log start is unknown until the agent writes it."""
    golden.tiers.start_log_at(890)
    golden.tiers.view.require_fresh(0, 0)
    lose(golden, at=500)
    golden.local.local_start = 700
    piece = golden.reader.fetch("t", 0, 700)
    assert (piece.tier, piece.bounds.log_start) == (Tier.LOCAL, None)
    with pytest.raises(LineageUnconfirmed):
        golden.reader.fetch("t", 0, 699)
    with pytest.raises(LineageUnconfirmed):
        golden.reader.extent("t", 0)
    assert golden.reader.extent("t", 0, tier=Tier.LOCAL) == (700, golden.local.high_watermark)


def test_a_log_start_below_the_point_where_the_leader_left_is_reported(golden: Golden) -> None:
    golden.tiers.start_log_at(34)
    golden.tiers.view.require_fresh(0, 0)
    golden.local.elect(1)
    assert golden.reader.extent("t", 0) == (34, golden.local.high_watermark)
    with pytest.raises(OffsetOutOfRange) as error:
        golden.reader.fetch("t", 0, 33)
    assert error.value.valid_start == 34
    golden.reader.fetch("t", 0, golden.folder.bases[-1])
    assert golden.local.asked == [0]


@pytest.mark.parametrize("at", [500, 900])
def test_a_time_is_found_below_that_point_and_not_looked_for_above_it(golden: Golden, at: int) -> None:
    part_at(golden, at)
    rows = golden_rows("transactions", Isolation.READ_UNCOMMITTED)
    assert golden.reader.offset_for_time("t", 0, rows[0][1]) == rows[0][:2]
    with pytest.raises(LineageUnconfirmed):
        golden.reader.offset_for_time("t", 0, max(row[1] for row in rows) + 1)


def test_while_the_tier_state_topic_is_away_the_broker_alone_says_what_is_read(golden_log: Make) -> None:
    """Decision 0024 allowed reads of a lost branch then."""
    topic, clock = FaultyTopic(), ManualClock()
    golden = golden_log(topic=topic, clock=clock)
    golden.local.delete_records(golden.folder.bases[-1])

    def refuse() -> None:
        raise BrokerUnavailable("no answer")

    topic.on_end = refuse
    golden.local.elect(1)
    clock.advance(BOUNDS_AGE_S)
    assert golden.reader.fetch("t", 0, 0).tier is Tier.REMOTE
    lose(golden, at=500)
    golden.local.epoch = LeaderEpoch(2)
    clock.advance(BOUNDS_AGE_S)
    with pytest.raises(LineageUnconfirmed):
        golden.reader.fetch("t", 0, 0)

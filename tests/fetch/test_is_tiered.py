"""A view that is still being read reports nothing as missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import Golden
from tests.twins.manual_clock import ManualClock
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.follower.open import open_view
from tierstate.state.errors import UnknownTopic

Make = Callable[..., Golden]


@pytest.fixture
def behind(golden_log: Make) -> Golden:
    """Return a log whose view has not yet read about the topic, and is ten seconds old."""
    golden = golden_log(copies=0)
    clock = ManualClock()
    golden.tiers.topic = MemoryTierTopic()
    golden.tiers.view = open_view(golden.tiers.topic, "cluster", clock)
    clock.advance(10.0)
    return golden


def test_a_view_that_is_behind_is_read_before_it_says_what_is_not_tiered(behind: Golden) -> None:
    behind.tiers.elect(behind.folder.lineage())
    assert behind.tiers.view.partitions() == []
    assert behind.tiers.reader(behind.local).is_tiered(behind.tiers.name)


def test_a_topic_without_a_fact_is_not_tiered(behind: Golden) -> None:
    assert not behind.tiers.reader(behind.local).is_tiered(behind.tiers.name)


def test_a_name_that_no_broker_knows_is_unknown(golden_log: Make) -> None:
    with pytest.raises(UnknownTopic):
        golden_log().reader.is_tiered("stranger")

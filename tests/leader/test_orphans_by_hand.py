"""The objects that a person may have swept although no fact names them."""

from __future__ import annotations

import pytest

from tests.leader.orphans import GRACE_S
from tests.leader.world import World
from tierstate.app.operating.sweeping import check_no_evidence
from tierstate.leader.lost_facts import LostFactsTools, list_segments
from tierstate.leader.sweeper import SweepTools, look
from tierstate.rules.sweep import no_archived_deletes
from tierstate.state.errors import TierStateLost
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.routing import LocalBounds


def check(world: World, bounds: LocalBounds | None) -> None:
    """Require that every manifest of a whole segment is listed to be deleted."""
    keys, store = ObjectKeys(), world.store
    tools = SweepTools(store, keys, no_archived_deletes, GRACE_S, lambda event: None)
    look_result = look(tools, world.name, world.view(), world.view, world.clock.now_ms())
    lost = LostFactsTools(store, keys, "memory")
    whole = [each.segment for each in list_segments(lost, world.name, look_result.view).unknown]
    assert whole, "every segment has its facts"
    check_no_evidence(look_result, whole, bounds, [object_key(each.object_key, ObjectKind.MANIFEST) for each in whole])


@pytest.fixture
def lost(world: World) -> World:
    """The topic lost everything after the log start; the broker still has all."""
    world.process().copy_all()
    world.topic.restore(0, 2)
    return world


def test_the_only_copy_of_offsets_is_never_deleted_as_an_orphan(lost: World) -> None:
    bounds = lost.broker.bounds(lost.name, 0)
    check(lost, bounds)  # the broker has the same records
    trimmed = LocalBounds(bounds.high_watermark, bounds.high_watermark, bounds.high_watermark, bounds.leader_epoch)
    with pytest.raises(TierStateLost, match=f"recover {lost.name}:0"):
        check(lost, trimmed)


def test_segments_beyond_the_end_of_the_brokers_log_are_not_deleted_as_orphans(lost: World) -> None:
    bounds, end = lost.broker.bounds(lost.name, 0), Offset(1)
    with pytest.raises(TierStateLost, match="nowhere else"):
        check(lost, LocalBounds(Offset(0), end, end, bounds.leader_epoch))


def test_nothing_that_may_be_the_only_copy_is_deleted_while_no_broker_answers(lost: World) -> None:
    with pytest.raises(TierStateLost, match="no broker says"):
        check(lost, None)

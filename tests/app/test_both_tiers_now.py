"""Tests what `both_tiers_now` returns for a partition that is trimmed during the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.leader.expiry import say
from tests.leader.world import World
from tierstate.app.opening.partitions import both_tiers_now
from tierstate.broker.control import BrokerControl
from tierstate.rules.trim import cut_elsewhere
from tierstate.state.facts import LocalTrimIntended
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset
from tierstate.state.routing import LocalBounds


class TrimmedMeanwhile:
    """A broker that an agent trims right before it is asked for its bounds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._session = world.process().copy_all()

    def bounds(self, topic: str, partition: int) -> LocalBounds:
        world, session, before = self._world, self._session, Offset(self._world.bases[1])
        say(world, LocalTrimIntended(world.partition, before, session.term, session.counter(), session.now()))
        world.broker.delete_records_on(BrokerId(1), topic, partition, before)
        return world.broker.bounds(topic, partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.broker, name)


def test_a_trim_between_two_looks_is_not_taken_for_a_cut_by_somebody_else(tmp_path: Path) -> None:
    world = World(tmp_path, "none", {"local.retention.bytes": "0"})
    try:
        broker = TrimmedMeanwhile(world)
        bounds, view = both_tiers_now(cast(BrokerControl, broker), world.process().view, world.name, world.partition)
        assert bounds is not None
        assert bounds.local_start == world.bases[1]
        assert view.trim_intended == world.bases[1]
        assert cut_elsewhere(view, world.name, bounds.local_start) is None
    finally:
        world.close()


def test_a_topic_that_is_gone_has_a_view_and_no_bounds(tmp_path: Path) -> None:
    world = World(tmp_path, "none")
    try:
        for gone in (None, "gone"):
            bounds, view = both_tiers_now(
                cast(BrokerControl, world.broker), world.process().view, gone, world.partition
            )
            assert bounds is None
            assert view.partition == world.partition
    finally:
        world.close()

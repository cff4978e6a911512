"""A reader's lease lasts as long as it asked for by the brokers' time, whatever the reader's own clock shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.leader.world import World
from tests.twins.counting_ids import CountingIds
from tests.twins.wrong_clock import DAY_S, WrongClock
from tierstate.app.operating.reader_leases import take_leases
from tierstate.state.offsets import Extent, Offset


@pytest.mark.parametrize("days", [-2, 0, 2])
def test_no_lease_ends_early_because_of_the_readers_clock(tmp_path: Path, days: int) -> None:
    world = World(tmp_path, "none")
    process = world.process()
    process.copy_all()
    world.topic.append_times.clear()  # the reader is a process of its own, and has appended nothing yet
    connection: Any = SimpleNamespace(
        clock=WrongClock(world.clock, days * DAY_S),
        topic=world.topic,
        store=world.store,
        settings=SimpleNamespace(lease=SimpleNamespace(max=DAY_S)),
    )
    ranges = {world.partition: Extent(Offset(0), Offset(10))}
    take_leases(connection, process.view, ranges, "job", 3_600, CountingIds(1))
    ends = max(lease.expires_at for lease in world.view().leases)
    assert ends >= world.clock.now_ms() + 3_600_000
    world.close()

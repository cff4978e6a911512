"""`FetchLog` over the leaders of a small simulated cluster (`tests/histories`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.histories.directed_fetch import append
from tests.histories.replica import Written
from tests.histories.small_fetched import SmallFetchedWorld
from tests.histories.steady import finish
from tierstate.rules.reasons import Reason
from tierstate.state.offsets import Offset
from tierstate.tail.fetch_log import METADATA_S


@pytest.fixture
def world() -> Iterator[SmallFetchedWorld]:
    made = SmallFetchedWorld(2)
    yield made
    made.close()


def damage(batch: Written) -> None:
    """Flip a bit of a batch on all brokers' disks."""
    data = bytearray(batch.data)
    data[-1] ^= 1
    batch.__dict__["data"] = bytes(data)


def copied(world: SmallFetchedWorld) -> int:
    return max((each.offsets.end for each in world.promises.live.view().readable), default=-1)


@pytest.mark.parametrize("number", [0, 3])
def test_what_comes_before_a_damaged_batch_is_copied_and_then_its_error_is_shown(
    world: SmallFetchedWorld, number: int
) -> None:
    damaged = world.cluster.leader.log[number]
    damage(damaged)
    for _ in range(10):
        world.take("0*")
        world.clock.advance(60)
    assert copied(world) == damaged.base - 1
    status = world.processes[0].worker.status
    assert status.not_copied_reason is Reason.CORRUPT_DATA, status


def test_a_copy_succeeds_at_once_if_a_transaction_ends_behind_what_was_fetched(world: SmallFetchedWorld) -> None:
    """The spool has the segment and an active piece without data when the markers are looked for."""
    world.take("0*")
    append(world, 2, producer=7, roll=True)
    append(world, 3, roll=True)
    append(world, 1, producer=7, is_marker=True, roll=True)
    append(world, 3, roll=True)
    world.clock.advance(60)
    world.take("0*")
    assert copied(world) == world.cluster.leader.bases[-1] - 1
    assert not world.seen["CopyFailed"]


def test_a_partition_that_is_taken_away_while_an_answer_is_awaited_is_dropped_after_it(
    world: SmallFetchedWorld,
) -> None:
    """The agent's other threads list the partitions at the same time. They do not touch the spool under the look."""
    taken: list[bool] = []

    def between() -> None:
        if not taken and world.processes[0].next_step == "":
            taken.append(True)
            world.revoke()

    log = world.copiers[0].log
    log._raw._between = between  # type: ignore[attr-defined]
    world.take("0")
    assert taken
    assert not log.listed()
    world.clock.advance(METADATA_S)
    log.partitions()
    assert not log._tails
    assert not list(log._folder.rglob("*.log"))
    finish(world)
    assert copied(world) > Offset(0)

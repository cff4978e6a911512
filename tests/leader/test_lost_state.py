"""Facts are missing from the tier-state topic: no process writes or deletes by the rest, and each reports why."""

from __future__ import annotations

import pytest

from tests.leader.custody_world import Ward
from tests.leader.orphans import Late
from tests.leader.world import FaultyTopic, Process, World
from tierstate.leader.integrity import NEVER_STANDS, report_hold
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import OperationFailed
from tierstate.runtime.operation import run
from tierstate.state.errors import StorageUnavailable, TierStateLost
from tierstate.state.facts import IntegrityHold, LogStartAdvanced
from tierstate.state.ids import BrokerId
from tierstate.state.object_keys import ObjectKind
from tierstate.state.offsets import TimestampMs
from tierstate.state.partition_view import PartitionView


def tiered(world: World) -> set[str]:
    """Copy everything, so that the broker has only the rest of it; return the keys in the bucket."""
    world.process().work()
    world.retire()
    assert world.local_start() > 0
    return world.objects()


def lost(world: World) -> None:
    """Re-create the topic, with ``tierstate init`` alone."""
    world.topic = FaultyTopic(world.clock)


def doing_nothing(world: World, process: Process) -> None:
    """Require that nothing happens, with all that is in the bucket and on the broker, and that it reports why."""
    objects, appends_before, start = world.objects(), world.topic.appends, world.local_start()
    worker = process.worker()
    for _ in range(3):
        assert not worker.advance()
        world.clock.advance(400.0)
    assert (world.objects(), world.topic.appends, world.local_start()) == (objects, appends_before, start)
    status = process.status()
    kinds = (status.not_copied_reason, status.not_trimmed_reason, status.not_expired_reason)
    assert Reason.TIER_STATE_LOST in kinds
    assert "tierstate recover" in (status.last_error or "")


@pytest.mark.parametrize("left", [1, 3, 0])
def test_a_process_with_a_view_from_nothing_does_nothing_once_the_head_is_gone(world: World, left: int) -> None:
    objects = tiered(world)
    world.topic.cut_head(0, world.topic.end(0) - left)
    process = world.process()
    doing_nothing(world, process)
    assert process.status().not_copied_reason is Reason.TIER_STATE_LOST
    assert process.status().not_expired_reason is Reason.TIER_STATE_LOST
    assert world.objects() == objects


def test_a_process_that_has_seen_it_all_copies_on_and_deletes_nothing(world: World) -> None:
    process = world.process()
    process.copy_all()
    world.topic.cut_head(0, world.topic.end(0))
    objects = world.objects()
    world.roll()
    process.work()
    assert world.local_start() == 0
    assert world.objects() > objects
    status = process.status()
    assert status.not_trimmed_reason is Reason.TIER_STATE_UNSAFE
    assert "begins at" in (status.not_trimmed or "")
    assert "tierstate recover" in (status.not_trimmed or "")
    assert process.view.partition(world.partition).unsettled == ()


def test_an_empty_view_with_a_full_bucket_is_no_new_partition(world: World) -> None:
    tiered(world)
    lost(world)
    world.roll()
    doing_nothing(world, world.process())
    assert world.topic.keys() == []


def test_a_store_that_does_not_answer_keeps_the_first_term_waiting(world: World) -> None:
    process = world.process()

    def away(operation: str, key: str, writes: int) -> None:
        if operation == "list":
            raise StorageUnavailable("the store does not answer")

    world.faults = away
    worker = process.work()
    assert world.topic.keys() == []
    assert process.status().not_copied_reason is Reason.STORE_AWAY
    world.faults = lambda operation, key, writes: None
    world.clock.advance(600.0)
    process.work(worker)
    assert len(world.view().readable) == len(world.rolled)


def test_objects_of_copies_that_never_ended_make_no_partition_lost(world: World) -> None:
    key = "{}-{}/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ{}"
    world.store.put_if_absent(key.format(world.name, world.topic_id, ObjectKind.LOG), b"half")
    world.store.put_if_absent(key.format("other", world.topic_id, ObjectKind.MANIFEST), b"another's")
    world.process().work()
    assert len(world.view().readable) == len(world.rolled)


def test_the_bucket_is_asked_before_the_first_term_only(world: World) -> None:
    requests: list[str] = []
    world.faults = lambda operation, key, writes: requests.append(operation)
    world.process().begin()
    assert requests.count("list") == 1
    world.elect_here()
    world.process().begin()
    assert requests.count("list") == 1


def test_segments_without_any_log_start_are_a_lost_state_too(world: World) -> None:
    process = world.process()
    process.copy_all()
    for live in process.view.facts(world.partition):
        if isinstance(live.fact, LogStartAdvanced):
            world.topic.append(0, live.key, None)
    for key in world.objects():
        world.store.delete(key)
    appends_before = world.topic.appends
    world.elect_here()
    with pytest.raises(TierStateLost, match=r"no log start; .*tierstate recover"):
        world.process().begin()
    assert world.topic.appends == appends_before


@pytest.mark.parametrize("happened", ["head cut", "lost"])
def test_a_custodian_ends_no_partition_by_the_remaining_facts(world: World, happened: str) -> None:
    objects = tiered(world)
    world.broker.delete_topic(world.name)
    if happened == "lost":
        lost(world)
    else:
        world.topic.cut_head(0, 2)
    appends_before = world.topic.appends
    ward = Ward(world)
    for _ in range(3):
        if happened == "lost":
            assert not ward.step()
        else:
            with pytest.raises(TierStateLost):
                ward.step()
        ward.wait(30 * 86_400_000)
    assert (world.topic.appends, world.objects()) == (appends_before, objects)


def test_no_orphan_is_found_or_swept_by_what_is_left(world: World) -> None:
    late = Late(world)
    landed = set(late.land())
    world.topic.cut_head(0, 2)
    late.restart(world.process(), late.session)
    for _ in range(3):
        assert not late.watch.look_if_due(PartitionView(world.partition))
        world.clock.advance(2 * 86_400.0)
    assert late.watch.ripe == ()
    events_heard = [each for each in late.process.events if isinstance(each, OperationFailed)]
    assert "its head is gone" in events_heard[0].error
    assert landed <= world.objects()


def test_no_hold_is_written_by_what_is_left(world: World) -> None:
    tiered(world)
    world.topic.cut_head(0, 2)
    process, appends_before = world.process(), world.topic.appends
    hold = IntegrityHold(world.partition, NEVER_STANDS, BrokerId(1), "seen", "one", "two", TimestampMs(0))
    with pytest.raises(TierStateLost):
        run(report_hold(process.context, hold, process.events.append))
    assert world.topic.appends == appends_before

"""An agent's looks for orphans of the partitions that it leads: when, what it shows of them, and where it looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.leader.expiry import Expiry, by_size, check_expiry, say_hold, say_order
from tests.leader.orphans import GRACE_S, KEYS, Late
from tests.leader.world import Process, World
from tierstate.leader.gauges import feed_gauges
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.leader.sweeper import AGAIN_S, LOOK_EVERY_S, until_turn
from tierstate.rules.missing import missing_objects
from tierstate.rules.reasons import Reason
from tierstate.runtime.listener import OperationFailed, OrphansFound, TermStarted
from tierstate.runtime.metrics import Metrics
from tierstate.state.errors import StorageUnavailable
from tierstate.state.facts import OrderKind
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKeys, ObjectKind, folder_of, object_key
from tierstate.state.offsets import TimestampMs

GOLDEN = Path(__file__).parents[1] / "data" / "aiven" / "plain"


@pytest.fixture
def late(world: World) -> Late:
    return Late(world)


def looks(process: Process) -> int:
    return sum(isinstance(event, OrphansFound) for event in process.events)


def new_worker(late: Late) -> PartitionWorker:
    """Return a fresh process, whose watch begins now; it has copied, trimmed and erased all that there was."""
    process = late.world.process()
    late.restart(process, late.session)
    late.archived[late.gone.segment_id] = late.gone.object_key  # the worker erases its facts
    worker = process.worker(orphans=late.watch)
    process.work(worker)
    return worker


def a_day(late: Late, worker: PartitionWorker, seconds: float = LOOK_EVERY_S, steps: int = 48) -> None:
    for _ in range(steps):
        late.world.clock.advance(seconds / steps)
        late.process.work(worker)


# --- when -------------------------------------------------------------------------------------------------------------


def test_looks_are_spread_evenly_over_the_day_and_no_restart_moves_them() -> None:
    now = TimestampMs(1_767_225_600_000)
    partitions = [TopicIdPartition(TopicId.of(b"t" * 16), number) for number in range(4800)]
    turns = [until_turn(each, now, LOOK_EVERY_S) for each in partitions]
    by_hour = [sum(hour * 3600 <= turn < (hour + 1) * 3600 for turn in turns) for hour in range(24)]
    assert sum(by_hour) == 4800
    assert min(by_hour) > 100
    assert max(by_hour) < 300
    for partition, turn in zip(partitions[:50], turns, strict=False):
        later = until_turn(partition, TimestampMs(now + round(turn * 500)), LOOK_EVERY_S)
        assert later == pytest.approx(turn / 2, abs=0.01)


def test_an_idle_partition_is_looked_at_once_a_day_without_a_term(late: Late) -> None:
    worker = new_worker(late)
    terms = sum(isinstance(event, TermStarted) for event in late.process.events)
    for day in range(3):
        a_day(late, worker)
        assert looks(late.process) == day + 1
    assert sum(isinstance(event, TermStarted) for event in late.process.events) == terms


def test_a_failed_look_is_reported_and_repeated_and_holds_up_nothing(late: Late, world: World) -> None:
    worker = new_worker(late)

    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "list":
            raise StorageUnavailable("no answer")

    world.faults = fail
    a_day(late, worker)
    assert looks(late.process) == 0
    events_heard = [event for event in late.process.events if isinstance(event, OperationFailed)]
    assert events_heard
    assert {event.operation for event in events_heard} == {"look for orphans"}
    assert worker.failures == 0
    world.clock.advance(AGAIN_S)
    late.process.work(worker)
    before = len(late.process.events)
    a_day(late, worker, AGAIN_S - 10, steps=10)
    assert len(late.process.events) == before, "not at every turn"
    world.faults = lambda operation, key, writes: None
    world.clock.advance(AGAIN_S)
    late.process.work(worker)
    assert looks(late.process) == 1


def test_a_partition_that_loses_its_leader_restarts_its_grace(late: Late, world: World) -> None:
    keys = late.land()
    late.sweep()
    world.clock.advance(GRACE_S)
    late.watch.rest()
    assert late.sweep() == 0
    assert set(keys) <= world.objects()


# --- what -------------------------------------------------------------------------------------------------------------


def test_an_agent_deletes_by_itself_what_it_saw_condemned_for_the_whole_grace(late: Late, world: World) -> None:
    keys = late.land()
    worker = new_worker(late)
    a_day(late, worker)
    assert set(keys) <= world.objects()
    a_day(late, worker, LOOK_EVERY_S + 1)
    assert world.objects().isdisjoint(keys)
    assert len(check_expiry(world).readable) == 3


def test_a_paused_partition_is_looked_at_and_not_swept(late: Late, world: World) -> None:
    keys = late.land()
    worker = new_worker(late)
    say_order(world, OrderKind.PAUSE)
    for _ in range(3):
        a_day(late, worker)
    assert looks(late.process) == 3
    assert set(keys) <= world.objects()
    say_order(world, OrderKind.RESUME, number=2)
    a_day(late, worker)
    assert world.objects().isdisjoint(keys)


def test_under_a_hold_an_agent_does_not_even_begin_to_sweep(late: Late, world: World) -> None:
    keys = late.land()
    worker = new_worker(late)
    say_hold(world)
    for _ in range(3):
        a_day(late, worker)
    assert set(keys) <= world.objects()
    assert not [event for event in late.process.events if isinstance(event, OperationFailed)]


def test_unknown_objects_are_in_status_and_gauges_until_leadership_ends(late: Late, world: World) -> None:
    prefix = KEYS.partition_prefix(world.name, world.topic_id, 0)
    for number in range(2):
        world.store.put_if_absent(f"{prefix}stray-{number}", b"12345")
    worker = new_worker(late)
    metrics = Metrics()
    feed_gauges(metrics, late.process.board, late.process.view, late.world.clock)
    assert late.process.status().orphan_objects is None
    a_day(late, worker)
    assert (late.process.status().orphan_objects, late.process.status().orphan_bytes) == (2, 10)
    assert "tierstate_orphan_objects 2.0" in metrics.exposition().decode()
    worker.rest()
    assert "tierstate_orphan_objects 0.0" in metrics.exposition().decode()


# --- what is missing --------------------------------------------------------------------------------------------------


def test_a_removed_object_is_missed_and_the_broker_keeps_its_records(late: Late, world: World) -> None:
    worker = new_worker(late)
    gone = object_key(world.view().readable[1].object_key, ObjectKind.INDEXES)
    data = world.store.get(gone)
    world.store.delete(gone)
    a_day(late, worker)
    status = late.process.status()
    assert (status.missing_objects, status.not_trimmed_reason) == (1, Reason.OBJECTS_MISSING)
    assert status.not_trimmed == f"objects of readable segments are missing: {gone} is gone"
    before = world.local_start()
    world.roll()
    a_day(late, worker)
    assert world.local_start() == before
    world.store.put_if_absent(gone, data)
    a_day(late, worker, AGAIN_S + 1, steps=4)
    assert late.process.status().missing_objects == 0
    assert world.local_start() > before


def test_an_object_of_another_size_is_missed_too(late: Late, world: World) -> None:
    worker = new_worker(late)
    log = object_key(world.view().readable[0].object_key, ObjectKind.LOG)
    size = len(world.store.get(log))
    world.store.delete(log)
    world.store.put_if_absent(log, b"short")
    a_day(late, worker)
    assert f"{log} has 5 bytes, not {size}" in (late.process.status().not_trimmed or "")


def test_objects_that_change_during_a_listing_are_not_missed(late: Late, world: World) -> None:
    new_worker(late)
    before = world.view()
    (newest,) = before.readable[-1:]
    without = replace(before, segments={k: v for k, v in before.segments.items() if k != newest.segment_id})
    folders = {folder_of(newest.object_key)}
    for one, other in ((without, before), (before, without)):
        missed = missing_objects(replace(one), replace(other), (), folders)
        assert {each.segment_id for each in missed} == {each.segment_id for each in without.readable}


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["new/", "{salt}/", "new-"])
def test_objects_below_a_prefix_of_before_are_looked_at_too(prefix: str, late: Late, world: World) -> None:
    """The agent was restarted with another key prefix: its facts remember the one before."""
    keys = late.land()
    stray = f"{KEYS.partition_prefix(world.name, world.topic_id, 0)}stray"
    world.store.put_if_absent(stray, b"x")
    process = world.process()
    late.restart(process, process.begin(), ObjectKeys(prefix, "memory"))
    finding_list = late.findings()
    assert {key: each.condemned for key, each in finding_list.items()} == {**dict.fromkeys(keys, True), stray: False}
    late.ripen()
    assert late.sweep() == 3
    assert world.objects().isdisjoint(keys)
    check_expiry_with(world, stray)


def check_expiry_with(world: World, stray: str) -> None:
    world.store.delete(stray)
    assert len(check_expiry(world).readable) == 3


def test_one_prefix_inside_another_is_not_looked_at_twice(late: Late, world: World) -> None:
    """One folder is below the other if the key prefix is set to a folder of segments."""
    keys = late.land()
    inner = ObjectKeys(KEYS.partition_prefix(world.name, world.topic_id, 0))
    stray = f"{inner.partition_prefix(world.name, world.topic_id, 0)}stray"
    world.store.put_if_absent(stray, b"x")
    process = world.process()
    late.restart(process, process.begin(), inner)
    finding_list = late.watch.look(world.view()).findings
    assert sorted(each.info.key for each in finding_list) == sorted([*keys, stray])


# --- whose ------------------------------------------------------------------------------------------------------------


def golden(world: World) -> dict[str, bytes]:
    """Return the objects of a segment that Kafka's own plugin wrote: as they were, and as if of this very partition."""
    objects = {}
    for path in GOLDEN.rglob("*-*.*"):
        if path.is_file() and path.suffix in set(ObjectKind):
            data = path.read_bytes()
            objects[path.relative_to(GOLDEN).as_posix()] = data
            objects[f"{KEYS.partition_prefix(world.name, world.topic_id, 0)}{path.name}"] = data
    assert len(objects) == 6
    return objects


def test_foreign_objects_in_a_shared_bucket_are_never_condemned(late: Late, world: World, tmp_path: Path) -> None:
    """The other cluster is a clone: the same topic id and folder, a tier-state topic of its own, which deleted two."""
    theirs = golden(world)
    clone = World(tmp_path / "clone", "none", {"local.retention.bytes": "0"})
    process = clone.process(seed=77)
    session = process.copy_all()
    theirs |= {key: clone.store.get(key) for key in clone.objects()}
    Expiry(process, session, by_size(clone, 3)).work()
    assert len(clone.view().readable) == 3
    clone.close()
    other_topic = KEYS.base_key(world.name, TopicId.of(b"o" * 16), 0, 0, late.gone.segment_id)
    theirs |= {object_key(other_topic, kind): b"x" for kind in ObjectKind}
    ours = world.objects()
    assert ours.isdisjoint(theirs)
    for key, data in theirs.items():
        world.store.put_if_absent(key, data)
    for _ in range(4):
        late.sweep()
        world.clock.advance(GRACE_S)
    assert world.objects() == ours | set(theirs)
    assert (late.told().condemned, late.told().objects) == (0, 3 + 15)

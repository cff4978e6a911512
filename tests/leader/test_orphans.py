"""Orphans: only a fact that names its segment condemns an object; unknown objects are reported and stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.leader.expiry import check_expiry, say, say_hold
from tests.leader.orphans import GRACE_S, KEYS, Late
from tests.leader.world import World, run_with
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.leader.expirer import advance_log_start, start_delete
from tierstate.rules.expire import StartDelete, next_delete
from tierstate.rules.sweep import classify
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import BrokerUnavailable, Fenced, StorageUnavailable
from tierstate.state.facts import (
    DeleteReason,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from tierstate.state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState


@pytest.fixture
def late(world: World) -> Late:
    return Late(world)


def test_objects_that_facts_account_for_are_no_findings(late: Late, world: World) -> None:
    """Readable, condemned, abandoned and running: each is removed in a way of its own."""
    session = late.session
    run(start_delete_next(late))
    world.roll()
    assert run_until(copy_segment(session, late.process.candidate(session), late.process.tools), 3)
    assert late.findings() == {}
    world.process().begin()
    world.elect_here()
    process = world.process()
    late.session = process.begin()
    assert SegmentState.ABANDONED in world.states()
    assert SegmentState.DELETE_SEGMENT_STARTED in world.states()
    assert late.findings() == {}
    assert (late.told().objects, late.told().bytes, late.told().condemned) == (0, 0, 0)


def start_delete_next(late: Late) -> Operation[None]:
    events = late.process.events.append
    late_start = Offset(late.world.bases[3])
    run(advance_log_start(late.session, late_start, "retention-size", events))
    decision = next_delete(late.session.view(max_age=0))
    assert isinstance(decision, StartDelete)
    return start_delete(late.session, decision.segment, decision.reason, events)


def test_late_objects_of_a_deleted_segment_are_condemned_manifest_first(late: Late) -> None:
    keys = late.land()
    finding_list = late.findings()
    assert sorted(finding_list) == sorted(keys)
    assert next(iter(finding_list)).endswith(ObjectKind.MANIFEST)
    assert {(each.condemned, each.why) for each in finding_list.values()} == {(True, "its segment was deleted")}
    assert (late.told().objects, late.told().condemned) == (0, 3)


def test_an_erased_segment_is_known_by_the_archive_alone(late: Late) -> None:
    late.land()
    late.forget()
    assert {(each.condemned, each.why) for each in late.findings().values()} == {(False, "no fact names its segment")}
    assert (late.told().objects, late.told().bytes, late.told().condemned) == (3, 12, 0)
    late.archived[late.gone.segment_id] = f"elsewhere/{late.gone.object_key}"
    assert {each.condemned for each in late.findings().values()} == {False}, "another object"
    late.archived[late.gone.segment_id] = late.gone.object_key
    sentence = "its segment was deleted, says the archive"
    assert {(each.condemned, each.why) for each in late.findings().values()} == {(True, sentence)}


def test_a_fenced_delete_condemns_no_object(late: Late, world: World) -> None:
    """All that is left of an erased segment is a zombie's late fact: it names the segment, and has no effect."""
    late.land()
    late.forget()
    zombie = late.session
    process = world.process()
    late.restart(process, process.begin())
    now = world.clock.now_ms()
    say(world, SegmentDeleteStarted(late.gone, zombie.term, 101, DeleteReason.RETENTION_SIZE, now))
    say(world, SegmentDeleteFinished(late.gone, zombie.term, 102, now))
    assert world.view().segments[late.gone.segment_id].state is SegmentState.DELETE_SEGMENT_FINISHED
    assert {each.condemned for each in late.findings().values()} == {False}


def foreign_keys(world: World) -> list[str]:
    prefix = KEYS.partition_prefix(world.name, world.topic_id, 0)
    unknown = KEYS.base_key(world.name, world.topic_id, 0, 77, RemoteSegmentId.of(b"u" * 16))
    return [f"{prefix}README", f"{prefix}more/of.log", *(object_key(unknown, kind) for kind in ObjectKind)]


def test_unknown_objects_are_reported_and_stay_for_ever(late: Late, world: World) -> None:
    keys = foreign_keys(world)
    for key in keys:
        world.store.put_if_absent(key, b"12345")
    for _ in range(4):
        assert late.sweep() == 0
        world.clock.advance(GRACE_S)
    assert set(keys) <= world.objects()
    assert (late.told().objects, late.told().bytes, late.told().condemned) == (len(keys), 5 * len(keys), 0)


def test_objects_of_other_topics_and_partitions_are_not_even_looked_at(late: Late, world: World) -> None:
    other_topic = KEYS.base_key(world.name, TopicId.of(b"t" * 16), 0, 0, late.gone.segment_id)
    other_partition = KEYS.base_key(world.name, world.topic_id, 1, 0, late.gone.segment_id)
    for base in (other_topic, other_partition):
        world.store.put_if_absent(object_key(base, ObjectKind.LOG), b"x")
    assert late.findings() == {}


def test_an_object_under_a_deleted_segments_id_but_another_name_is_not_condemned(late: Late, world: World) -> None:
    base = KEYS.base_key(world.name, world.topic_id, 0, 12_345, late.gone.segment_id)
    world.store.put_if_absent(object_key(base, ObjectKind.LOG), b"x")
    assert [(each.condemned, each.why) for each in late.findings().values()] == [
        (False, "its segment id belongs to another object")
    ]


def test_a_listing_of_another_partition_finds_nothing_condemned(late: Late, world: World) -> None:
    late.land()
    late.archived = {late.gone.segment_id: late.gone.object_key}
    view = replace(world.view(), partition=TopicIdPartition(world.topic_id, 1))
    findings = classify(world.store.list(), KEYS, view, late.says_archive)
    assert len(findings) == len(world.objects())
    assert not any(each.condemned for each in findings)


def test_objects_are_listed_before_facts_are_read(late: Late, world: World) -> None:
    """A copy that begins during a look writes objects: its facts must be in the view with which they are compared."""
    world.roll()

    def copy_meanwhile(operation: str, key: str, writes: int) -> None:
        if operation == "list":
            world.faults = lambda operation, key, writes: None
            late.process.copy_next(late.session)

    world.faults = copy_meanwhile
    copied = len(world.view().readable)
    assert late.findings() == {}
    assert len(world.view().readable) == copied + 1


# --- orphans: their way out ------------------------------------------------------------------------------------------


def test_a_condemned_object_goes_when_two_looks_a_grace_apart_found_it(late: Late, world: World) -> None:
    keys = late.land()
    late.sweep()
    assert set(keys) <= world.objects()
    world.clock.advance(GRACE_S - 1)
    late.sweep()
    assert set(keys) <= world.objects()
    world.clock.advance(1)
    assert late.sweep() == 3
    assert world.objects().isdisjoint(keys)
    assert len(check_expiry(world).readable) == 3


def test_an_object_that_appears_later_waits_for_a_grace_of_its_own(late: Late, world: World) -> None:
    first = late.land(ObjectKind.LOG)
    late.sweep()
    second = late.land(ObjectKind.INDEXES)
    world.clock.advance(GRACE_S)
    late.sweep()
    assert world.objects().isdisjoint(first)
    assert set(second) <= world.objects()
    world.clock.advance(GRACE_S)
    late.sweep()
    assert world.objects().isdisjoint(second)


@pytest.mark.parametrize("step", range(3))
def test_a_process_that_dies_before_any_deletion_is_finished_by_the_next_after_a_grace_of_its_own(
    step: int, late: Late, world: World
) -> None:
    keys = late.land()
    late.ripen()
    assert run_until(late.watch.sweep(late.session), step) == ["delete orphan"] * step
    assert len(world.objects()) == 12 - step
    process = world.process()
    late.restart(process, process.begin())
    late.sweep()
    assert len(world.objects()) == 12 - step
    world.clock.advance(GRACE_S)
    late.sweep()
    assert world.objects().isdisjoint(keys)
    check_expiry(world)


@pytest.mark.parametrize("write", range(3))
def test_a_store_that_fails_at_any_deletion_is_asked_again(write: int, late: Late, world: World) -> None:
    keys = late.land()
    late.ripen()
    number = world.store.writes + write

    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "delete" and writes == number:
            raise StorageUnavailable("no answer")

    world.faults = fail
    with pytest.raises(StorageUnavailable):
        late.sweep()
    assert len(world.objects().intersection(keys)) == 3 - write
    run(late.watch.sweep(late.session))
    assert world.objects().isdisjoint(keys)


def happenings(late: Late) -> dict[str, Callable[[], object]]:
    world = late.world
    return {
        "hold": lambda: say_hold(world),
        "term": world.process().begin,
        "leadership": lambda: world.broker.elect(world.name, 0, 2),
        "checkpoint": lambda: world.write_checkpoint(*world.checkpoint(), (7, world.end())),
        "erased": late.forget,
    }


@pytest.mark.parametrize("happening", ["hold", "term", "leadership", "checkpoint", "erased"])
def test_events_after_the_look_keep_the_objects(happening: str, late: Late, world: World) -> None:
    keys = late.land()
    late.ripen()
    act = late.watch.sweep(late.session)
    with pytest.raises((Fenced, BrokerUnavailable)):
        run_with(act, "delete orphan", happenings(late)[happening])
    assert set(keys) <= world.objects()


def test_a_hold_stops_the_sweep_and_not_the_look(late: Late, world: World) -> None:
    late.land()
    say_hold(world)
    assert len(late.findings()) == 3
    with pytest.raises(Fenced, match="held"):
        late.sweep()

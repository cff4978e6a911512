"""A quarantine keeps swept objects: whole, once, out of every listing of segments, and only then the original goes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tests.leader.expiry import Expiry
from tests.leader.orphans import Late
from tests.leader.world import World
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.leader.expirer import Quarantine, remove_objects, start_delete
from tierstate.leader.recover_scan import scan_bucket
from tierstate.leader.term import TermSession
from tierstate.rules.expire import StartDelete
from tierstate.rules.sweep import next_sweep
from tierstate.runtime.operation import run
from tierstate.state.errors import Fenced, InvalidRequest, StorageUnavailable
from tierstate.state.facts import DeleteReason
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import ByteRange
from tierstate.state.segment import SegmentState
from tierstate.storage.directory import DirectoryStore

ASIDE = "aside/"
MIB = 2**20


@pytest.fixture
def late(world: World) -> Late:
    late = Late(world)
    late.restart(late.process, late.session, aside=ASIDE)
    return late


def aside(world: World) -> dict[str, bytes]:
    """Return what is in quarantine, by its original key."""
    keys = [each.key for each in world.store.list(ASIDE)]
    return {key.removeprefix(ASIDE).rsplit(".", 2)[0]: world.store.get(key) for key in keys}


def test_swept_objects_are_kept_below_the_prefix_and_are_no_segments(late: Late, world: World) -> None:
    keys = late.land()
    late.ripen()
    before = [type(each) for each in scan_bucket(world.store)]
    assert run(late.watch.sweep(late.session)) == 3
    assert world.objects().isdisjoint(keys)
    assert aside(world) == dict.fromkeys(keys, b"late")
    assert len(list(scan_bucket(world.store))) == len(before) - 1
    assert not [key for key in world.objects() if key.startswith(ASIDE) and key.endswith(tuple(ObjectKind))]


@pytest.mark.parametrize("operation", ["part", "complete", "delete"])
@pytest.mark.parametrize("number", range(3))
def test_a_move_that_fails_anywhere_is_taken_up_again_and_loses_nothing(
    operation: str, number: int, late: Late, world: World
) -> None:
    keys = late.land()
    late.ripen()
    left = [number]

    def fail(name: str, key: str, writes: int) -> None:
        if name == operation:
            left[0] -= 1
            if left[0] == -1:
                raise StorageUnavailable("no answer")

    world.faults = fail
    with pytest.raises(StorageUnavailable):
        run(late.watch.sweep(late.session))
    assert set(keys) <= world.objects() | set(aside(world))
    run(late.watch.sweep(late.session))
    assert world.objects().isdisjoint(keys)
    assert aside(world) == dict.fromkeys(keys, b"late")


@pytest.mark.parametrize("step", range(3))
def test_a_process_that_dies_before_any_move_leaves_each_object_in_one_place(
    step: int, late: Late, world: World
) -> None:
    keys = late.land()
    late.ripen()
    run_until(late.watch.sweep(late.session), step)
    assert len(aside(world)) == step
    assert len(world.objects().intersection(keys)) == 3 - step


def test_an_object_that_lands_again_is_kept_in_addition_to_the_first(late: Late, world: World) -> None:
    late.land(ObjectKind.LOG)
    late.ripen()
    late.sweep()
    late.land(ObjectKind.LOG)
    late.ripen()
    late.sweep()
    assert len(list(world.store.list(ASIDE))) == 2


def test_an_original_stays_while_the_copy_has_another_size(late: Late, world: World) -> None:
    (key,) = late.land(ObjectKind.LOG)
    late.ripen()
    world.store.put_if_absent(late.tools.quarantine.key_of(world.store.head(key)), b"torn early")
    with pytest.raises(StorageUnavailable, match="another size"):
        run(late.watch.sweep(late.session))
    assert key in world.objects()


def test_events_while_an_object_is_copied_aside_keep_the_original(late: Late, world: World) -> None:
    keys = late.land()
    late.ripen()

    def begin_term(name: str, key: str, writes: int) -> None:
        if name == "complete":
            world.faults = lambda name, key, writes: None
            world.process().begin()

    world.faults = begin_term
    with pytest.raises(Fenced):
        run(late.watch.sweep(late.session))
    assert set(keys) <= world.objects()


def abandoned(world: World) -> tuple[RemoteSegmentId, TermSession, Expiry]:
    second = world.process()
    session = second.begin()
    assert run_until(copy_segment(session, second.candidate(session), second.tools), 4)
    third = world.process()
    session = third.begin()
    (meaning,) = [each for each in world.view().unsettled if each.state is SegmentState.ABANDONED]
    return meaning.segment_id, session, Expiry(third, session)


def test_the_objects_of_an_abandoned_copy_go_through_it_and_nothing_else_does(world: World) -> None:
    segment_id, session, expiry = abandoned(world)
    events = expiry.process.events.append
    intent = next_sweep(session.view(), session.bounds(), {segment_id: -2.0}, 0.0, 1.0)
    assert isinstance(intent, StartDelete)
    assert intent.reason is DeleteReason.ABANDONED
    run(start_delete(session, intent.segment, intent.reason, events))
    world.clock.advance(3600)
    condemned = session.view().segments[segment_id]
    assert condemned.subject
    keys = [object_key(condemned.subject.object_key, kind) for kind in ObjectKind]
    there = {key: world.store.get(key) for key in keys if key in world.objects()}
    assert there
    run(remove_objects(session, world.store, condemned, 0, events, Quarantine(ASIDE)))
    assert aside(world) == there
    assert world.objects().isdisjoint(there)


def test_a_large_object_is_moved_with_a_few_parts_in_memory_and_under_the_quota(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_stream("large", (bytes([number]) * MIB for number in range(96)))
    sent: list[int] = []
    quarantine = Quarantine(ASIDE, sent.append)
    tracemalloc.start()
    try:
        quarantine.keep(store, "large")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 48 * MIB
    assert sum(sent) == 96 * MIB
    (kept,) = store.list(ASIDE)
    assert b"".join(store.stream_range(kept.key, ByteRange(0, kept.size))) == store.get("large")


@pytest.mark.parametrize("prefix", ["_tierstate/x", "/x", "a//b"])
def test_a_prefix_that_no_key_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest):
        Quarantine(prefix)

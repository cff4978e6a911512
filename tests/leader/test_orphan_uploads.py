"""Unfinished uploads: those of ended attempts are aborted; those in progress or of unknown origin stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leader.expiry import say_hold
from tests.leader.orphans import GRACE_S, KEYS, Late
from tests.leader.world import World
from tests.operations import run_until
from tierstate.leader.copier import copy_segment
from tierstate.runtime.listener import OperationFailed, OrphansFound
from tierstate.runtime.operation import run
from tierstate.state.errors import AccessDenied, Fenced
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.objects import UnfinishedUpload
from tierstate.state.offsets import TimestampMs
from tierstate.state.segment import SegmentState
from tierstate.storage.memory import MemoryStore


class LeavingStore(MemoryStore):
    """The twin of a store that keeps the parts of an upload."""

    denied = False

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, lambda *what: world.faults(*what))
        self.world, self.left = world, dict[str, UnfinishedUpload]()

    def begin(self, base_key: str, ago_s: float = 0.0) -> str:
        started = TimestampMs(round(self.world.clock.now_ms() - ago_s * 1000))
        name = f"upload-{len(self.left)}"
        self.left[name] = UnfinishedUpload(object_key(base_key, ObjectKind.LOG), name, started)
        return name

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        if self.denied:
            raise AccessDenied("no right to list uploads")
        yield from [each for each in self.left.values() if each.key.startswith(prefix)]

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.left.pop(upload.upload_id, None)


@pytest.fixture
def store(world: World) -> LeavingStore:
    world.store = LeavingStore(world)
    return world.store


@pytest.fixture
def late(world: World, store: LeavingStore) -> Late:
    return Late(world)


def test_an_upload_of_a_deleted_segment_is_aborted_by_the_second_look(late: Late, store: LeavingStore) -> None:
    store.begin(late.gone.object_key, ago_s=GRACE_S + 1)
    assert late.sweep() == 0
    store.world.clock.advance(GRACE_S)
    assert late.sweep() == 1
    assert not store.left


def test_the_grace_of_an_upload_counts_from_when_it_began(late: Late, store: LeavingStore) -> None:
    store.begin(late.gone.object_key, ago_s=GRACE_S - 1)
    assert late.watch.look(store.world.view()).leftovers == ()
    store.world.clock.advance(2)
    assert [each.condemned for each in late.watch.look(store.world.view()).leftovers] == [True]


def test_an_upload_of_an_attempt_in_progress_stays_however_old(late: Late, world: World, store: LeavingStore) -> None:
    world.roll()
    assert run_until(copy_segment(late.session, late.process.candidate(late.session), late.process.tools), 2)
    (attempt,) = [each.subject for each in world.view().unsettled if each.state is SegmentState.COPY_SEGMENT_STARTED]
    assert attempt
    store.begin(attempt.object_key, ago_s=10 * GRACE_S)
    for _ in range(3):
        assert late.sweep() == 0
        world.clock.advance(GRACE_S)
    assert store.left
    process = world.process()
    late.restart(process, process.begin())  # from now on it is abandoned
    late.ripen()
    assert run(late.watch.sweep(late.session)) == 1


def test_remains_of_a_retry_are_deleted_and_the_finished_copy_stays(late: Late, store: LeavingStore) -> None:
    kept = store.world.view().readable[0]
    store.begin(kept.object_key, ago_s=GRACE_S + 1)
    late.ripen()
    assert late.sweep() == 1
    assert len(store.world.check_promises().readable) == 3


def test_an_unknown_upload_belongs_to_another_program(late: Late, world: World, store: LeavingStore) -> None:
    unknown = RemoteSegmentId.of(b"u" * 16)
    store.begin(KEYS.base_key(world.name, world.topic_id, 0, 77, unknown), ago_s=10 * GRACE_S)
    for _ in range(3):
        assert late.sweep() == 0
        world.clock.advance(GRACE_S)
    assert store.left


def test_the_archive_condemns_an_upload_whose_facts_were_erased(late: Late, store: LeavingStore) -> None:
    late.forget()
    late.archived[late.gone.segment_id] = late.gone.object_key
    store.begin(late.gone.object_key, ago_s=GRACE_S + 1)
    late.ripen()
    assert late.sweep() == 1


@pytest.mark.parametrize("step", [0, 1])
def test_a_process_that_dies_before_any_abort_is_finished_by_the_next(
    step: int, late: Late, world: World, store: LeavingStore
) -> None:
    for _ in range(2):
        store.begin(late.gone.object_key, ago_s=GRACE_S + 1)
    late.ripen()
    assert run_until(late.watch.sweep(late.session), step) == ["abort upload"] * step
    assert len(store.left) == 2 - step
    process = world.process()
    late.restart(process, process.begin())
    late.ripen()
    late.sweep()
    assert not store.left


def test_a_hold_keeps_an_upload_too(late: Late, world: World, store: LeavingStore) -> None:
    store.begin(late.gone.object_key, ago_s=GRACE_S + 1)
    late.ripen()
    say_hold(world)
    with pytest.raises(Fenced, match="held"):
        run(late.watch.sweep(late.session))
    assert store.left


def test_without_the_right_to_list_uploads_objects_are_looked_at_all_the_same(late: Late, store: LeavingStore) -> None:
    store.denied = True
    late.land()
    assert len(late.findings()) == 3
    kinds = [type(event) for event in late.process.events[-2:]]
    assert kinds == [OrphansFound, OperationFailed]

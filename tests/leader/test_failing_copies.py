"""Stores that are full, bytes that rotted, disks that fail: a copy fails clean, reports why, and is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.leader.world import TRIMS_ALL, World, run_with
from tierstate.leader.copier import copy_segment
from tierstate.leader.schedule import MAX_BACKOFF_S, backoff
from tierstate.runtime.listener import CopyFailed, SegmentCopied
from tierstate.state.errors import CorruptData, Fenced, StorageFull, StorageUnavailable, TimedOut
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data

WRITES = 5
"""The writes of a copy of the first segment: its chunks, the completion of the log, indexes, manifest."""


def fail_write(world: World, number: int, error: Exception) -> None:
    """Let only this write of the next attempt fail."""
    first = world.store.writes

    def faults(operation: str, key: str, writes: int) -> None:
        if operation not in ("delete", "head", "list") and writes == first + number:
            raise error

    world.faults = faults


def test_there_are_as_many_writes_as_are_tried(world: World) -> None:
    process = world.process()
    process.copy_next(process.begin())
    assert world.store.writes == WRITES


@pytest.mark.parametrize("write", range(WRITES))
def test_a_full_store_fails_a_copy_clean_and_the_next_attempt_succeeds(write: int, world: World) -> None:
    process = world.process()
    session = process.begin()
    fail_write(world, write, StorageFull("no room"))
    with pytest.raises(StorageFull):
        process.copy_next(session)
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_FINISHED]
    lines = [key.split("/")[4] for key in world.topic.keys()[2:]]
    assert lines == ["copy-started", "delete-started", "delete-finished"]
    assert session.ended is None
    segment = process.copy_next(session)
    assert not any(segment.segment_id in key and "delete" in key for key in world.topic.keys())
    assert world.check_promises().readable == (segment,)


@pytest.mark.parametrize("write", range(WRITES))
def test_a_write_of_unknown_outcome_leaves_a_fact_that_names_what_may_still_land(write: int, world: World) -> None:
    process = world.process()
    fail_write(world, write, StorageUnavailable("no answer"))
    with pytest.raises(StorageUnavailable):
        process.copy_next(process.begin())
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_STARTED]


def test_a_store_that_is_away_leaves_facts_that_name_what_it_holds(world: World) -> None:
    process = world.process()
    session = process.begin()

    def away(operation: str, key: str, writes: int) -> None:
        if key.endswith(".indexes") or operation == "delete":
            raise StorageUnavailable("no answer")

    world.faults = away
    with pytest.raises(StorageUnavailable):
        process.copy_next(session)
    assert world.objects()
    assert world.states() == [SegmentState.DELETE_SEGMENT_STARTED]
    world.check_promises()


def test_an_outage_of_hours_is_waited_out_and_everything_resumes_by_itself(world: World) -> None:
    def away(operation: str, key: str, writes: int) -> None:
        raise StorageUnavailable("no answer")

    process = world.process()
    worker = process.worker()
    world.faults = away
    tried = []
    for _ in range(3600):
        process.work(worker)
        tried.append(process.status().consecutive_failures)
        world.clock.advance(1)
    attempts = [second for second, (before, after) in enumerate(pairwise(tried)) if after > before]
    assert [b - a for a, b in pairwise(attempts)][-1] == MAX_BACKOFF_S
    assert tried[-1] < 25
    assert "no answer" in (process.status().not_copied or "")
    assert world.local_start() == 0
    world.faults = lambda operation, key, writes: None
    world.clock.advance(MAX_BACKOFF_S)
    process.work(worker)
    assert process.status().consecutive_failures == 0
    assert process.status().last_error is None
    assert world.local_start() == world.bases[-1]


def test_the_backoff_grows_to_five_minutes_and_never_overflows() -> None:
    assert [backoff(failures) for failures in (1, 3, 4, 5, 9, 10)] == [1, 1, 5, 10, 160, 300]
    assert backoff(10**6) == MAX_BACKOFF_S


@pytest.mark.parametrize("segment", [0, 2])
def test_a_flipped_byte_stops_copying_there_and_trims_nothing_beyond_it(segment: int, world: World) -> None:
    base = world.rolled[segment]
    batches = world.batches(base)
    rotten = batches[len(batches) // 2]
    world.flip(base, rotten.position + 70)
    process = world.process()
    worker = process.worker()
    for _ in range(5):
        process.work(worker)
        world.clock.advance(60)
    status = process.status()
    assert status.not_copied is not None
    assert "CRC" in status.not_copied
    assert f"{base:020d}.log" in status.not_copied
    assert f"position={rotten.position}" in status.not_copied
    assert status.not_copied == f"{status.last_error} (failed 5 times in a row)"
    assert status.consecutive_failures == 5
    failures = [event for event in process.events if isinstance(event, CopyFailed)]
    assert [event.consecutive_failures for event in failures] == [1, 2, 3, 4, 5]
    assert len(world.check_promises().readable) == segment
    assert world.local_start() <= base
    assert len(world.objects()) == 3 * segment


@pytest.mark.parametrize("field", [8, 9, 16, 57])
def test_a_flipped_byte_in_a_header_is_found_before_the_rest_is_read(field: int, world: World) -> None:
    base = world.rolled[0]
    world.flip(base, world.batches(base)[3].position + field)
    process = world.process()
    session = process.begin()
    with pytest.raises(CorruptData, match=rf"{base:020d}\.log"):
        process.copy_next(session)
    assert world.objects() == set()


def test_a_segment_that_lost_its_tail_is_not_copied(world: World) -> None:
    file = world.file(world.rolled[0])
    file.write_bytes(file.read_bytes()[:-10])
    process = world.process()
    with pytest.raises(CorruptData, match="past the end"):
        process.copy_next(process.begin())


def test_a_batch_of_another_branch_of_the_log_is_not_copied(new_world: Callable[..., World]) -> None:
    world = new_world("epochs", TRIMS_ALL)
    entries = world.checkpoint()
    world.write_checkpoint(entries[0], (entries[1][0], entries[1][1] - 10), *entries[2:])
    process = world.process()
    process.work()
    assert "another leader epoch" in (process.status().not_copied or "")
    assert world.view().readable == ()


def test_a_batch_outside_its_segment_is_not_copied(world: World) -> None:
    """The files of two segments were exchanged: each is in order in itself."""
    one, other = world.rolled[:2]
    first, second = world.file(one).read_bytes(), world.file(other).read_bytes()
    world.file(one).write_bytes(second)
    world.file(other).write_bytes(first)
    process = world.process()
    with pytest.raises(CorruptData, match="order"):
        process.copy_next(process.begin())


def test_a_segment_that_the_broker_deletes_while_it_is_copied_is_copied_whole_or_not_at_all(world: World) -> None:
    """Every file is open, so the bytes are there; the last check finds the segment gone and commits nothing."""
    process = world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)
    with pytest.raises(Fenced, match="left the folder"):
        run_with(act, "put log", world.file(world.rolled[0]).unlink)
    assert world.objects() == set()
    assert world.check_promises().readable == ()


class LyingStore:
    """A store that keeps less than it was given under one suffix, or nothing, and reports success."""

    def __init__(self, store: MemoryStore, suffix: str, lose: bool) -> None:
        self._store, self._suffix, self._lose = store, suffix, lose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: Data) -> None:
        if not key.endswith(self._suffix):
            self._store.put_if_absent(key, data)
        elif not self._lose:
            self._store.put_if_absent(key, bytes(data)[:-1])

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        whole = b"".join(bytes(piece) for piece in pieces)
        self.put_if_absent(key, whole)
        return len(whole)


@pytest.mark.parametrize("lose", [False, True])
@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
def test_a_store_that_keeps_less_than_it_was_given_is_found_out(suffix: str, lose: bool, world: World) -> None:
    process = world.process()
    store: Any = LyingStore(world.store, suffix, lose)
    process.tools = replace(process.tools, store=store)
    with pytest.raises(CorruptData, match="is missing right after" if lose else "another size than was written"):
        process.copy_next(process.begin())
    assert world.objects() == set()
    assert world.check_promises().readable == ()


def test_an_attempt_that_takes_too_long_aborts_itself(world: World) -> None:
    process = world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)
    with pytest.raises(TimedOut, match="too long"):
        run_with(act, "put manifest", lambda: world.clock.advance(3601))
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_FINISHED]


def test_an_attempt_whose_last_checks_take_too_long_is_not_finished(world: World) -> None:
    """A sweeper may have taken it for dead by then, and deleted the objects to which readers would be sent."""
    process = world.process()
    session = process.begin()
    candidate = process.candidate(session)
    act = copy_segment(session, candidate, process.tools)
    confirm = session.confirm_leadership

    def slow() -> None:
        world.clock.advance(3601)
        confirm()

    def slow_from_now_on() -> None:
        session.confirm_leadership = slow  # type: ignore[method-assign]

    with pytest.raises(TimedOut, match="too long"):
        run_with(act, "put manifest", slow_from_now_on)
    assert world.objects() == set()
    assert world.states() == [SegmentState.DELETE_SEGMENT_FINISHED]


def test_the_listener_gets_an_event_for_a_copied_segment(world: World) -> None:
    process = world.process()
    segment = process.copy_next(process.begin())
    events_heard = [event for event in process.events if isinstance(event, SegmentCopied)]
    assert [(event.segment_id, event.offsets, event.log_bytes, event.object_bytes) for event in events_heard] == [
        (segment.segment_id, segment.offsets, segment.log_bytes, segment.object_bytes)
    ]


def test_nothing_is_copied_above_the_last_stable_offset(new_world: Callable[..., World]) -> None:
    world = new_world("none", TRIMS_ALL)
    process = world.process()
    worker = process.worker()
    world.broker.open_transaction(world.name, 0, Offset(world.bases[2]))
    process.work(worker)
    assert process.status().copied_to == world.bases[2] - 1
    assert "last stable offset" in (process.status().not_copied or "")
    world.broker.open_transaction(world.name, 0, None)
    process.work(worker)
    assert process.status().copied_to == world.bases[-1] - 1


def test_a_last_stable_offset_that_goes_back_while_a_segment_is_copied_commits_nothing(world: World) -> None:
    process = world.process()
    session = process.begin()
    act = copy_segment(session, process.candidate(session), process.tools)
    with pytest.raises(Fenced, match="went back"):
        run_with(act, "put manifest", lambda: world.broker.open_transaction(world.name, 0, Offset(1)))
    assert world.check_promises().readable == ()

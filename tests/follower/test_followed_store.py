"""A store that follows its objects: what it does besides reads (`tests/app/test_migration.py` has those of a move)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.follower.followed_store import LOOK_S, WRITE_S, FollowedStore
from tierstate.follower.move import ARRIVED, MOVED, Move, write_move
from tierstate.state.errors import AccessDenied, InvalidRequest, ObjectNotFound, Unavailable
from tierstate.state.offsets import ByteRange, Position, TimestampMs
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.segment.log_chunks import NearStore

MOVE = Move("A" * 22, "s3://old", "s3://new", "", "", "B" * 22, Position(0), "", "", TimestampMs(0))


class Places:
    def __init__(self, source: ObjectStore) -> None:
        self.clock, self.source, self.target = ManualClock(), source, MemoryStore()
        self.followed = FollowedStore(source, lambda move: self.target, self.clock)
        self.store = cast(ObjectStore, self.followed)

    def moves(self) -> None:
        write_move(self.source, self.source, MOVED, MOVE)

    def arrives(self) -> None:
        write_move(self.target, self.target, ARRIVED, MOVE)


@pytest.fixture
def places() -> Places:
    return Places(MemoryStore())


def test_listings_show_the_target_once_the_objects_have_arrived(places: Places) -> None:
    places.target.put_if_absent("a", b"1")
    assert list(places.store.list()) == []
    places.moves()
    places.clock.advance(LOOK_S)
    assert [each.key for each in places.store.list()] == [MOVED], "until then the source is whole"
    places.arrives()
    places.clock.advance(LOOK_S)
    assert [each.key for each in places.store.list()] == ["a", ARRIVED] or places.store.get("a") == b"1"
    assert places.followed.here is places.target


def test_nothing_is_written_while_the_objects_move_and_to_the_target_afterwards_by_other_processes(
    places: Places,
) -> None:
    places.moves()
    assert [each.key for each in places.store.list()] == [MOVED]
    for _ in range(2):
        with pytest.raises(Unavailable, match="run this again"):
            places.store.put_if_absent("a", b"1")
        places.arrives()
        places.clock.advance(LOOK_S)
    assert list(places.target.list("a")) == [], "the target may lack what this process listed"
    store: Any = FollowedStore(places.source, lambda move: places.target, places.clock)
    store.put_if_absent("a", b"1")
    assert places.target.get("a") == b"1"


@pytest.mark.parametrize("arrives", [False, True])
def test_a_write_that_ends_after_the_move_began_is_reported_because_the_target_may_lack_it(arrives: bool) -> None:
    moving = Places(MemoryStore(faults=lambda *request: slow(*request)))

    def slow(operation: str, key: str, writes: int) -> None:
        if operation == "put" and key == "a":
            moving.moves()
            if arrives:
                moving.arrives()
            moving.clock.advance(WRITE_S)

    with pytest.raises(Unavailable, match="run this again"):
        moving.store.put_if_absent("a", b"1")


def test_a_slow_write_with_no_move_is_done(places: Places) -> None:
    def slow(operation: str, key: str, writes: int) -> None:
        places.clock.advance(WRITE_S)

    store = FollowedStore(MemoryStore(faults=slow), lambda move: places.target, places.clock)
    cast(ObjectStore, store).put_if_absent("a", b"1")
    assert store.get("a") == b"1"


def test_a_stream_whose_object_moves_goes_on_at_its_place(places: Places) -> None:
    content = bytes(range(256)) * (4 * MIB // 256)
    places.target.put_if_absent("a", content)
    places.moves()
    places.arrives()

    class Breaking(MemoryStore):
        def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB):  # type: ignore[no-untyped-def]
            yield content[:MIB]
            raise ObjectNotFound("deleted by --finish")

    source = Breaking()
    write_move(source, source, MOVED, MOVE)
    store = FollowedStore(source, lambda move: places.target, places.clock)
    assert b"".join(store.stream_range("a", ByteRange(0, len(content)))) == content


def test_a_reader_of_a_folder_reads_on_after_its_objects_moved_to_another_kind_of_store(tmp_path: Path) -> None:
    places = Places(DirectoryStore(tmp_path / "store"))
    assert isinstance(places.store, NearStore)
    places.target.put_if_absent("a", b"0123456789")
    places.moves()
    places.arrives()
    with pytest.raises(ObjectNotFound):
        places.store.read_into("b", 0, memoryview(bytearray(1)))
    target = memoryview(bytearray(20))
    assert places.store.read_into("a", 4, target) == 6
    assert bytes(target[:6]) == b"456789"


def test_a_process_that_stays_follows_no_move_and_sees_when_it_has_arrived(places: Places) -> None:
    places.followed.stay()
    places.moves()
    places.clock.advance(LOOK_S)
    places.store.put_if_absent("a", b"1")
    assert not places.followed.has_moved()
    places.arrives()
    assert places.followed.has_moved()
    assert places.followed.here is places.source


def test_a_process_starts_again_if_its_settings_do_not_name_the_store_of_a_second_move(places: Places) -> None:
    def refuse(move: Move) -> ObjectStore:
        raise InvalidRequest("no setting names this store")

    store = FollowedStore(places.source, refuse, places.clock)
    store.stay(here=True)
    assert not store.has_moved()
    places.moves()
    assert store.has_moved()


def test_credentials_that_may_not_look_miss_the_object_and_nothing_else(places: Places) -> None:
    def faults(operation: str, key: str, writes: int) -> None:
        if key == MOVED:
            raise AccessDenied("not yours")

    store = FollowedStore(MemoryStore(faults=faults), lambda move: places.target, places.clock)
    with pytest.raises(ObjectNotFound):
        store.get("a")

"""A consumer's run through the remote tier brings what the current route allows, sooner, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.fetch.conftest import golden_log as golden_log
from tests.fetch.two_tiers import Golden, rows_of
from tierstate.consumer.assigned_partition import AssignedPartition
from tierstate.consumer.remote_looks import RemoteRuns
from tierstate.fetch.logical import Ask, LogicalPartition
from tierstate.fetch.piece import Fetched
from tierstate.state.errors import CorruptData, SegmentExpired
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.routing import Isolation, ReadRemote, Tier
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore

Make = Callable[..., Golden]
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)


@pytest.fixture(params=["far", "near"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "far" else DirectoryStore(tmp_path / "store")


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def runs() -> Iterator[RemoteRuns]:
    remote_runs = RemoteRuns(2)
    yield remote_runs
    remote_runs.close()


def part() -> AssignedPartition:
    return AssignedPartition(TopicPartition("t", 0, 0))


def remote(log: LogicalPartition, at: int, isolation: Isolation) -> ReadRemote | None:
    where = log.route(at, isolation, Tier.REMOTE)
    return where if isinstance(where, ReadRemote) else None


def brought(runs: RemoteRuns, log: LogicalPartition, isolation: Isolation) -> list[Fetched]:
    """Return all pieces of the remote tier that one run brings."""
    reader, at, pieces = part(), 0, []
    while at < log.copied_end(Offset(0)):
        where = remote(log, at, isolation)
        assert where is not None
        piece = runs.read(reader, log, where, Ask(1 << 20, isolation, Tier.REMOTE))
        assert piece is not None
        assert piece.offset == at
        pieces.append(piece)
        at = piece.next_offset
    return pieces


@pytest.mark.parametrize("isolation", BOTH)
def test_a_run_brings_the_records_that_a_reader_piece_by_piece_finds(
    golden_log: Make, store: ObjectStore, runs: RemoteRuns, isolation: Isolation
) -> None:
    golden = golden_log(store=store)
    log = golden.reader.partition("t", 0)
    pieces = brought(runs, log, isolation)
    end = pieces[-1].next_offset
    assert end == golden.segments[-1].offsets.end + 1
    scanned = golden.reader.scan("t", 0, 0, end, isolation=isolation, tier=Tier.REMOTE)
    assert rows_of(pieces) == rows_of(list(scanned))


def test_a_piece_that_is_not_where_the_route_is_now_is_not_handed_out(
    golden_log: Make, store: ObjectStore, runs: RemoteRuns
) -> None:
    golden = golden_log(store=store)
    log, reader, ask = golden.reader.partition("t", 0), part(), Ask(1 << 20, BOTH[0], Tier.REMOTE)
    first = remote(log, 0, BOTH[0])
    assert first is not None
    assert runs.read(reader, log, first, ask) is not None
    assert runs.read(reader, log, first, ask) is None  # a seek back
    again = runs.read(reader, log, first, ask)
    assert again is not None
    assert again.offset == 0
    second = golden.segments[1].offsets
    assert runs.read(reader, log, ReadRemote(golden.segments[0], second), ask) is None  # it is another segment's now
    assert runs.read(reader, log, first, ask) is not None
    middle = OffsetRange(Offset(second.start + 5), second.end)
    assert runs.read(reader, log, ReadRemote(golden.segments[1], middle), ask) is None  # a seek on


def test_nothing_beyond_what_the_route_allows_is_handed_out(
    golden_log: Make, store: ObjectStore, runs: RemoteRuns
) -> None:
    golden = golden_log(store=store)
    log, reader, ask = golden.reader.partition("t", 0), part(), Ask(1 << 20, BOTH[1], Tier.REMOTE)
    first = remote(log, 0, BOTH[1])
    assert first is not None
    assert runs.read(reader, log, first, ask) is not None
    second = golden.segments[1]
    last = Offset((second.offsets.start + second.offsets.end) // 2)  # the broker has the rest, by now
    piece = runs.read(reader, log, ReadRemote(second, OffsetRange(second.offsets.start, last)), ask)
    assert piece is not None
    assert (piece.next_offset, piece.limit) == (last + 1, last + 1)


def test_partitions_beyond_the_limit_of_runs_are_read_piece_by_piece(
    golden_log: Make, store: ObjectStore, runs: RemoteRuns
) -> None:
    log = golden_log(store=store).reader.partition("t", 0)
    ask, where = Ask(1 << 20, BOTH[0], Tier.REMOTE), remote(log, 0, BOTH[0])
    assert where is not None
    readers = [part(), part(), part()]
    assert [runs.read(reader, log, where, ask) is not None for reader in readers] == [True, True, False]
    runs.end(readers[0])
    assert runs.read(readers[2], log, where, ask) is not None


def test_a_missing_object_is_left_to_a_single_read(golden_log: Make, store: ObjectStore, runs: RemoteRuns) -> None:
    golden = golden_log(store=store)
    log, ask = golden.reader.partition("t", 0), Ask(1 << 20, BOTH[0], Tier.REMOTE)
    where = remote(log, 0, BOTH[0])
    assert where is not None
    golden.tiers.store.delete(object_key(golden.segments[0].object_key, ObjectKind.MANIFEST))
    assert runs.read(part(), log, where, ask) is None
    with pytest.raises((SegmentExpired, CorruptData), match="missing"):
        log.fetch(0, ask)

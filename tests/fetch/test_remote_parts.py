"""A split's remote parts are read in order and once: the same records as any reader's, fewer bytes moved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fetch.two_tiers import Golden, golden_rows, rows_of
from tests.log.batches import Batch, record
from tierstate.fetch.piece import Fetched
from tierstate.fetch.plan import PlannedPart, PlannedSplit, plan
from tierstate.fetch.split import read_split
from tierstate.state.errors import CorruptData, ObjectNotFound, StorageUnavailable
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import ByteRange, Offset, OffsetRange
from tierstate.state.routing import Isolation, Tier
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.segment.buffers import HEAD_BYTES, Buffers
from tierstate.storage.segment.log_chunks import WINDOW_BYTES
from tierstate.storage.segment.manifest_json import with_own_size
from tierstate.storage.segment.reader import read_manifest
from tierstate.storage.segment.writer import put_manifest

Make = Callable[..., Golden]
BOTH = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
FORMS = (Compression.NONE, Compression.ZSTD)


@pytest.fixture(params=["far", "near"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return a store that is read ahead by several requests, or one that is read in the caller's thread."""
    return MemoryStore() if request.param == "far" else DirectoryStore(tmp_path / "store")


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


pytestmark = pytest.mark.usefixtures("no_thread_left")


def split_of(golden: Golden, start: int, end: int, isolation: Isolation = Isolation.READ_COMMITTED) -> PlannedSplit:
    ranges = {("t", 0): (Offset(start), Offset(end))}
    (split,) = plan(golden.reader, ranges, isolation=isolation, tier=Tier.REMOTE)
    return split


def read(golden: Golden, start: int, end: int, isolation: Isolation, piece_bytes: int) -> list[Fetched]:
    split = split_of(golden, start, end, isolation)
    return list(read_split(split, golden.tiers.store, None, piece_bytes=piece_bytes))


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("compression", FORMS)
@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("piece_bytes", [700, pytest.param(MIB, marks=pytest.mark.extended)])
@pytest.mark.parametrize("case", ["transactions", pytest.param("zstd", marks=pytest.mark.extended)])
def test_however_it_is_cut_it_is_what_kafkas_consumer_read(
    case: str,
    piece_bytes: int,
    isolation: Isolation,
    compression: Compression,
    foreign: bool,
    store: ObjectStore,
    golden_log: Make,
) -> None:
    """The pieces are kept to the end, while buffers are used again."""
    golden = golden_log(case, store=store, compression=compression, foreign=foreign)
    end = golden.folder.bases[-1]
    pieces = read(golden, 0, end, isolation, piece_bytes)
    assert rows_of(pieces) == [row for row in golden_rows(case, isolation) if row[0] < end]
    assert [piece.offset for piece in pieces[1:]] >= [piece.next_offset for piece in pieces[:-1]]


@pytest.mark.extended
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("compression", FORMS)
@pytest.mark.parametrize("piece_bytes", [700, MIB])
def test_any_range_is_exact(
    piece_bytes: int, compression: Compression, foreign: bool, store: ObjectStore, golden_log: Make
) -> None:
    golden = golden_log("transactions", store=store, compression=compression, foreign=foreign, chunk_bytes=3_000)
    expected = golden_rows("transactions", Isolation.READ_COMMITTED)
    borders = [*golden.folder.bases[1:], *range(7, golden.folder.bases[-1], 61)]
    for border in borders:
        for start, end in ((border, border + 1), (border - 1, border + 40), (max(0, border - 90), border)):
            end = min(end, golden.folder.bases[-1])
            if start < end:
                records = rows_of(read(golden, start, end, Isolation.READ_COMMITTED, piece_bytes))
                assert records == [row for row in expected if start <= row[0] < end]


@pytest.mark.parametrize("compression", FORMS)
def test_every_byte_of_a_log_is_asked_for_once_and_none_behind_the_end(
    compression: Compression, golden_log: Make
) -> None:
    store = Asked()
    golden = golden_log("none", store=store, compression=compression, chunk_bytes=16_000)
    store.asked.clear()
    end = golden.segments[0].offsets.end + 1
    assert rows_of(read(golden, 0, end, Isolation.READ_COMMITTED, 5_000))
    assert store.log_bytes() == {golden.segments[0].object_key: golden.segments[0].log_object_bytes}
    store.asked.clear()
    middle = end // 2
    assert rows_of(read(golden, middle, end, Isolation.READ_COMMITTED, 20_000))
    chunk = golden.remote.open(golden.segments[0]).chunk_for_offset(middle)
    assert chunk
    index = golden.remote.open(golden.segments[0]).manifest.chunks
    expected = index.stored_bytes - index.chunk(chunk).stored_start
    assert store.log_bytes() == {golden.segments[0].object_key: expected}


class Asked(MemoryStore):
    """A store that remembers the requested ranges, and how many requests were open; a test may hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ByteRange]] = []
        self.now_open = self.most_open = 0
        self.before: Callable[[str], None] = lambda key: None
        self._count = threading.Condition()

    def log_bytes(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for key, range in self.asked:
            base, _, kind = key.rpartition(".")
            if f".{kind}" == ObjectKind.LOG:
                sums[base] = sums.get(base, 0) + len(range)
        return sums

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        with self._count:
            self.asked.append((key, range))
            self.now_open += 1
            self.most_open = max(self.most_open, self.now_open)
            self._count.notify_all()
        try:
            self.before(key)
            yield from super().stream_range(key, range, piece_bytes)
        finally:
            with self._count:
                self.now_open -= 1

    def wait_for(self, count: int) -> bool:
        with self._count:
            return self._count.wait_for(lambda: self.now_open >= count, 30)


@pytest.mark.parametrize("piece_bytes", [4096, MIB])
def test_four_requests_are_in_flight_also_where_segments_are_small(piece_bytes: int, golden_log: Make) -> None:
    """A store that is far away answers none of them before it was asked for all; pieces of 1 MiB are whole segments."""
    store = Asked()
    golden = golden_log("none", store=store, compression=Compression.NONE)
    split = split_of(golden, 0, golden.folder.bases[-1])
    together, turns = threading.Barrier(4), iter([True] * 4 + [False] * 1000)

    def wait(key: str) -> None:
        if next(turns):
            together.wait(30)

    store.before = wait
    assert len(split.parts) >= 4
    expected = [row for row in golden_rows("none", Isolation.READ_COMMITTED) if row[0] < split.end]
    assert rows_of(read_split(split, store, None, piece_bytes=piece_bytes)) == expected
    assert (store.most_open, store.now_open) == (4, 0)


def test_a_reader_that_leaves_early_leaves_no_request_open(golden_log: Make) -> None:
    store = Asked()
    golden = golden_log("none", store=store, compression=Compression.NONE)
    split, held, first = split_of(golden, 0, golden.folder.bases[-1]), threading.Event(), iter([True])

    def hold(key: str) -> None:
        if not next(first, False):
            held.wait(30)

    store.before = hold
    pieces = read_split(split, store, None, piece_bytes=4096)
    assert next(pieces).data
    assert store.wait_for(4)
    threading.Timer(0.05, held.set).start()
    assert isinstance(pieces, Generator)
    pieces.close()
    assert store.now_open == 0


def test_an_error_comes_after_the_pieces_before_it(store: ObjectStore, golden_log: Make) -> None:
    golden = golden_log("none", store=store, compression=Compression.NONE)
    split = split_of(golden, 0, golden.folder.bases[-1])
    store.delete(object_key(golden.segments[1].object_key, ObjectKind.MANIFEST))
    pieces: list[Fetched] = []
    with pytest.raises(ObjectNotFound):
        pieces.extend(read_split(split, store, None))
    offsets = [row[0] for row in rows_of(pieces)]
    assert offsets == list(range(golden.folder.bases[1]))


@pytest.mark.parametrize("compression", FORMS)
def test_an_object_that_is_too_short_is_corrupt_never_a_short_read(
    compression: Compression, store: ObjectStore, golden_log: Make
) -> None:
    golden = golden_log("none", store=store, compression=compression)
    key = object_key(golden.segments[0].object_key, ObjectKind.LOG)
    whole = store.get(key)
    for left in (len(whole) - 1, len(whole) // 2, 1, 0):
        store.delete(key)
        store.put_if_absent(key, whole[:left])
        with pytest.raises(CorruptData, match="object is shorter than its manifest says") as short:
            read(golden, 0, golden.folder.bases[1], Isolation.READ_COMMITTED, MIB)
        assert short.value.facts["file"] == key


def test_a_log_that_ends_inside_a_batch_is_corrupt(store: ObjectStore, golden_log: Make) -> None:
    """This holds also if only zeros follow, which a broker's reader takes for the end."""
    golden = golden_log("none", store=store, compression=Compression.NONE, older=True)
    key = object_key(golden.segments[0].object_key, ObjectKind.LOG)
    whole = store.get(key)
    last = whole.rindex(b"\x00\x00\x00\x00\x02", 0, len(whole) - 61) - 12
    for broken in (whole[:last] + bytes(len(whole) - last), whole[: last + 8] + b"\x7f" + whole[last + 9 :]):
        store.delete(key)
        store.put_if_absent(key, broken)
        with pytest.raises(CorruptData, match="ends inside a batch"):
            read(golden, 0, golden.folder.bases[1], Isolation.READ_COMMITTED, 3_000)


def test_a_failure_of_the_store_is_raised(golden_log: Make) -> None:
    store = Asked()
    golden = golden_log("none", store=store, compression=Compression.NONE)
    split = split_of(golden, 0, golden.folder.bases[-1])

    def fail(key: str) -> None:
        if key.startswith(golden.segments[2].object_key):
            raise StorageUnavailable("the store does not answer")

    store.before = fail
    pieces: list[Fetched] = []
    with pytest.raises(StorageUnavailable):
        pieces.extend(read_split(split, store, None, piece_bytes=4096))
    assert [row[0] for row in rows_of(pieces)] == list(range(golden.folder.bases[2]))


def test_memory_is_reused_only_when_it_is_no_longer_held() -> None:
    buffers = Buffers(2)
    first = buffers.take(0, 1000)
    first.data[:] = b"x" * 1000
    held = first.after(b"tail")[2:]
    del first
    second = buffers.take(0, 1000)
    second.data[:] = b"y" * 1000
    assert bytes(held) == b"il" + b"x" * 1000
    forgotten = second.data
    del second, forgotten
    third = buffers.take(0, 500)
    assert bytes(third.data) == b"y" * 500, "the very same memory"
    assert bytes(third.after(b"z" * (HEAD_BYTES + 1))[-500:]) == b"y" * 500


def test_a_part_with_another_description_of_its_segment_is_refused(store: ObjectStore, golden_log: Make) -> None:
    golden = golden_log("none", store=store)
    one, other = golden.segments[:2]
    split = split_of(golden, 0, 10)
    for kind in (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST):
        key = object_key(one.object_key, kind)
        store.delete(key)
        store.put_if_absent(key, store.get(object_key(other.object_key, kind)))
    part = PlannedPart(OffsetRange(Offset(0), Offset(9)), one)
    assert split.parts == (part,)
    with pytest.raises(CorruptData, match="the manifest describes another segment"):
        list(read_split(split, store, None))


RECORD_BYTES = 300_000
COUNT = 8


@pytest.fixture
def large_batches(tmp_path: Path) -> Path:
    """Write a folder with one record a batch, each larger than many chunks and than what is read behind it."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = b"".join(Batch(at, [record(0, None, b"%08d" % at * (RECORD_BYTES // 8))]).bytes for at in range(COUNT))
    (folder / f"{0:020d}.log").write_bytes(log)
    (folder / f"{COUNT:020d}.log").write_bytes(Batch(COUNT, [record(0, None, b"")]).bytes)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return folder


@pytest.mark.parametrize("piece_bytes", [50_000, 400_000, WINDOW_BYTES])
@pytest.mark.parametrize("compression", FORMS)
def test_batches_larger_than_a_window_are_whole(
    compression: Compression, piece_bytes: int, store: ObjectStore, large_batches: Path, golden_log: Make
) -> None:
    golden = golden_log(path=large_batches, store=store, compression=compression, chunk_bytes=65_536)
    for start, end in ((0, COUNT), (0, 1), (3, 5), (COUNT - 1, COUNT)):
        records = rows_of(read(golden, start, end, Isolation.READ_COMMITTED, piece_bytes))
        assert [(row[0], row[4]) for row in records] == [
            (at, b"%08d" % at * (RECORD_BYTES // 8)) for at in range(start, end)
        ]


def test_a_chunk_table_that_ends_too_early_hides_nothing(
    store: ObjectStore, large_batches: Path, golden_log: Make
) -> None:
    """The table only decides how far to read ahead; a read ends where the last offset was seen."""
    golden = golden_log(path=large_batches, store=store, compression=Compression.NONE, chunk_bytes=65_536)
    key = golden.segments[0].object_key
    manifest = read_manifest(store, key)
    block = manifest.tierstate
    assert block is not None
    firsts = tuple(offset if offset is None or offset < 4 else None for offset in block.chunk_first_offsets)
    store.delete(object_key(key, ObjectKind.MANIFEST))
    put_manifest(store, key, with_own_size(replace(manifest, tierstate=replace(block, chunk_first_offsets=firsts))))
    with pytest.raises(CorruptData, match="another chunk than its manifest says"):
        read(golden, 0, COUNT, Isolation.READ_COMMITTED, WINDOW_BYTES)

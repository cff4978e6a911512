"""From the plain log to the stored bytes: Aiven's forms, a pipeline that overlaps, ends whole and stays small."""

from __future__ import annotations

import itertools
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tierstate.state.errors import CorruptData, InvalidRequest, ObjectExists, StorageFull, TimedOut
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, MIB, Data
from tierstate.storage.segment.encryption import OVERHEAD_BYTES, SegmentCipher
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.transform import AHEAD_BYTES, WorkAhead
from tierstate.storage.segment.writer import LogObject, SegmentSource, put_indexes, put_log

from .conftest import BASE_KEY

LOG = bytes(range(256)) * 40
LOG_KEY = object_key(BASE_KEY, ObjectKind.LOG)


class NoWrapping:
    """A key wrapper for data that is never read back."""

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        return "none", data_key, "fingerprint"


CIPHER, _ = SegmentCipher.new(NoWrapping(), os.urandom)
FORMS = list(itertools.product(Compression, [None, CIPHER]))


class TakingStore(MemoryStore):
    """A store that keeps nothing: `put_stream` hands the pieces to a function of the test."""

    def __init__(self, take: Callable[[Iterator[Data]], None]) -> None:
        super().__init__()
        self._take = take

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        size = 0

        def counted() -> Iterator[Data]:
            nonlocal size
            for piece in pieces:
                size += len(piece)
                yield piece

        self._take(counted())
        return size


def iv() -> bytes:
    return os.urandom(12)


def source(pieces: Iterable[Data], log_bytes: int) -> SegmentSource:
    return SegmentSource(pieces, log_bytes, b"", b"", b"", b"", None)


def put(
    store: MemoryStore,
    pieces: Iterable[Data],
    log_bytes: int,
    form: tuple[Compression, SegmentCipher | None] = (Compression.NONE, None),
    *,
    chunk_bytes: int = 1000,
    ahead_bytes: int = 1,
) -> LogObject:
    """Put a log; threads are used from the second byte on."""
    compression, cipher = form
    return put_log(
        store,
        BASE_KEY,
        source(pieces, log_bytes),
        compression,
        cipher=cipher,
        iv=iv,
        chunk_bytes=chunk_bytes,
        work_ahead=WorkAhead(ahead_bytes),
    )


def transform_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tierstate-transform"]


@pytest.mark.parametrize(("log_bytes", "last"), [(1, 1), (999, 999), (1000, 1000), (2500, 500), (3000, 1000)])
def test_chunks_that_are_only_encrypted_have_one_size_and_the_last_its_own(log_bytes: int, last: int) -> None:
    store = MemoryStore()
    written = put(store, [LOG[:log_bytes]], log_bytes, (Compression.NONE, CIPHER))
    assert written.chunks.fixed
    assert written.chunks.stored_sizes == (1000 + OVERHEAD_BYTES, last + OVERHEAD_BYTES)
    assert written.stored_bytes == store.head(LOG_KEY).size == log_bytes + OVERHEAD_BYTES * written.chunks.count


def test_chunks_that_are_compressed_and_then_encrypted_are_listed_by_size() -> None:
    store = MemoryStore()
    plain = put(MemoryStore(), [LOG], len(LOG), (Compression.ZSTD, None)).chunks
    both = put(store, [LOG], len(LOG), (Compression.ZSTD, CIPHER)).chunks
    assert not both.fixed
    assert both.stored_sizes == tuple(size + OVERHEAD_BYTES for size in plain.stored_sizes)
    assert both.stored_bytes == store.head(LOG_KEY).size


def test_every_index_is_encrypted_by_itself_and_an_empty_one_is_stored_in_no_bytes() -> None:
    store = MemoryStore()
    files = SegmentSource([], 0, b"o" * 64, b"t" * 36, b"", b"epochs", b"")
    written = put_indexes(store, BASE_KEY, files, cipher=CIPHER, iv=iv)
    spans = [written.spans[kind] for kind in IndexKind]
    assert [(span.position, span.size) for span in spans if span] == [(0, 92), (92, 64), (156, 0), (156, 34), (190, 0)]
    stored = store.get(object_key(BASE_KEY, ObjectKind.INDEXES))
    assert len(stored) == written.stored_bytes == 190
    assert CIPHER.decrypt(stored[92:156], source="", position=92) == b"t" * 36
    assert written.sha256 == put_indexes(MemoryStore(), BASE_KEY, files).sha256, "the checksum is of the plain bytes"


def test_no_iv_is_used_for_two_chunks_or_indexes() -> None:
    ivs: list[bytes] = []

    def noted() -> bytes:
        ivs.append(iv())
        return ivs[-1]

    store, files = MemoryStore(), SegmentSource([LOG], len(LOG), b"o", b"t", b"", b"e", None)
    put_log(store, BASE_KEY, files, Compression.NONE, cipher=CIPHER, iv=noted, chunk_bytes=1000)
    put_indexes(store, BASE_KEY, files, cipher=CIPHER, iv=noted)
    assert len(ivs) == 11 + 3
    stored = store.get(LOG_KEY)
    assert [stored[at : at + 12] for at in range(0, len(stored), 1000 + OVERHEAD_BYTES)] == ivs[:11]


def test_a_cipher_without_a_source_of_ivs_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="IV"):
        put_log(MemoryStore(), BASE_KEY, source([LOG], len(LOG)), Compression.NONE, cipher=CIPHER)


def test_an_encrypted_log_that_aivens_reader_would_overflow_on_is_refused() -> None:
    """Its plain positions fit into 31 bits, its stored ones do not (aiven.md 4.3, 2)."""
    size = 2_140_000_000
    for cipher, error in ((CIPHER, InvalidRequest), (None, CorruptData)):  # the plain one is read, and found empty
        with pytest.raises(error):
            put_log(
                MemoryStore(),
                BASE_KEY,
                source([], size),
                Compression.NONE,
                cipher=cipher,
                iv=iv,
                chunk_bytes=4096,
            )


@pytest.mark.parametrize("form", FORMS)
def test_the_log_is_read_and_hashed_while_the_store_is_busy_and_the_order_is_kept(
    form: tuple[Compression, SegmentCipher | None],
) -> None:
    read_on = threading.Event()

    def pieces() -> Iterator[bytes]:
        for number in range(10):
            if number == 4:
                read_on.set()
            yield LOG[number * 1000 :][:1000]

    def stored(ahead_bytes: int, wait: bool) -> list[bytes]:
        taken: list[bytes] = []

        def take(each: Iterator[Data]) -> None:
            taken.append(bytes(next(each)))
            assert not wait or read_on.wait(30), "nothing was read while the store had its first piece"
            taken.extend(map(bytes, each))

        ivs = itertools.count()
        put_log(
            TakingStore(take),
            BASE_KEY,
            source(pieces(), 10_000),
            form[0],
            cipher=form[1],
            iv=lambda: next(ivs).to_bytes(12, "big"),
            chunk_bytes=1000,
            work_ahead=WorkAhead(ahead_bytes),
        )
        return taken

    assert stored(4000, wait=True) == stored(10_000, wait=False)


def test_a_log_of_few_bytes_needs_no_thread() -> None:
    readers: list[int] = []

    def pieces() -> Iterator[bytes]:
        readers.append(threading.get_ident())
        yield LOG

    put(MemoryStore(), pieces(), len(LOG), (Compression.ZSTD, CIPHER), ahead_bytes=len(LOG))
    assert readers == [threading.get_ident()]


@pytest.mark.parametrize("form", FORMS)
def test_a_store_that_does_not_take_stops_the_reading(form: tuple[Compression, SegmentCipher | None]) -> None:
    ahead_bytes, piece = 4000, 500
    made = 0
    too_far = threading.Event()

    def pieces() -> Iterator[bytes]:
        nonlocal made
        for _ in range(200):
            made += piece
            if made > most:
                too_far.set()
            yield os.urandom(piece)

    # as documented: three pieces and one waiting; the same again to compress, with a chunk inside zstd, or to encrypt
    most = 3 * piece + ahead_bytes
    if form[0] is Compression.ZSTD:
        most += 3 * piece + ahead_bytes + 1000
    elif form[1] is not None:
        most += 3 * piece + ahead_bytes

    def take(stored: Iterator[Data]) -> None:
        nonlocal most
        most += len(next(stored))
        assert not too_far.wait(0.3)
        most = 200 * piece
        for _ in stored:
            pass

    put(TakingStore(take), pieces(), 200 * piece, form, ahead_bytes=ahead_bytes)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 1, 7, 10])
def test_an_error_of_the_source_ends_the_copy_and_every_thread(
    form: tuple[Compression, SegmentCipher | None], at: int
) -> None:
    def pieces() -> Iterator[bytes]:
        for number in range(10):
            if number == at:
                raise TimedOut("the copy took too long")
            yield LOG[:1000]
        raise TimedOut("the copy took too long")

    store = MemoryStore()
    with pytest.raises(TimedOut):
        put(store, pieces(), 10_000, form)
    assert list(store.list()) == []
    assert transform_threads() == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 1, 5, 10])
def test_an_error_of_the_store_ends_the_reading_and_every_thread(
    form: tuple[Compression, SegmentCipher | None], at: int
) -> None:
    def full(operation: str, key: str, writes: int) -> None:
        if writes == at:
            raise StorageFull("the store has no room", key=key)

    with pytest.raises(StorageFull) as raised:
        put(MemoryStore(faults=full), itertools.repeat(LOG[:1000], 10), 10_000, form)
    assert raised.tb, "whoever looks at the error holds every generator that it passed"
    assert transform_threads() == []


@pytest.mark.parametrize("compression", Compression)
def test_an_error_between_source_and_store_ends_the_copy_and_every_thread(compression: Compression) -> None:
    counter = itertools.count()

    def failing() -> bytes:
        if next(counter) == 3:
            raise OSError("no randomness")
        return iv()

    store = MemoryStore()
    files = source([LOG[:1000]] * 10, 10_000)
    at_once = WorkAhead(1)
    with pytest.raises(OSError, match="no randomness"):
        put_log(store, BASE_KEY, files, compression, cipher=CIPHER, iv=failing, chunk_bytes=1000, work_ahead=at_once)
    assert list(store.list()) == []
    assert transform_threads() == []


def test_a_key_that_is_taken_is_found_before_anything_is_read(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent(LOG_KEY, b"taken")
    log = iter([LOG])
    with pytest.raises(ObjectExists):
        put_log(store, BASE_KEY, source(log, len(LOG)), Compression.ZSTD, work_ahead=WorkAhead(1))
    assert next(log) == LOG
    assert transform_threads() == []


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_bounded_as_documented_for_any_log(form: tuple[Compression, SegmentCipher | None]) -> None:
    log_bytes, chunk_bytes, piece = 96 * MIB, 2 * MIB, MIB // 2
    noise = os.urandom(piece)

    def pieces() -> Iterator[bytearray]:
        for _ in range(log_bytes // piece):
            yield bytearray(noise)

    def take(stored: Iterator[Data]) -> None:
        for _ in stored:
            pass

    bound = 3 * piece + AHEAD_BYTES + MIB // 2
    if form != (Compression.NONE, None):
        bound += 3 * piece + AHEAD_BYTES
    tracemalloc.start()
    try:
        put(TakingStore(take), pieces(), log_bytes, form, chunk_bytes=chunk_bytes, ahead_bytes=AHEAD_BYTES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < bound


@pytest.mark.parametrize("form", FORMS)
def test_only_a_copy_that_begins_alone_has_threads(
    form: tuple[Compression, SegmentCipher | None],
) -> None:
    work_ahead = WorkAhead(1)

    def read_on() -> set[int]:
        readers: set[int] = set()

        def pieces() -> Iterator[bytes]:
            for at in range(0, len(LOG), 1024):
                readers.add(threading.get_ident())
                yield LOG[at : at + 1024]

        store, files = MemoryStore(), source(pieces(), len(LOG))
        put_log(store, BASE_KEY, files, form[0], cipher=form[1], iv=iv, chunk_bytes=1000, work_ahead=work_ahead)
        return readers

    with work_ahead.copy():
        assert read_on() == {threading.get_ident()}
    assert len(read_on() - {threading.get_ident()}) == 1, "the other one has ended"

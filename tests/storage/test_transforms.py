"""From the plain log to the stored bytes: Aiven's forms, made in one pass that ends whole and stays small."""

from __future__ import annotations

import itertools
import os
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


def source(pieces: Iterable[Data], log_bytes: int) -> SegmentSource:
    return SegmentSource(pieces, log_bytes, b"", b"", b"", b"", None)


def put(
    store: MemoryStore,
    pieces: Iterable[Data],
    log_bytes: int,
    form: tuple[Compression, SegmentCipher | None] = (Compression.NONE, None),
    *,
    chunk_bytes: int = 1000,
) -> LogObject:
    compression, cipher = form
    return put_log(store, BASE_KEY, source(pieces, log_bytes), compression, cipher=cipher, chunk_bytes=chunk_bytes)


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
    written = put_indexes(store, BASE_KEY, files, cipher=CIPHER)
    spans = [written.spans[kind] for kind in IndexKind]
    assert [(span.position, span.size) for span in spans if span] == [(0, 92), (92, 64), (156, 0), (156, 34), (190, 0)]
    stored = store.get(object_key(BASE_KEY, ObjectKind.INDEXES))
    assert len(stored) == written.stored_bytes == 190
    assert CIPHER.decrypt(stored[92:156], source="", position=92) == b"t" * 36
    assert written.sha256 == put_indexes(MemoryStore(), BASE_KEY, files).sha256, "the checksum is of the plain bytes"


def test_no_iv_is_used_for_two_chunks_or_indexes() -> None:
    ivs: list[bytes] = []

    def noted(size: int) -> bytes:
        ivs.append(os.urandom(size))
        return ivs[-1]

    cipher, _ = SegmentCipher.new(NoWrapping(), noted)
    ivs.clear()  # the data key and the AAD
    store, files = MemoryStore(), SegmentSource([LOG], len(LOG), b"o", b"t", b"", b"e", None)
    put_log(store, BASE_KEY, files, Compression.NONE, cipher=cipher, chunk_bytes=1000)
    put_indexes(store, BASE_KEY, files, cipher=cipher)
    assert len(ivs) == 11 + 3
    stored = store.get(LOG_KEY)
    assert [stored[at : at + 12] for at in range(0, len(stored), 1000 + OVERHEAD_BYTES)] == ivs[:11]


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
                chunk_bytes=4096,
            )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 1, 7, 10])
def test_an_error_of_the_source_ends_the_copy(form: tuple[Compression, SegmentCipher | None], at: int) -> None:
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 1, 5, 10])
def test_an_error_of_the_store_ends_the_reading(form: tuple[Compression, SegmentCipher | None], at: int) -> None:
    def full(operation: str, key: str, writes: int) -> None:
        if writes == at:
            raise StorageFull("the store has no room", key=key)

    with pytest.raises(StorageFull) as raised:
        put(MemoryStore(faults=full), itertools.repeat(LOG[:1000], 10), 10_000, form)
    assert raised.tb, "whoever looks at the error holds every generator that it passed"


@pytest.mark.parametrize("compression", Compression)
def test_an_error_between_source_and_store_ends_the_copy(compression: Compression) -> None:
    counter = itertools.count()

    def failing(size: int) -> bytes:
        if next(counter) == 5:
            raise OSError("no randomness")
        return os.urandom(size)

    store = MemoryStore()
    cipher, _ = SegmentCipher.new(NoWrapping(), failing)
    with pytest.raises(OSError, match="no randomness"):
        put(store, [LOG[:1000]] * 10, 10_000, (compression, cipher))
    assert list(store.list()) == []


def test_a_key_that_is_taken_is_found_before_anything_is_read(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent(LOG_KEY, b"taken")
    log = iter([LOG])
    with pytest.raises(ObjectExists):
        put_log(store, BASE_KEY, source(log, len(LOG)), Compression.ZSTD)
    assert next(log) == LOG


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

    bound = 3 * piece + MIB // 2
    if form != (Compression.NONE, None):
        bound += 3 * piece
    tracemalloc.start()
    try:
        put(TakingStore(take), pieces(), log_bytes, form, chunk_bytes=chunk_bytes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < bound

"""Damaged objects of one segment: found, named, never a short read.

The table says which check finds which damage: *read* is any read by `SegmentReader`, *verify* its method, *records* the
CRC and the offsets of record batches (`log/`), which every read of records checks:

| damage                           | plain           | zstd            | AES-GCM, with zstd or not          |
|----------------------------------|-----------------|-----------------|------------------------------------|
| missing, truncated               | read            | read            | read                               |
| extended                         | verify          | verify          | verify                             |
| a bit flipped                    | records, verify | read or verify¹ | read                               |
| chunks swapped, re-ordered       | records, verify | read or verify¹ | read; of equal size records, verify² |
| another segment's object         | verify          | read or verify  | read: it has another data key      |
| a manifest without its blanks    | -               | -               | verify                             |
| a manifest with other bytes      | opening, reading or verify, or it changes nothing that is read        |
| another segment's manifest       | verify, against the fact                                              |

¹ zstd frames have no checksum (Aiven's have none): a flip may unpack to other bytes of the same length.
² The AAD of Aiven's format has no chunk number: tests/fetch/test_swapped_chunks.py shows what records say to that.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tierstate.state.errors import CorruptData, InvalidRequest, ObjectNotFound
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.segment import Compression, RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import IndexKind
from tierstate.storage.segment.reader import SegmentReader

from .conftest import BASE_KEY, WriteSegment

KEYS = KeyRing.load(Path(__file__).parent.parent / "data" / "aiven-kafka" / "keyring.toml")
LOG_KEY, INDEXES_KEY, MANIFEST_KEY = (object_key(BASE_KEY, kind) for kind in ObjectKind)
CHUNK_BYTES = 1000
CHANCE = random.Random(20261121)
WORDS = [CHANCE.randbytes(CHANCE.randint(2, 6)) for _ in range(200)]
FORMS = list(itertools.product(Compression, [False, True]))
R = TypeVar("R")


def some_log(log_bytes: int = 10_240) -> bytes:
    """Return different bytes at every call."""
    return b"".join(CHANCE.choices(WORDS, k=log_bytes))[:log_bytes]


@dataclass(frozen=True)
class Segment:
    """A whole segment, from which objects are taken."""

    store: MemoryStore
    log: bytes
    fact: RemoteSegment
    encrypted: bool
    compressed: bool

    @property
    def borders(self) -> list[int]:
        """Return where chunks begin and end in the log object."""
        chunks = self.reader(self.store).manifest.chunks
        return [0, *(chunk.stored_stop for chunk in chunks)]

    @property
    def index_borders(self) -> list[int]:
        spans = self.reader(self.store).manifest.indexes.values()
        return sorted({edge for span in spans if span for edge in (span.position, span.position + span.size)})

    def reader(self, store: MemoryStore) -> SegmentReader:
        return SegmentReader.open(store, BASE_KEY, keys=KEYS)

    def indexes(self, store: MemoryStore) -> list[bytes | None]:
        reader = self.reader(store)
        return [reader.indexes(kind) for kind in IndexKind]

    def damaged(self, key: str, data: bytes | None) -> MemoryStore:
        """Return a store with one object replaced, or without it."""
        store = MemoryStore()
        for each in (LOG_KEY, INDEXES_KEY, MANIFEST_KEY):
            if each != key:
                store.put_if_absent(each, self.store.get(each))
            elif data is not None:
                store.put_if_absent(each, data)
        return store


@pytest.fixture(params=FORMS, ids=[f"{c}{'-aes' * e}" for c, e in FORMS])
def segment(request: pytest.FixtureRequest, write_segment: WriteSegment) -> Segment:
    return new_segment(write_segment, *request.param)


def new_segment(write_segment: WriteSegment, compression: Compression, encrypted: bool) -> Segment:
    store, log = MemoryStore(), some_log()
    fact = write_segment(
        store,
        log,
        compression=compression,
        chunk_bytes=CHUNK_BYTES,
        transaction_index=b"transactions",
        keys=KEYS if encrypted else None,
    )
    return Segment(store, log, fact, encrypted, compression is Compression.ZSTD)


def places(borders: list[int], more: int = 20) -> list[int]:
    """Return positions at, before and after every border, and anywhere."""
    near = {at + step for at in borders for step in (-1, 0, 1)}
    return sorted(at for at in near | {CHANCE.randrange(borders[-1]) for _ in range(more)} if 0 <= at < borders[-1])


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << CHANCE.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, borders: list[int]) -> list[bytes]:
    return [data[start:stop] for start, stop in itertools.pairwise(borders)]


def orders(count: int) -> Iterator[list[int]]:
    """Yield orders: neighbours swapped, the first and the last, all reversed, all moved by one, and any."""
    whole = list(range(count))
    for one, other in [*itertools.pairwise(whole), (0, count - 1)]:
        yield [other if at == one else one if at == other else at for at in whole]
    yield whole[::-1]
    yield whole[1:] + whole[:1]
    while (mixed := CHANCE.sample(whole, count)) == whole:
        pass
    yield mixed


def tried(read: Callable[[], R]) -> R | CorruptData:
    try:
        return read()
    except CorruptData as error:
        return error


def log_or_error(segment: Segment, store: MemoryStore) -> bytes | CorruptData:
    """Read in every way: all at once, and each chunk by itself. An error names object and chunk."""
    reader = segment.reader(store)
    log = tried(lambda: b"".join(reader.read_log()))
    chunks = reader.manifest.chunks
    alone = tried(lambda: b"".join(b"".join(reader.plain_range(c.plain_start, c.plain_stop)) for c in chunks))
    if isinstance(log, CorruptData):
        assert isinstance(alone, CorruptData)
        assert log.facts["file"] == alone.facts["file"] == LOG_KEY
        assert log.facts["chunk"] == alone.facts["chunk"]
        assert isinstance(log.facts["chunk"], int)
    else:
        assert len(log) == len(segment.log), "a short read"
        assert alone == log
    return log


def assert_verify_finds(segment: Segment, store: MemoryStore, key: str) -> None:
    with pytest.raises(CorruptData) as raised:
        segment.reader(store).verify(segment.fact)
    assert raised.value.facts["file"] == key


def test_a_whole_segment_verifies(segment: Segment) -> None:
    assert segment.reader(segment.store).verify(segment.fact)
    assert log_or_error(segment, segment.store) == segment.log


def test_a_log_that_is_cut_off_is_found_by_any_read_of_the_chunk(segment: Segment) -> None:
    stored, borders = segment.store.get(LOG_KEY), segment.borders
    for at in places(borders):
        store = segment.damaged(LOG_KEY, stored[:at])
        error = log_or_error(segment, store)
        assert isinstance(error, CorruptData)
        first_cut = next(chunk for chunk, stop in enumerate(borders[1:]) if stop > at)
        assert error.facts["chunk"] == first_cut, f"cut at {at} of {borders}"
        assert_verify_finds(segment, store, LOG_KEY)


def test_chunks_before_the_cut_are_still_read(segment: Segment) -> None:
    stored = segment.store.get(LOG_KEY)
    store = segment.damaged(LOG_KEY, stored[: segment.borders[3] + 1])
    assert b"".join(segment.reader(store).plain_range(0, 3 * CHUNK_BYTES)) == segment.log[: 3 * CHUNK_BYTES]


def test_a_log_with_more_bytes_is_found_by_verify(segment: Segment) -> None:
    stored = segment.store.get(LOG_KEY)
    for more in (b"\0", stored[: segment.borders[1]], stored):
        store = segment.damaged(LOG_KEY, stored + more)
        assert log_or_error(segment, store) == segment.log
        assert_verify_finds(segment, store, LOG_KEY)


def test_a_flipped_bit_of_the_log_is_found(segment: Segment) -> None:
    stored, borders = segment.store.get(LOG_KEY), segment.borders
    for at in places(borders):
        store = segment.damaged(LOG_KEY, flipped(stored, at))
        outcome = log_or_error(segment, store)
        if isinstance(outcome, CorruptData):
            assert outcome.facts["chunk"] == next(chunk for chunk, stop in enumerate(borders[1:]) if stop > at)
        else:
            assert not segment.encrypted, "an encrypted chunk opened although it was changed"
            assert outcome != segment.log or segment.compressed  # a few bits of a frame have no meaning
        if outcome != segment.log:
            assert_verify_finds(segment, store, LOG_KEY)


def test_chunks_in_another_order_are_found(segment: Segment) -> None:
    stored, borders = segment.store.get(LOG_KEY), segment.borders
    chunks = cut(stored, borders)
    equal_size = 0
    for order in orders(len(chunks)):
        store = segment.damaged(LOG_KEY, b"".join(chunks[at] for at in order))
        outcome = log_or_error(segment, store)
        if segment.encrypted or segment.compressed:
            same_sizes = all(len(chunks[at]) == len(chunks[to]) for to, at in enumerate(order))
            equal_size += same_sizes
            assert same_sizes or isinstance(outcome, CorruptData)
        assert outcome != segment.log
        assert_verify_finds(segment, store, LOG_KEY)
    assert equal_size or segment.compressed or not segment.encrypted, "the case that only checksums tell was not met"


def test_the_log_of_another_segment_is_found(segment: Segment, write_segment: WriteSegment) -> None:
    compression = Compression.ZSTD if segment.compressed else Compression.NONE
    other = new_segment(write_segment, compression, segment.encrypted)
    store = segment.damaged(LOG_KEY, other.store.get(LOG_KEY))
    outcome = log_or_error(segment, store)
    assert outcome != segment.log
    assert isinstance(outcome, CorruptData) or not segment.encrypted
    assert_verify_finds(segment, store, LOG_KEY)


@pytest.mark.parametrize("key", [LOG_KEY, INDEXES_KEY, MANIFEST_KEY])
def test_a_missing_object_is_not_found_under_its_own_name(segment: Segment, key: str) -> None:
    store = segment.damaged(key, None)
    ways: list[Callable[[], object]] = [lambda: segment.reader(store).verify()]
    if key != INDEXES_KEY:
        ways.append(lambda: b"".join(segment.reader(store).read_log()))
    if key != LOG_KEY:
        ways.append(lambda: segment.indexes(store))
    for read in ways:
        with pytest.raises(ObjectNotFound) as raised:
            read()
        assert raised.value.facts["key"] == key


def indexes_or_error(segment: Segment, store: MemoryStore) -> list[bytes | None] | CorruptData:
    """Read each index by itself; an error names object and position."""
    outcome = tried(lambda: segment.indexes(store))
    if isinstance(outcome, CorruptData):
        assert outcome.facts["file"] == INDEXES_KEY
        assert isinstance(outcome.facts["position"], int)
    else:
        whole = segment.indexes(segment.store)
        assert [each and len(each) for each in outcome] == [each and len(each) for each in whole], "a short read"
    return outcome


def test_indexes_that_are_cut_off_are_found_by_any_read(segment: Segment) -> None:
    stored = segment.store.get(INDEXES_KEY)
    for at in places(segment.index_borders):
        store = segment.damaged(INDEXES_KEY, stored[:at])
        assert isinstance(indexes_or_error(segment, store), CorruptData)
        assert_verify_finds(segment, store, INDEXES_KEY)


def test_indexes_with_more_bytes_are_found_by_verify(segment: Segment) -> None:
    store = segment.damaged(INDEXES_KEY, segment.store.get(INDEXES_KEY) + b"\0")
    assert indexes_or_error(segment, store) == segment.indexes(segment.store)
    assert_verify_finds(segment, store, INDEXES_KEY)


def test_a_flipped_bit_of_the_indexes_is_found(segment: Segment) -> None:
    stored = segment.store.get(INDEXES_KEY)
    for at in places(segment.index_borders):
        store = segment.damaged(INDEXES_KEY, flipped(stored, at))
        assert isinstance(indexes_or_error(segment, store), CorruptData) is segment.encrypted
        assert_verify_finds(segment, store, INDEXES_KEY)


def test_indexes_in_another_order_or_of_another_segment_are_found(
    segment: Segment, write_segment: WriteSegment
) -> None:
    stored, borders = segment.store.get(INDEXES_KEY), segment.index_borders
    parts = cut(stored, borders)
    assert len(set(map(len, parts))) > 1
    for order in orders(len(parts)):
        store = segment.damaged(INDEXES_KEY, b"".join(parts[at] for at in order))
        assert indexes_or_error(segment, store) != segment.indexes(segment.store)
        assert_verify_finds(segment, store, INDEXES_KEY)
    if segment.encrypted:  # the same indexes under another data key
        other = new_segment(write_segment, Compression.NONE, encrypted=True)
        store = segment.damaged(INDEXES_KEY, other.store.get(INDEXES_KEY))
        assert isinstance(indexes_or_error(segment, store), CorruptData)


def test_a_manifest_that_is_cut_off_or_extended_opens_nothing(segment: Segment) -> None:
    stored = segment.store.get(MANIFEST_KEY)
    record = stored.rstrip(b" ")
    for data in [*(record[:at] for at in range(len(record))), stored + b"}", stored + stored]:
        with pytest.raises(CorruptData) as raised:
            segment.reader(segment.damaged(MANIFEST_KEY, data))
        assert raised.value.facts["file"] == MANIFEST_KEY


def test_a_manifest_that_lost_only_blanks_is_read_and_found_by_verify(segment: Segment) -> None:
    """An encrypted manifest ends in blanks, for a longer key to come (docs/decisions/0018)."""
    stored = segment.store.get(MANIFEST_KEY)
    record = stored.rstrip(b" ")
    assert (record != stored) is segment.encrypted
    for data in {record, stored[:-1], stored + b" "} - {stored, record[:-1]}:
        store = segment.damaged(MANIFEST_KEY, data)
        assert log_or_error(segment, store) == segment.log
        assert_verify_finds(segment, store, MANIFEST_KEY)


def test_a_manifest_that_verifies_reads_as_before_any_flipped_bit(segment: Segment) -> None:
    stored = segment.store.get(MANIFEST_KEY)
    step = 11 if segment.encrypted else 1  # opening an encrypted one takes a private key
    refused = 0
    for at in range(0, len(stored), step):
        store = segment.damaged(MANIFEST_KEY, flipped(stored, at))
        try:
            segment.reader(store).verify(segment.fact)
        except (CorruptData, InvalidRequest) as error:
            refused += 1
            named = {error.facts.get(name) for name in ("file", "key", "key_id")}
        else:
            named = set()
        if named:
            assert named != {None}
            continue
        assert log_or_error(segment, store) == segment.log
        assert segment.indexes(store) == segment.indexes(segment.store)
    assert refused > len(stored) / step / 2


def test_the_manifest_of_another_segment_does_not_pass_for_this_one(
    segment: Segment, write_segment: WriteSegment
) -> None:
    compression = Compression.ZSTD if segment.compressed else Compression.NONE
    other = new_segment(write_segment, compression, segment.encrypted)
    store = segment.damaged(MANIFEST_KEY, other.store.get(MANIFEST_KEY))
    assert_verify_finds(segment, store, MANIFEST_KEY)
    if segment.encrypted:
        assert isinstance(log_or_error(segment, store), CorruptData)

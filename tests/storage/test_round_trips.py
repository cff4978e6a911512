"""A written log is read back: any bytes, any chunk size, any form, however the log arrives in pieces."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

import google_crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tierstate.state.segment import Compression
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.encryption import SegmentCipher
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import Encryption, IndexKind, SegmentManifest
from tierstate.storage.segment.reader import SegmentReader
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

from .conftest import BASE_KEY

KEYS = KeyRing.load(Path(__file__).parent.parent / "data" / "aiven-kafka" / "keyring.toml")
LOGS = st.one_of(
    st.binary(min_size=1, max_size=2000),
    st.builds(lambda word, times: word * times, st.binary(min_size=1, max_size=9), st.integers(1, 200)),
)
INDEXES = st.tuples(*[st.binary(max_size=60)] * 4, st.none() | st.binary(max_size=60))
CUTS = st.lists(st.integers(0, 2000), max_size=6)
RANGES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000)), max_size=4)


def in_pieces(log: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the log, with empty pieces wherever two cuts meet."""
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    return [log[start:stop] for start, stop in itertools.pairwise(edges)]


@settings(max_examples=200)
@given(
    log=LOGS,
    indexes=INDEXES,
    chunk_bytes=st.integers(1, 2500),
    compression=st.sampled_from(Compression),
    encrypted=st.booleans(),
    cuts=CUTS,
    ranges=RANGES,
)
@example(b"x", (b"", b"", b"", b"", None), 1, Compression.ZSTD, True, [], [(0, 1)])
@example(bytes(300), (b"o", b"t", b"p", b"e", b"a"), 1, Compression.NONE, True, [7, 7], [(299, 300)])
def test_a_written_segment_reads_back(
    log: bytes,
    indexes: tuple[bytes, bytes, bytes, bytes, bytes | None],
    chunk_bytes: int,
    compression: Compression,
    encrypted: bool,
    cuts: list[int],
    ranges: list[tuple[int, int]],
) -> None:
    cipher: SegmentCipher | None = None
    encryption: Encryption | None = None
    if encrypted:
        cipher, encryption = SegmentCipher.new(KEYS, os.urandom)
    store, source = MemoryStore(), SegmentSource(in_pieces(log, cuts), len(log), *indexes)
    written = put_log(
        store,
        BASE_KEY,
        source,
        compression,
        cipher=cipher,
        chunk_bytes=chunk_bytes,
    )
    others = put_indexes(store, BASE_KEY, source, cipher=cipher)
    put_manifest(
        store,
        BASE_KEY,
        SegmentManifest(written.chunks, others.spans, compression is Compression.ZSTD, encryption),
    )

    reader = SegmentReader.open(store, BASE_KEY, keys=KEYS)
    assert b"".join(reader.read_log()) == log
    for start, stop in ranges:
        if start < len(log):
            assert b"".join(reader.plain_range(start, stop)) == log[start:stop]
    assert tuple(reader.indexes(kind) for kind in IndexKind) == indexes
    assert reader.verify() == len(log) + sum(len(index or b"") for index in indexes)
    assert (written.sha256, written.crc32c) == (hashlib.sha256(log).digest(), google_crc32c.value(log))
    assert others.sha256 == hashlib.sha256(b"".join(index or b"" for index in indexes)).digest()

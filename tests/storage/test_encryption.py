"""Encrypting a segment: byte for byte as Aiven's classes do, with a new key each time, and no change goes unnoticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.object_keys import ObjectKind
from tierstate.storage.segment.encryption import IV_BYTES, OVERHEAD_BYTES, SegmentCipher
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import Encryption, IndexKind

from .conftest import DATA, Golden
from .key_rings import load_ring

RING = KeyRing.load(DATA / "aiven-kafka" / "keyring.toml")
WRITING, ENCRYPTION = SegmentCipher.new(RING, os.urandom)
READING = SegmentCipher.open(ENCRYPTION, RING, source="m")


def test_with_the_same_key_and_ivs_every_stored_byte_is_aivens(golden: Golden, data_folder: Path) -> None:
    segment = golden("aiven/zstd-aes")
    manifest = segment.reader().manifest
    assert manifest.encryption is not None
    log, indexes = segment.object(ObjectKind.LOG), segment.object(ObjectKind.INDEXES)
    stored = [log[chunk.stored_start : chunk.stored_stop] for chunk in manifest.chunks]
    stored += [
        indexes[span.position : span.position + span.size] for kind in IndexKind if (span := manifest.indexes[kind])
    ]
    cipher = SegmentCipher.open(manifest.encryption, segment.keyring, source="m")
    plain = [cipher.decrypt(each, source="o", position=0) for each in stored]

    data_key = (data_folder / "aiven" / "zstd-aes" / "dek.bin").read_bytes()
    drawn = iter([data_key, manifest.encryption.aad, *(each[:IV_BYTES] for each in stored)])
    ours, encryption = SegmentCipher.new(segment.keyring, lambda count: next(drawn))

    assert [ours.encrypt(text) for text in plain] == stored
    assert b"".join(stored[: manifest.chunks.count]) == log
    assert b"".join(stored[manifest.chunks.count :]) == indexes
    assert (encryption.key_id, encryption.aad) == (manifest.encryption.key_id, manifest.encryption.aad)
    assert segment.keyring.unwrap(encryption.key_id, encryption.wrapped_key) == data_key


@given(plain=st.binary(min_size=1, max_size=5000))
def test_any_bytes_come_back(plain: bytes) -> None:
    stored = WRITING.encrypt(memoryview(bytearray(plain)))
    assert len(stored) == len(plain) + OVERHEAD_BYTES
    assert READING.decrypt(stored, source="o", position=0) == plain


@given(plain=st.binary(min_size=1, max_size=200), bit=st.integers(min_value=0), cut=st.integers(1, 300))
def test_a_changed_or_shortened_chunk_is_corrupt_and_named(plain: bytes, bit: int, cut: int) -> None:
    stored = bytearray(WRITING.encrypt(plain))
    shorter = bytes(stored[:-cut])
    stored[bit // 8 % len(stored)] ^= 1 << bit % 8
    for damaged in (bytes(stored), shorter):
        with pytest.raises(CorruptData, match="file=some/key position=7 "):
            READING.decrypt(damaged, source="some/key", position=7)


def test_a_chunk_of_another_segment_is_corrupt() -> None:
    other, _ = SegmentCipher.new(RING, os.urandom)
    with pytest.raises(CorruptData, match="decryption fails"):
        READING.decrypt(other.encrypt(b"plain"), source="o", position=0)


def test_the_aad_is_bound_to_every_chunk() -> None:
    other = SegmentCipher.open(Encryption(ENCRYPTION.key_id, ENCRYPTION.wrapped_key, bytes(32)), RING, source="m")
    with pytest.raises(CorruptData, match="decryption fails"):
        other.decrypt(WRITING.encrypt(b"plain"), source="o", position=0)


def test_every_attempt_has_a_data_key_and_an_aad_of_its_own() -> None:
    attempts = [SegmentCipher.new(RING, os.urandom)[1] for _ in range(5)]
    keys = [RING.unwrap(each.key_id, each.wrapped_key) for each in attempts]
    assert {len(each) for each in (*keys, *(attempt.aad for attempt in attempts))} == {32}
    assert len({*keys, *(each.aad for each in attempts)}) == 10


def test_public_keys_are_enough_to_encrypt(tmp_path: Path) -> None:
    agent = load_ring(tmp_path, "k2", "k1", "k2", public_only=("k1", "k2"))
    writing, encryption = SegmentCipher.new(agent, os.urandom)
    assert encryption.key_id == "k2"
    with pytest.raises(InvalidRequest, match="no private key"):
        SegmentCipher.open(encryption, agent, source="m")
    reading = SegmentCipher.open(encryption, load_ring(tmp_path, "k1", "k1", "k2"), source="m")
    assert reading.decrypt(writing.encrypt(b"plain"), source="o", position=0) == b"plain"


def test_an_empty_index_is_stored_in_no_bytes() -> None:
    assert WRITING.encrypt(b"") == b""


def test_a_data_key_of_another_length_is_corrupt() -> None:
    _, wrapped, _ = RING.wrap(bytes(16))
    with pytest.raises(CorruptData, match="32 bytes"):
        SegmentCipher.open(Encryption("key1", wrapped, bytes(32)), RING, source="m")

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
READING = SegmentCipher(ENCRYPTION, RING, source="m")
IV = bytes(range(12))


def test_with_the_same_key_and_ivs_every_stored_byte_is_aivens(golden: Golden, data_folder: Path) -> None:
    segment = golden("aiven/zstd-aes")
    manifest = segment.reader().manifest
    assert manifest.encryption is not None
    log, indexes = segment.object(ObjectKind.LOG), segment.object(ObjectKind.INDEXES)
    stored = [log[chunk.stored_start : chunk.stored_stop] for chunk in manifest.chunks]
    stored += [
        indexes[span.position : span.position + span.size] for kind in IndexKind if (span := manifest.indexes[kind])
    ]
    cipher = SegmentCipher(manifest.encryption, segment.keyring, source="m")
    plain = [cipher.decrypt(each, source="o", position=0) for each in stored]

    data_key = (data_folder / "aiven" / "zstd-aes" / "dek.bin").read_bytes()
    drawn = iter([data_key, manifest.encryption.aad])
    ours, encryption = SegmentCipher.new(segment.keyring, lambda count: next(drawn))

    assert [ours.encrypt(text, each[:IV_BYTES]) for text, each in zip(plain, stored, strict=True)] == stored
    assert b"".join(stored[: manifest.chunks.count]) == log
    assert b"".join(stored[manifest.chunks.count :]) == indexes
    assert (encryption.key_id, encryption.aad) == (manifest.encryption.key_id, manifest.encryption.aad)
    assert segment.keyring.unwrap(encryption.key_id, encryption.wrapped_key) == data_key


@given(plain=st.binary(min_size=1, max_size=5000), iv=st.binary(min_size=12, max_size=12))
def test_any_bytes_come_back(plain: bytes, iv: bytes) -> None:
    stored = WRITING.encrypt(memoryview(bytearray(plain)), iv)
    assert stored[:IV_BYTES] == iv
    assert len(stored) == len(plain) + OVERHEAD_BYTES
    assert READING.decrypt(stored, source="o", position=0) == plain


@given(plain=st.binary(min_size=1, max_size=200), bit=st.integers(min_value=0), cut=st.integers(1, 300))
def test_a_changed_or_shortened_chunk_is_corrupt_and_named(plain: bytes, bit: int, cut: int) -> None:
    stored = bytearray(WRITING.encrypt(plain, IV))
    shorter = bytes(stored[:-cut])
    stored[bit // 8 % len(stored)] ^= 1 << bit % 8
    for damaged in (bytes(stored), shorter):
        with pytest.raises(CorruptData, match="file=some/key position=7 "):
            READING.decrypt(damaged, source="some/key", position=7)


def test_a_chunk_of_another_segment_is_corrupt() -> None:
    other, _ = SegmentCipher.new(RING, os.urandom)
    with pytest.raises(CorruptData, match="decryption fails"):
        READING.decrypt(other.encrypt(b"plain", IV), source="o", position=0)


def test_the_aad_is_bound_to_every_chunk() -> None:
    other = SegmentCipher(Encryption(ENCRYPTION.key_id, ENCRYPTION.wrapped_key, bytes(32)), RING, source="m")
    with pytest.raises(CorruptData, match="decryption fails"):
        other.decrypt(WRITING.encrypt(b"plain", IV), source="o", position=0)


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
        SegmentCipher(encryption, agent, source="m")
    reading = SegmentCipher(encryption, load_ring(tmp_path, "k1", "k1", "k2"), source="m")
    assert reading.decrypt(writing.encrypt(b"plain", IV), source="o", position=0) == b"plain"


@pytest.mark.parametrize(("plain", "iv"), [(b"", IV), (b"plain", IV[1:]), (b"plain", bytes(16))])
def test_nothing_at_all_and_an_iv_of_another_length_are_refused(plain: bytes, iv: bytes) -> None:
    with pytest.raises(InvalidRequest, match="nothing to encrypt, or an IV of another length"):
        WRITING.encrypt(plain, iv)


def test_a_data_key_of_another_length_is_corrupt() -> None:
    _, wrapped, _ = RING.wrap(bytes(16))
    with pytest.raises(CorruptData, match="32 bytes"):
        SegmentCipher(Encryption("key1", wrapped, bytes(32)), RING, source="m")

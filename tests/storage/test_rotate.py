"""A manifest's data key is wrapped again: the chunks stay readable, and no other byte changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.objects import ObjectInfo
from tierstate.state.segment import RemoteSegment
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import Data, ObjectStore
from tierstate.storage.segment.encryption import SegmentCipher, open_data_key
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest_json import DATA_KEY_ROOM, format_manifest, parse_manifest, with_own_size
from tierstate.storage.segment.reader import SegmentReader
from tierstate.storage.segment.rotate import Outcome, Rotation, count_by_key, rewrapped, rotate_all

from .conftest import BASE_KEY, DATA, Golden, WriteSegment
from .key_rings import load_ring, write_ring


@pytest.fixture
def both(tmp_path: Path) -> KeyRing:
    """Return a ring of Aiven's golden ``key1`` and a fresh, active ``second``."""
    old = KeyRing.load(DATA / "aiven-kafka" / "keyring.toml")
    new = load_ring(tmp_path, "second", "second")
    return KeyRing("second", {**old.keys, **new.keys})


def test_a_rewrapped_segment_reads_with_the_new_key_alone(golden: Golden, both: KeyRing, data_folder: Path) -> None:
    segment = golden("aiven/zstd-aes")
    key = object_key(segment.base_key, ObjectKind.MANIFEST)
    changed = rewrapped(segment.store.get(key), both, source=key)
    assert changed is not None
    segment.store.delete(key)
    segment.store.put_if_absent(key, changed)
    alone = KeyRing("second", {"second": both.keys["second"]})
    reader = SegmentReader.open(segment.store, segment.base_key, keys=alone)
    assert b"".join(reader.read_log()) == (data_folder / "aiven" / "source.log").read_bytes()


def test_nothing_but_the_data_key_changes(golden: Golden, both: KeyRing) -> None:
    """Fields that our readers do not understand stay too, with their order, numbers and blanks."""
    plain = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST).decode()
    record = json.loads(plain)
    strange = '{"x": 1e40, "n": 12345678901234567890, "f": 1.10,"dataKey" : "k:AA==", "t":"\\u00e4\\/"}'
    foreign = plain[: plain.index('"remoteLogSegmentMetadata"')] + f'"remoteLogSegmentMetadata" : {strange} }} \n'
    spaced = plain.replace('"dataKey":', '"dataKey" :\n ').replace("/", "\\/")
    for text in (plain, foreign, spaced):
        changed = rewrapped(text.encode(), both, source="m")
        assert changed is not None
        was, now = json.loads(text)["encryption"]["dataKey"], json.loads(changed)["encryption"]["dataKey"]
        assert was == record["encryption"]["dataKey"]
        assert now.startswith("second:")
        assert changed.decode() == text.replace(json.dumps(was), json.dumps(now)).replace(
            json.dumps(was).replace("/", "\\/"), json.dumps(now)
        )


def test_segments_under_the_active_key_and_plain_ones_are_left_alone(golden: Golden, both: KeyRing) -> None:
    encrypted = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST)
    assert rewrapped(golden("aiven/zstd").object(ObjectKind.MANIFEST), both, source="m") is None
    changed = rewrapped(encrypted, both, source="m")
    assert changed is not None
    assert rewrapped(changed, both, source="m") is None


def test_nothing_is_wrapped_that_cannot_be_opened_again(golden: Golden, both: KeyRing, tmp_path: Path) -> None:
    manifest = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST)
    public = load_ring(tmp_path, "second", "second", public_only=("second",))
    with pytest.raises(InvalidRequest, match=r"no private key under this id\. file=m key_id=second"):
        rewrapped(manifest, KeyRing("second", {**both.keys, **public.keys}), source="m")
    with pytest.raises(InvalidRequest, match="lacks the segment's key"):
        rewrapped(manifest, KeyRing("second", {"second": both.keys["second"]}), source="m")


def test_without_the_private_key_of_the_active_key_nothing_is_begun(
    golden: Golden, both: KeyRing, tmp_path: Path
) -> None:
    public = load_ring(tmp_path, "second", "second", public_only=("second",))
    store = bucket(golden)
    with pytest.raises(InvalidRequest, match=r"private key of the active key too.*key_id=second"):
        outcomes(store, KeyRing("second", {**both.keys, **public.keys}), execute=True)


def test_a_ring_that_opens_another_key_than_it_wrapped_is_refused(
    golden: Golden, both: KeyRing, tmp_path: Path
) -> None:
    class Forgetful(KeyRing):
        def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
            return both.wrap(bytes(32))

    with pytest.raises(CorruptData, match="does not come back"):
        rewrapped(golden("aiven/zstd-aes").object(ObjectKind.MANIFEST), Forgetful("second", both.keys), source="m")


def test_a_manifest_that_names_its_data_key_twice_is_refused(golden: Golden, both: KeyRing) -> None:
    text = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST).decode()
    data_key = json.dumps(json.loads(text)["encryption"]["dataKey"])
    twice = text.replace('"remoteLogSegmentMetadata":{', f'"remoteLogSegmentMetadata":{{"dataKey":{data_key},', 1)
    with pytest.raises(CorruptData, match="does not name its key once"):
        rewrapped(twice.encode(), both, source="m")


def test_a_manifest_that_hides_its_data_key_behind_another_is_refused(golden: Golden, both: KeyRing) -> None:
    """Only the other key would be replaced: the change is read again before it counts."""
    text = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST).decode()
    data_key = json.dumps(json.loads(text)["encryption"]["dataKey"])
    hidden = text.replace('"dataKey"', '"data\\u004bey"', 1)
    hidden = hidden.replace('"remoteLogSegmentMetadata":{', f'"remoteLogSegmentMetadata":{{"dataKey":{data_key},', 1)
    with pytest.raises(InvalidRequest, match="cannot be changed without changing more"):
        rewrapped(hidden.encode(), both, source="m")


def test_nothing_goes_back_to_an_older_key_without_a_flag(golden: Golden, both: KeyRing) -> None:
    """A ring that still names the old key as active was probably not updated."""
    segment = golden("aiven/zstd-aes")
    assert [each.outcome for each in rotate_all(segment.store, both, Rotation(execute=True))] == [Outcome.ROTATED]
    forgotten = KeyRing("key1", both.keys)
    for execute in (False, True):
        (stays,) = rotate_all(segment.store, forgotten, Rotation(execute=execute))
        assert (stays.outcome, stays.key_id) == (Outcome.NEWER, "second")
    (back,) = rotate_all(segment.store, forgotten, Rotation(from_id="second", execute=True))
    assert back.outcome is Outcome.ROTATED


def test_the_data_key_itself_stays(golden: Golden, both: KeyRing) -> None:
    manifest = golden("aiven/zstd-aes").object(ObjectKind.MANIFEST)
    changed = rewrapped(manifest, both, source="m")
    assert changed is not None
    before, after = (parse_manifest(each, source="m").encryption for each in (manifest, changed))
    assert before is not None
    assert after is not None
    assert open_data_key(before, both, source="m") == open_data_key(after, both, source="m")
    assert (before.key_id, after.key_id) == ("key1", "second")


def test_a_ring_file_of_two_keys_rotates_too(golden: Golden, tmp_path: Path) -> None:
    for name in ("test-only-kek-public.pem", "test-only-kek-private.pem"):
        kind = "public" if "public" in name else "private"
        (tmp_path / f"key1.{kind}.pem").write_bytes((DATA / "aiven-kafka" / name).read_bytes())
    ring = KeyRing.load(write_ring(tmp_path, "second", "key1", "second"))
    assert rewrapped(golden("aiven/zstd-aes").object(ObjectKind.MANIFEST), ring, source="m") is not None


def encrypted(store: ObjectStore, write_segment: WriteSegment, ring: KeyRing, log: bytes) -> RemoteSegment:
    """Write a segment as an agent with this ring does; return its descriptor."""
    plain = MemoryStore()
    write_segment(plain, log)
    manifest = parse_manifest(plain.get(object_key(BASE_KEY, ObjectKind.MANIFEST)), source="m")
    assert manifest.tierstate is not None
    cipher, encryption = SegmentCipher.new(ring, os.urandom)
    chunks = [cipher.encrypt(log[at : at + 1000]) for at in range(0, len(log), 1000)]
    store.put_if_absent(object_key(BASE_KEY, ObjectKind.LOG), b"".join(chunks))
    spans, indexes = {}, b""
    for kind, span in manifest.indexes.items():
        part = (
            plain.get(object_key(BASE_KEY, ObjectKind.INDEXES))[span.position : span.position + span.size]
            if span
            else b""
        )
        stored = cipher.encrypt(part)
        spans[kind] = replace(span, position=len(indexes), size=len(stored)) if span else None
        indexes += stored
    store.put_if_absent(object_key(BASE_KEY, ObjectKind.INDEXES), indexes)
    segment = replace(
        manifest.tierstate.segment,
        encryption_key_id=encryption.key_id,
        log_object_bytes=sum(map(len, chunks)),
        indexes_object_bytes=len(indexes),
    )
    index = replace(manifest.chunks, stored_sizes=(1028, len(chunks[-1])))
    assert manifest.tierstate.sent is not None
    sent = replace(manifest.tierstate.sent, chunks=tuple(map(google_crc32c.value, chunks)))
    block = replace(manifest.tierstate, segment=segment, sent=sent)
    whole = with_own_size(replace(manifest, chunks=index, indexes=spans, encryption=encryption, tierstate=block))
    store.put_if_absent(object_key(BASE_KEY, ObjectKind.MANIFEST), format_manifest(whole))
    assert whole.tierstate is not None
    return whole.tierstate.segment


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyRing]:
    """Return rings of one key each, by id: ids and RSA keys of several lengths."""
    folder = tmp_path_factory.mktemp("rings")
    bits = {"old": 3072, "2": 2048, "a-much-longer-id-than-before": 4096}
    return {key_id: KeyRing.load(write_ring(folder, key_id, key_id, bits=size)) for key_id, size in bits.items()}


@pytest.mark.parametrize("new_id", ["2", "a-much-longer-id-than-before"])
def test_a_rotated_segment_of_ours_is_what_its_fact_says_to_the_byte(
    store: ObjectStore, write_segment: WriteSegment, rings: dict[str, KeyRing], new_id: str
) -> None:
    """Sizes stay too, whatever the new key: comparing a manifest with its fact needs no knowledge of rotations."""
    old, new = rings["old"], rings[new_id]
    log = bytes(range(256)) * 17
    fact = encrypted(store, write_segment, old, log)
    both = KeyRing(new_id, {**old.keys, **new.keys})
    assert [each.outcome for each in rotate_all(store, both, Rotation(execute=True))] == [Outcome.ROTATED]
    reader = SegmentReader.open(store, BASE_KEY, keys=new)
    assert b"".join(reader.read_log()) == log
    assert reader.verify(fact)
    assert store.head(object_key(BASE_KEY, ObjectKind.MANIFEST)).size == fact.manifest_bytes
    data = store.get(object_key(BASE_KEY, ObjectKind.MANIFEST))
    assert format_manifest(parse_manifest(data, source="m")) == data
    assert reader.manifest.encryption is not None
    assert reader.manifest.encryption.key_fingerprint == new.keys[new_id].fingerprint
    assert reader.manifest.encryption.key_id == new_id


def test_a_reader_with_the_manifest_of_before_goes_on(write_segment: WriteSegment, both: KeyRing) -> None:
    store = MemoryStore()
    log = bytes(4321)
    encrypted(store, write_segment, KeyRing("key1", both.keys), log)
    before = SegmentReader.open(store, BASE_KEY, keys=both)
    list(rotate_all(store, both, Rotation(execute=True)))
    assert b"".join(before.read_log()) == log


def bucket(golden: Golden) -> MemoryStore:
    """Return a store with one encrypted segment of Aiven's, and one that is not."""
    store = golden("aiven/zstd-aes").store
    assert isinstance(store, MemoryStore)
    other = golden("aiven/plain").store
    for info in other.list("pfx/"):
        store.put_if_absent(info.key, other.get(info.key))
    return store


def outcomes(
    store: ObjectStore,
    keys: KeyRing,
    topic: str | None = None,
    partition: int | None = None,
    from_id: str | None = None,
    execute: bool = False,
) -> list[tuple[Outcome, str | None]]:
    done = rotate_all(store, keys, Rotation(topic, partition, from_id, execute))
    return sorted(((each.outcome, each.key_id) for each in done), key=lambda each: each[0].name)


def test_a_dry_run_says_what_a_run_does_and_writes_nothing(golden: Golden, both: KeyRing) -> None:
    store = bucket(golden)
    writes, expected = store.writes, [(Outcome.PLAIN, None), (Outcome.ROTATED, "key1")]
    assert outcomes(store, both) == expected
    assert store.writes == writes
    assert outcomes(store, both, execute=True) == expected
    assert store.writes == writes + 1


def test_a_rotation_begun_again_passes_by_what_is_done(golden: Golden, both: KeyRing) -> None:
    store = bucket(golden)
    outcomes(store, both, execute=True)
    writes = store.writes
    assert outcomes(store, both, execute=True) == [(Outcome.ACTIVE, "second"), (Outcome.PLAIN, None)]
    assert store.writes == writes
    assert sorted(key_id or "" for _, key_id in count_by_key(store)) == ["", "second"]


def test_a_rotation_covers_what_it_is_asked_for_only(golden: Golden, both: KeyRing) -> None:
    store = bucket(golden)
    every = [(Outcome.PLAIN, None), (Outcome.ROTATED, "key1")]
    assert outcomes(store, both, topic="topic") == every
    assert outcomes(store, both, topic="topic", partition=7) == every
    assert outcomes(store, both, topic="topic", partition=8) == []
    assert outcomes(store, both, topic="pic") == []
    assert outcomes(store, both, from_id="key0") == [(Outcome.OTHER, "key1"), (Outcome.PLAIN, None)]


def test_a_missing_private_key_is_named_and_the_others_go_on(
    golden: Golden, both: KeyRing, write_segment: WriteSegment, tmp_path: Path
) -> None:
    store = bucket(golden)
    lost = load_ring(tmp_path, "lost", "lost")
    store.delete_many([results.key for results in store.list() if results.key.startswith(BASE_KEY)])
    encrypted(store, write_segment, lost, bytes(1000))
    other = golden("aiven/zstd-aes")
    for kind in ObjectKind:
        store.put_if_absent(object_key(f"moved/{other.base_key}", kind), other.object(kind))
    results = outcomes(store, both, execute=True)
    assert results == [(Outcome.LOCKED, "lost"), (Outcome.PLAIN, None), (Outcome.ROTATED, "key1")]


def test_damaged_and_deleted_manifests_do_not_stop_a_rotation(golden: Golden, both: KeyRing) -> None:
    store = bucket(golden)
    key = object_key(golden("aiven/zstd-aes").base_key, ObjectKind.MANIFEST)
    text = store.get(key)
    store.delete(key)
    store.put_if_absent("a/" + key, text[:-1])
    store.put_if_absent("b/" + key, text)

    class Deleting(MemoryStore):
        def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
            return store.list(prefix, start_after)

        def get(self, key: str, limit: int | None = None) -> bytes:
            return store.get(key, limit)

        def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
            store.delete(key)
            return store.replace_if_same(key, data, previous)

    results = outcomes(Deleting(), both, execute=True)
    assert results == [(Outcome.CORRUPT, None), (Outcome.GONE, "key1"), (Outcome.PLAIN, None)]


def test_a_manifest_that_another_run_rotates_is_looked_at_again(golden: Golden, both: KeyRing) -> None:
    store = bucket(golden)

    class Racing(MemoryStore):
        def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
            return store.list(prefix, start_after)

        def get(self, key: str, limit: int | None = None) -> bytes:
            return store.get(key, limit)

        def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
            changed = rewrapped(previous, both, source=key)
            assert changed is not None
            assert store.replace_if_same(key, changed, previous)
            return store.replace_if_same(key, data, previous)

    assert outcomes(Racing(), both, execute=True) == [(Outcome.ACTIVE, "second"), (Outcome.PLAIN, None)]


def test_a_manifest_of_ours_has_room_for_any_key_and_no_more(both: KeyRing, write_segment: WriteSegment) -> None:
    store = MemoryStore()
    encrypted(store, write_segment, KeyRing("key1", both.keys), bytes(1000))
    manifest = parse_manifest(store.get(object_key(BASE_KEY, ObjectKind.MANIFEST)), source="m")
    assert manifest.encryption is not None
    longest = replace(manifest.encryption, key_id="k" * 64, wrapped_key=bytes(8192 // 8))
    assert len(format_manifest(replace(manifest, encryption=longest))) == len(format_manifest(manifest))
    too_long = replace(manifest.encryption, wrapped_key=bytes(DATA_KEY_ROOM))
    with pytest.raises(InvalidRequest, match="does not fit"):
        format_manifest(replace(manifest, encryption=too_long))

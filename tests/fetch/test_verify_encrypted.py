"""Verify over encrypted segments, and over segments below prefixes that are no longer set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.leader.recovery import overwrite
from tests.leader.world import Process, World
from tierstate.fetch.verify import Finding
from tierstate.fetch.verify_objects import Verifier
from tierstate.leader.recover_scan import scan_bucket
from tierstate.leader.term import TermSession
from tierstate.rules.recovery import FoundSegment
from tierstate.state.errors import InvalidRequest
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.storage.segment.encryption import KeyUnwrapper
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest_json import format_manifest
from tierstate.storage.segment.reader import SegmentReader, read_manifest
from tierstate.storage.segment.writer import delete_segment

RING = KeyRing.load(Path(__file__).parents[1] / "data" / "aiven-kafka" / "keyring.toml")
SALTED = ObjectKeys.minting("{salt}/", "memory", 6)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    new_world = World(tmp_path, "none")
    yield new_world
    new_world.close()


def verify(world: World, keys: KeyUnwrapper | None = None, names: ObjectKeys | None = None) -> list[Finding]:
    verifier = Verifier(world.store, 3, lambda partition: world.view(), keys, names or ObjectKeys())
    return list(verifier.objects(world.view()))


def encrypting(world: World) -> Process:
    process = world.process()
    process.tools = replace(process.tools, format=replace(process.tools.format, keys=RING))
    return process


def test_level_3_reads_every_byte_with_the_key_ring(world: World) -> None:
    encrypting(world).copy_all()
    assert verify(world, RING) == []


def test_level_3_without_the_key_ring_names_the_key_it_lacks(world: World) -> None:
    encrypting(world).copy_all()
    with pytest.raises(InvalidRequest, match="key_id=key1"):
        verify(world)


def test_level_3_finds_a_flipped_bit_of_an_encrypted_log(world: World) -> None:
    segment = encrypting(world).copy_all().view().readable[0]
    key = object_key(segment.object_key, ObjectKind.LOG)
    data = bytearray(world.store.get(key))
    data[len(data) // 2] ^= 1
    world.store.delete(key)
    world.store.put_if_absent(key, data)
    findings = verify(world, RING)
    assert [(finding.level, finding.object) for finding in findings] == [(3, key)]


def test_a_manifest_that_became_plain_is_found(world: World) -> None:
    segment = encrypting(world).copy_all().view().readable[0]
    key = object_key(segment.object_key, ObjectKind.MANIFEST)
    manifest = replace(read_manifest(world.store, key), encryption=None)
    overwrite(world, key, format_manifest(manifest).ljust(segment.manifest_bytes))  # as long as its fact says
    findings = verify(world, RING)
    assert [(finding.object, finding.what) for finding in findings] == [
        (key, "the manifest is not encrypted, its fact says otherwise")
    ]


def copied_under_three_prefixes(world: World) -> TermSession:
    process = world.process()
    session = process.begin()
    for names in (ObjectKeys(), ObjectKeys("then/"), SALTED):
        process.tools = replace(process.tools, keys=names)
        process.copy_next(session)
    return session


def test_a_change_of_prefix_breaks_no_read_no_verify_and_no_recover(world: World) -> None:
    session = copied_under_three_prefixes(world)
    segments = session.view().readable
    begins = {segment.object_key.split("/")[0] for segment in segments}
    assert len(begins) == 3
    for segment in segments:
        assert SegmentReader.open(world.store, segment.object_key).verify(segment)
    assert verify(world, names=SALTED) == []
    copies = [entry.segment for entry in scan_bucket(world.store) if isinstance(entry, FoundSegment)]
    assert sorted(copy.object_key for copy in copies) == sorted(copy.object_key for copy in segments)


def test_a_stray_next_to_old_keys_is_found_under_any_current_prefix(world: World) -> None:
    segments = copied_under_three_prefixes(world).view().readable
    strays = [f"{segment.object_key[:-22]}{'A' * 22}.log" for segment in segments]
    for key in strays:
        world.store.put_if_absent(key, b"stray")
    assert sorted(str(finding.object) for finding in verify(world, names=ObjectKeys("now/"))) == sorted(strays)


def test_a_delete_takes_the_key_from_the_fact(world: World) -> None:
    for segment in copied_under_three_prefixes(world).view().readable:
        delete_segment(world.store, segment)
    assert world.objects() == set()

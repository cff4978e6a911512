"""Levels 1 to 3 of verify: one fault injected into a store of real segments is one finding, named by its object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.leader.expiry import say
from tests.leader.forger import events_segment, forged, put_events, stolen
from tests.leader.recovery import Target, overwrite, plan, rewrite
from tests.leader.world import World, object_keys
from tierstate.fetch.verify import Finding, Severity, check_view
from tierstate.fetch.verify_objects import Verifier
from tierstate.state.errors import StorageUnavailable
from tierstate.state.facts import DeleteReason, SegmentDeleteFinished, SegmentDeleteStarted
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.chunks import ChunkIndex
from tierstate.storage.segment.manifest import SegmentManifest
from tierstate.storage.segment.reader import read_manifest
from tierstate.storage.segment.writer import delete_segment

TEN_YEARS_S = 10 * 365 * 86_400.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    new_world = World(tmp_path, "none", {"local.retention.bytes": "0"})
    new_world.clock.advance(TEN_YEARS_S)  # so that no record is from the future
    yield new_world
    new_world.close()


def verify(
    world: World,
    level: int = 2,
    view: PartitionView | None = None,
    look: Callable[[], PartitionView] | None = None,
) -> list[Finding]:
    """Verify the view, by default as it stands before and afterwards."""
    view = view or world.view()
    again = look or world.view
    verifier = Verifier(world.store, level, lambda partition: again())
    return list(verifier.objects(view))


def only(found: list[Finding], level: int, severity: Severity, key: str, what: str) -> None:
    assert [(finding.level, finding.severity, finding.object) for finding in found] == [(level, severity, key)], found
    assert what in found[0].what


@pytest.fixture
def segment(world: World) -> RemoteSegment:
    """Return the second of five segments, all of which are copied and trimmed."""
    world.process().work()
    return world.view().readable[1]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_clean_world_gives_no_finding(level: int, world: World, segment: RemoteSegment) -> None:
    bounds = world.broker.bounds(world.name, 0)
    assert not list(check_view(world.view(), bounds))
    assert not verify(world, level)


@pytest.mark.parametrize("key", [None, "no-name-at-all"])
def test_verify_does_not_list_the_folder_that_a_forged_fact_names(
    key: str | None, world: World, segment: RemoteSegment
) -> None:
    events = put_events(world.store)
    say(world, forged(stolen(events, world.partition, world.name, segment.term))["copy-started"])
    strange = replace(events_segment(number=78), object_key=key or events.object_key.replace("/0/", "/0/0"))
    say(world, forged(stolen(strange, world.partition, world.name, segment.term))["copy-started"])
    assert not verify(world, 1), "nothing of another partition is an orphan of this one"


def test_what_was_checked_is_counted(world: World, segment: RemoteSegment) -> None:
    done: list[int] = []
    view = world.view()
    verifier = Verifier(world.store, 3, lambda partition: view, advance=done.append)
    assert not list(verifier.objects(view))
    assert verifier.checked.segments == sum(done) == len(view.readable)
    assert verifier.checked.objects == 3 * len(view.readable)
    assert verifier.checked.object_bytes == view.remote_bytes
    indexes = sum(segment.indexes_object_bytes for segment in view.readable)
    assert verifier.checked.bytes_read == sum(segment.log_bytes for segment in view.readable) + indexes


@pytest.mark.parametrize("kind", list(ObjectKind))
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_missing_object_is_named(kind: ObjectKind, level: int, world: World, segment: RemoteSegment) -> None:
    key = object_key(segment.object_key, kind)
    world.store.delete(key)
    only(verify(world, level), 1, Severity.CORRUPT, key, "missing")


@pytest.mark.parametrize("kind", list(ObjectKind))
def test_a_truncated_object_is_named_from_level_2_on(kind: ObjectKind, world: World, segment: RemoteSegment) -> None:
    key = object_key(segment.object_key, kind)
    overwrite(world, key, world.store.get(key)[:-1])
    assert not verify(world, 1)
    only(verify(world, 2), 2, Severity.CORRUPT, key, "bytes, its fact says")


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.INDEXES])
def test_a_changed_byte_is_found_at_level_3(kind: ObjectKind, world: World, segment: RemoteSegment) -> None:
    key = object_key(segment.object_key, kind)
    data = bytearray(world.store.get(key))
    data[len(data) // 2] ^= 1
    overwrite(world, key, bytes(data))
    assert not verify(world, 2)
    only(verify(world, 3), 3, Severity.CORRUPT, key, "")


def test_a_manifest_that_cannot_be_read_is_named(world: World, segment: RemoteSegment) -> None:
    key = object_key(segment.object_key, ObjectKind.MANIFEST)
    overwrite(world, key, b" " * segment.manifest_bytes)
    only(verify(world), 2, Severity.CORRUPT, key, "not JSON")


def with_manifest(world: World, segment: RemoteSegment, change: Callable[[SegmentManifest], SegmentManifest]) -> str:
    """Change a manifest to another one of the length that its fact names. Return the findings."""
    key = object_key(segment.object_key, ObjectKind.MANIFEST)
    rewrite(world, segment, change)
    fact = replace(segment, manifest_bytes=len(world.store.get(key)))
    view = world.view()
    view = replace(view, readable=tuple(fact if old == segment else old for old in view.readable))
    findings = verify(world, view=view, look=lambda: view)
    assert {(finding.level, finding.severity, finding.object) for finding in findings} == {(2, "corrupt", key)}
    return "; ".join(finding.what for finding in findings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("record_count", 1), ("log_sha256", bytes(32)), ("log_crc32c", 1), ("topic", "x"), ("max_timestamp", 5)],
)
def test_every_field_in_which_manifest_and_fact_differ_is_named(
    name: str, value: Any, world: World, segment: RemoteSegment
) -> None:
    def change(manifest: SegmentManifest) -> SegmentManifest:
        assert manifest.tierstate is not None
        descriptor = replace(manifest.tierstate.segment, **{name: value})
        return replace(manifest, tierstate=replace(manifest.tierstate, segment=descriptor))

    assert f"the manifest says {name}" in with_manifest(world, segment, change)


def test_a_manifest_of_another_segment_differs_in_all_that_tells_them_apart(
    world: World, segment: RemoteSegment
) -> None:
    other = read_manifest(world.store, world.view().readable[2].object_key)
    text = with_manifest(world, segment, lambda manifest: other)
    for name in ("segment_id", "object_key", "offsets", "log_sha256"):
        assert f"the manifest says {name}" in text


def test_a_manifest_of_another_program_is_named(world: World, segment: RemoteSegment) -> None:
    assert with_manifest(world, segment, lambda old: replace(old, tierstate=None)) == (
        "the manifest is of another program"
    )


def test_a_manifest_that_contradicts_its_own_descriptor_is_named(world: World, segment: RemoteSegment) -> None:
    def another_broker(manifest: SegmentManifest) -> SegmentManifest:
        assert manifest.metadata is not None
        return replace(manifest, metadata=replace(manifest.metadata, broker_id=7))

    def another_chunk(manifest: SegmentManifest) -> SegmentManifest:
        chunks = manifest.chunks
        sizes = [chunks.chunk(number).stored_size for number in range(chunks.count)]
        sizes[-1] += 1
        return replace(manifest, chunks=ChunkIndex.of_variable(chunks.chunk_bytes, chunks.file_bytes, sizes))

    assert "contradicts its own descriptor" in with_manifest(world, segment, another_broker)
    assert "chunks have" in with_manifest(world, segment, another_chunk)


def test_objects_that_no_fact_names_are_orphans_and_counted(world: World, segment: RemoteSegment) -> None:
    base = segment.object_key.replace(segment.segment_id, "AAAAAAAAAAAAAAAAAAAAzA")
    world.store.put_if_absent(object_key(base, ObjectKind.LOG), b"12345")
    verifier = Verifier(world.store, 1, lambda partition: world.view())
    findings = list(verifier.objects(world.view()))
    only(findings, 1, Severity.FINDING, object_key(base, ObjectKind.LOG), "orphan")
    assert (verifier.checked.orphan_objects, verifier.checked.orphan_bytes) == (1, 5)


def test_objects_of_a_copy_that_began_during_the_check_are_no_orphans(world: World, segment: RemoteSegment) -> None:
    view = world.view()
    earlier = replace(view, segments={sid: one for sid, one in view.segments.items() if sid != segment.segment_id})
    earlier = replace(earlier, readable=tuple(one for one in view.readable if one != segment))
    assert not verify(world, view=earlier)
    assert len(verify(world, view=earlier, look=lambda: earlier)) == 3


def test_objects_deleted_during_the_check_are_not_missing(world: World, segment: RemoteSegment) -> None:
    before = world.view()
    session = world.process().begin()
    session.append(
        SegmentDeleteStarted(segment, session.term, session.counter(), DeleteReason.LOG_START, session.now())
    )
    delete_segment(world.store, segment)
    assert not verify(world, view=before)


def test_objects_of_a_finished_delete_are_reported(world: World, segment: RemoteSegment) -> None:
    session = world.process().begin()
    session.append(
        SegmentDeleteStarted(segment, session.term, session.counter(), DeleteReason.LOG_START, session.now())
    )
    assert not verify(world)
    session.append(SegmentDeleteFinished(segment, session.term, session.counter(), session.now()))
    findings = verify(world)
    assert {finding.object for finding in findings} == set(object_keys(segment))
    assert {(item.level, item.severity, item.segment_id) for item in findings} == {(1, "finding", segment.segment_id)}


def test_a_store_that_does_not_answer_is_no_finding(world: World, segment: RemoteSegment) -> None:
    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "head":
            raise StorageUnavailable("no answer", key=key)

    world.faults = fail
    with pytest.raises(StorageUnavailable):
        verify(world)


@pytest.mark.parametrize("level", [2, 3])
def test_recovered_segments_verify_although_their_terms_are_new(
    level: int, world: World, segment: RemoteSegment
) -> None:
    recovered = Target.fresh(world).recover([plan(world)])
    assert not verify(world, level, recovered, lambda: recovered)
    term = replace(segment.term, position=Position(999))
    view = world.view()
    view = replace(view, readable=tuple(replace(e, term=term) if e == segment else e for e in view.readable))
    assert not verify(world, level, view, lambda: view), "also in the same topic"


@pytest.mark.parametrize("level", [1, 2])
def test_logs_are_read_at_level_3_only(level: int, world: World, segment: RemoteSegment) -> None:
    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "get" and not key.endswith(ObjectKind.MANIFEST):
            raise StorageUnavailable("no answer", key=key)

    world.faults = fail
    assert not verify(world, level)
    with pytest.raises(StorageUnavailable):
        verify(world, 3)

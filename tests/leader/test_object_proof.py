"""Before the last copy on the broker is deleted, the objects are proven by their bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.leader.expiry import say_order
from tests.leader.test_encrypted_copies import PUBLIC, RING
from tests.leader.world import World, nobody_reads, object_keys
from tierstate.app.operating.rescue import LeadingSegment, prove
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.trimmer import PROVEN_FOR_S, trim_local
from tierstate.rules.reasons import Reason, why_failed
from tierstate.runtime.operation import run
from tierstate.state.errors import CorruptData, InvalidRequest, TimedOut, Undecodable
from tierstate.state.facts import OrderKind
from tierstate.state.objects import ObjectInfo
from tierstate.state.offsets import Offset
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.manifest_json import format_manifest, parse_manifest, with_own_size


def flip(store: Any, key: str, at: int) -> None:
    data = store.get(key)
    at %= len(data)
    store.delete(key)
    store.put_if_absent(key, data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])


class NoChecksums(MemoryStore):
    """A store that keeps no checksum of its objects."""

    def head(self, key: str) -> ObjectInfo:
        return replace(super().head(key), crc32c=None)


def without_checksums(world: World) -> ObjectProof:
    store = NoChecksums()
    for info in world.store.list():
        store.put_if_absent(info.key, world.store.get(info.key))
    return ObjectProof(store)


def reading_back(world: World) -> ObjectProof:
    return ObjectProof(world.store, read_back=True)


def by_checksum(world: World) -> ObjectProof:
    return ObjectProof(world.store)


PROOFS = [by_checksum, reading_back, without_checksums]


@pytest.mark.parametrize("proof_of", PROOFS)
@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("at", [0, 61, -1])
def test_an_object_with_one_flipped_bit_keeps_local_data(
    at: int, kind: int, proof_of: Callable[[World], ObjectProof], world: World
) -> None:
    process = world.process()
    session = process.copy_all()
    key = object_keys(world.view().readable[1])[kind]
    flip(world.store, key, at)
    proof = proof_of(world)
    run(trim_local(session, proof, Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.local_start() == world.bases[1], "the segment before it is trimmed"
    with pytest.raises(CorruptData, match=key):
        run(trim_local(session, proof, Offset(world.bases[2]), process.events.append, nobody_reads))
    assert world.local_start() == world.bases[1]


def older_release(store: Any, key: str) -> None:
    """Write the manifest as a release did that kept no checksums of the objects."""
    manifest = parse_manifest(store.get(key), source=key)
    assert manifest.tierstate is not None
    manifest = with_own_size(replace(manifest, tierstate=replace(manifest.tierstate, sent=None)))
    store.delete(key)
    store.put_if_absent(key, format_manifest(manifest))


def test_a_segment_of_an_older_release_is_read_and_compared_with_its_fact(world: World) -> None:
    process = world.process()
    process.copy_all()
    segment = world.view().readable[0]
    log, _, manifest_key = object_keys(segment)
    older_release(world.store, manifest_key)
    older = replace(segment, manifest_bytes=world.store.head(manifest_key).size)
    ObjectProof(world.store).require(older)
    flip(world.store, log, 61)
    with pytest.raises(CorruptData, match=log):
        ObjectProof(world.store).require(older)


def test_a_proof_that_is_old_at_the_request_does_not_count(world: World) -> None:
    process = world.process()
    session = process.copy_all()
    act = trim_local(session, by_checksum(world), Offset(world.bases[2]), process.events.append, nobody_reads)
    next(act)
    world.clock.advance(PROVEN_FOR_S + 1)
    with pytest.raises(TimedOut, match="proven"):
        run(act)
    assert world.local_start() == 0


def test_an_encrypted_segment_is_proven_without_the_private_key(world: World) -> None:
    process = world.process()
    process.tools = replace(process.tools, format=replace(process.tools.format, keys=PUBLIC))
    process.copy_all()
    segment = world.view().readable[0]
    proof = ObjectProof(world.store, read_back=True, keys=PUBLIC)
    proof.require(segment)
    flip(world.store, object_keys(segment)[0], 61)
    with pytest.raises(CorruptData, match="other bytes"):
        proof.require(segment)


def test_an_encrypted_segment_of_an_older_release_needs_the_private_key(world: World) -> None:
    process = world.process()
    process.tools = replace(process.tools, format=replace(process.tools.format, keys=PUBLIC))
    process.copy_all()
    segment = world.view().readable[0]
    manifest_key = object_keys(segment)[2]
    older_release(world.store, manifest_key)
    older = replace(segment, manifest_bytes=world.store.head(manifest_key).size)
    with pytest.raises(InvalidRequest, match="private key"):
        ObjectProof(world.store, keys=PUBLIC).require(older)
    ObjectProof(world.store, keys=RING).require(older)


def test_a_segment_that_readers_refuse_and_kafka_serves_is_copied_and_not_trimmed(world: World) -> None:
    batch = world.lift_record(world.bases[1])
    process = world.process()
    session = process.copy_all()
    first, second, *_ = world.view().readable
    assert (first.offsets.start, second.offsets.start) == (world.bases[0], world.bases[1])
    proof, before = ObjectProof(world.store), Offset(world.bases[-1])
    assert run(trim_local(session, proof, before, process.events.append, nobody_reads)) == world.bases[1], (
        "the one before"
    )
    appends_before = world.topic.appends
    with pytest.raises(Undecodable, match=f"--before {second.offsets.end + 1}.* batch={batch} ") as refused:
        run(trim_local(session, proof, before, process.events.append, nobody_reads))
    assert why_failed(refused.value).kind is Reason.UNDECODABLE
    local = LeadingSegment(world.file(world.bases[1]), Offset(world.bases[2]), second, 0)
    with pytest.raises(Undecodable):
        prove(local, world.store, None)
    prove(replace(local, path=world.file(world.bases[0]), copy=first), world.store, None)
    assert world.local_start() == world.bases[1]
    assert world.topic.appends == appends_before, "an intention that cannot be carried out is not said"


def test_a_worker_shows_why_such_a_segment_stays(world: World) -> None:
    batch = world.lift_record(world.bases[0])
    process = world.process()
    process.work()
    assert process.status().not_trimmed_reason is Reason.UNDECODABLE
    assert f"batch={batch} " in (process.status().not_trimmed or "")
    assert world.local_start() == 0
    assert len(world.view().readable) == len(world.rolled)
    say_order(world, OrderKind.DELETE_RECORDS, world.bases[1])
    worker = process.worker()
    for _ in range(9):  # the trim is tried in between
        process.work(worker)
        world.clock.advance(1)
    assert world.local_start() == world.bases[-1], "what the reason tells people to do lets the trims go on"


def test_a_manifest_of_an_older_release_names_no_batch_and_its_segment_is_trimmed(world: World) -> None:
    world.lift_record(world.bases[0])
    process = world.process()
    process.copy_all()
    segment = world.view().readable[0]
    manifest_key = object_keys(segment)[2]
    manifest = parse_manifest(world.store.get(manifest_key), source="m")
    assert manifest.tierstate is not None
    manifest = with_own_size(replace(manifest, tierstate=replace(manifest.tierstate, undecodable=None)))
    assert b"undecodable" not in format_manifest(manifest)
    world.store.delete(manifest_key)
    world.store.put_if_absent(manifest_key, format_manifest(manifest))
    ObjectProof(world.store).require(replace(segment, manifest_bytes=world.store.head(manifest_key).size))

"""An agent with a key ring encrypts everything it copies, with public keys alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.leader.world import World
from tierstate.leader.copier import copy_segment
from tierstate.runtime.operation import run
from tierstate.state.errors import InvalidRequest
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.storage.segment.keyring import KeyPair, KeyRing
from tierstate.storage.segment.reader import SegmentReader

RING = KeyRing.load(Path(__file__).parents[1] / "data" / "aiven-kafka" / "keyring.toml")
PUBLIC = KeyRing("key1", {"key1": KeyPair(RING.keys["key1"].public)})


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_copy_is_encrypted_whole_and_described_truly(world: World, compression: str) -> None:
    process = world.process()
    form = replace(process.tools.format, compression=compression, keys=PUBLIC)
    session = process.begin()
    segment = run(copy_segment(session, process.candidate(session), replace(process.tools, format=form)))
    assert segment.encryption_key_id == "key1"
    reader = SegmentReader.open(world.store, segment.object_key, keys=RING)
    assert reader.verify(segment)
    plain = b"".join(reader.read_log())
    stored = world.store.get(object_key(segment.object_key, ObjectKind.LOG))
    indexes = world.store.get(object_key(segment.object_key, ObjectKind.INDEXES))
    assert len(plain) == segment.log_bytes
    assert not any(plain[at : at + 32] in stored for at in range(0, len(plain) - 32, 1000))
    assert b"checkpoint" not in indexes
    epochs = reader.indexes(next(kind for kind in reader.manifest.indexes if kind == "leaderEpoch"))
    assert epochs
    assert epochs not in indexes
    with pytest.raises(InvalidRequest, match="key_id=key1"):
        SegmentReader.open(world.store, segment.object_key)


def test_a_ring_with_another_key_under_the_id_is_the_wrong_key_and_no_damage(world: World) -> None:
    process = world.process()
    process.tools = replace(process.tools, format=replace(process.tools.format, keys=PUBLIC))
    (segment, *_) = process.copy_all().view().readable
    pair = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = RSA.import_key(
        pair.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    other = KeyRing("key1", {"key1": KeyPair(private.public_key(), private)})
    with pytest.raises(InvalidRequest, match=r"wrong key.*file=.*\.rsm-manifest.*key_id=key1"):
        SegmentReader.open(world.store, segment.object_key, keys=other)


def test_every_attempt_has_a_data_key_of_its_own(world: World) -> None:
    process = world.process()
    process.tools = replace(process.tools, format=replace(process.tools.format, keys=PUBLIC))
    session = process.copy_all()
    readers = [SegmentReader.open(world.store, each.object_key, keys=RING) for each in session.view().readable]
    wrapped = [each.manifest.encryption for each in readers if each.manifest.encryption]
    assert len(readers) == len(wrapped) == len(world.rolled) > 1
    assert len({RING.unwrap(each.key_id, each.wrapped_key) for each in wrapped}) == len(readers)
    assert len({each.aad for each in wrapped}) == len(readers)

"""The key ring: it wraps under one key, opens under many, and its errors name the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierstate.state.errors import CorruptData, InvalidRequest
from tierstate.storage.segment.keyring import KeyRing

from .conftest import DATA, Golden
from .key_rings import load_ring, write_ring

KEY = bytes(range(32))


def test_the_data_key_of_aivens_segment_is_the_recorded_one(golden: Golden) -> None:
    segment = golden("aiven/zstd-aes")
    encryption = segment.reader().manifest.encryption
    assert encryption is not None
    expected = (DATA / "aiven" / "zstd-aes" / "dek.bin").read_bytes()
    assert segment.keyring.unwrap(encryption.key_id, encryption.wrapped_key) == expected


def test_only_the_private_key_opens_a_wrapped_key(tmp_path: Path) -> None:
    ring = load_ring(tmp_path, "k2", "k1", "k2")
    key_id, wrapped, fingerprint = ring.wrap(KEY)
    assert (key_id, fingerprint) == ("k2", ring.keys["k2"].fingerprint)
    assert len(wrapped) == 256
    assert ring.wrap(KEY)[1] != wrapped
    assert ring.unwrap("k2", wrapped) == KEY
    with pytest.raises(CorruptData, match="cannot be unwrapped"):
        ring.unwrap("k1", wrapped)
    with pytest.raises(CorruptData, match="cannot be unwrapped"):
        ring.unwrap("k2", wrapped[:-1] + bytes([wrapped[-1] ^ 1]))
    with pytest.raises(InvalidRequest, match=r"lacks the segment's key\. key_id=k3 has=k1,k2"):
        ring.unwrap("k3", wrapped)


def test_another_key_under_the_same_id_is_not_called_damage(tmp_path: Path) -> None:
    ring = load_ring(tmp_path, "k2", "k1", "k2")
    _, wrapped, fingerprint = ring.wrap(KEY)
    damaged = wrapped[:-1] + bytes([wrapped[-1] ^ 1])
    other = KeyRing("k2", {"k2": ring.keys["k1"]})
    for each in (wrapped, damaged):
        with pytest.raises(InvalidRequest, match=rf"wrong key.*wanted={fingerprint} has={ring.keys['k1'].fingerprint}"):
            other.unwrap("k2", each, fingerprint)
    with pytest.raises(CorruptData, match="cannot be unwrapped"):
        ring.unwrap("k2", damaged, fingerprint)
    with pytest.raises(CorruptData, match="it is damaged, or another key had this id"):
        other.unwrap("k2", wrapped)
    assert ring.unwrap("k2", wrapped, "a fingerprint that is damaged itself") == KEY


def test_a_short_key_is_refused_when_the_ring_is_loaded(tmp_path: Path) -> None:
    ring = write_ring(tmp_path, "short", "short", bits=1536)
    with pytest.raises(InvalidRequest, match="too short"):
        KeyRing.load(ring)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("active = 'k1'\n", "has 'active', and"),
        ("[keys.k1]\npublic = 'k1.public.pem'\n", "has 'active', and"),
        ("active = 'k2'\n[keys.k1]\npublic = 'k1.public.pem'\n", "has 'active', and"),
        ("active = 'k1\n", "cannot be read"),
        ("active = 'a:b'\n[keys.'a:b']\npublic = 'k1.public.pem'\n", "has no ':'"),
        ("active = ' '\n[keys.' ']\npublic = 'k1.public.pem'\n", "not blank"),
        ("active = 'k1'\n[keys.k1]\nprivate = 'k1.private.pem'\n", "names its 'public'"),
        ("active = 'k1'\n[keys.k1]\npublic = 'gone.pem'\n", "PEM file cannot be read"),
        ("active = 'k1'\n[keys.k1]\npublic = 'ring.toml'\n", "PEM file cannot be read"),
        ("active = 'k1'\n[keys.k1]\npublic = 'k1.public.pem'\nprivate = 'k2.private.pem'\n", "are no pair"),
        ("active = 'k1'\n[keys.k1]\npublic = 'k1.public.pem'\nprivate = 'k1.public.pem'\n", "are no pair"),
    ],
)
def test_a_wrong_ring_says_what_is_wrong_in_it(tmp_path: Path, text: str, reason: str) -> None:
    write_ring(tmp_path, "k1", "k1", "k2")
    ring = tmp_path / "ring.toml"
    ring.write_text(text)
    with pytest.raises(InvalidRequest, match=reason):
        KeyRing.load(ring)


def test_no_key_is_shown_when_a_ring_is_printed(tmp_path: Path) -> None:
    ring = load_ring(tmp_path, "k1", "k1")
    private = ring.keys["k1"].private
    assert private is not None
    assert str(private.d) not in repr(ring)
    assert "Private" not in repr(ring)

"""`tierstate keys`: makes keys, lists them, and rotates what a store holds without losing anything."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from tierstate.cli.main import run
from tierstate.state.object_keys import ObjectKind
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.reader import SegmentReader

DATA = Path(__file__).parents[1] / "data"


class Desk:
    """One settings file, one store with an encrypted and a plain segment of Aiven's, and a ring of their ``key1``."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        self.ring, self.store = folder / "keys" / "keyring.toml", folder / "store"
        self.config = folder / "tierstate.toml"
        self.config.write_text(f'[store]\nurl = "{self.store.as_uri()}"\n[encryption]\nkeyring = "{self.ring}"\n')
        store = DirectoryStore(self.store)
        for bucket in ("zstd-aes", "plain"):
            for path in (path for path in (DATA / "aiven" / bucket).rglob("*") if path.suffix in list(ObjectKind)):
                store.put_if_absent(path.relative_to(DATA / "aiven" / bucket).as_posix(), path.read_bytes())
        self.ring.parent.mkdir()
        for name in ("keyring.toml", "test-only-kek-public.pem", "test-only-kek-private.pem"):
            shutil.copy(DATA / "aiven-kafka" / name, self.ring.parent / name)

    def keys(self, *arguments: str, code: int = 0) -> Any:
        """Run the command and return its one JSON document; ``notes`` becomes the text of stderr."""
        status = run(["keys", *arguments, "--json", "--config", str(self.config)])
        output = self.capture.readouterr()
        assert status == code, output.err
        self.notes = output.err
        return json.loads(output.out) if output.out else None

    def log(self, ring: KeyRing) -> bytes:
        """Return the log of the encrypted segment, decrypted."""
        store = DirectoryStore(self.store)
        key = next(info.key for info in store.list("topic-") if info.key.endswith(ObjectKind.MANIFEST))
        return b"".join(SegmentReader.open(store, key, keys=ring).read_log())


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def test_a_dry_run_of_new_writes_nothing_and_a_run_adds_a_key(desk: Desk) -> None:
    before = sorted(path.name for path in desk.ring.parent.iterdir())
    assert desk.keys("new", "key2", "--bits", "2048", "--dry-run")["executed"] is False
    assert sorted(path.name for path in desk.ring.parent.iterdir()) == before
    document = desk.keys("new", "key2", "--bits", "2048")
    assert (document["key_id"], document["active"], document["executed"]) == ("key2", False, True)
    ring = KeyRing.load(desk.ring)
    assert (ring.active, list(ring.keys)) == ("key1", ["key1", "key2"])


def test_new_begins_a_ring_in_a_folder(desk: Desk, tmp_path: Path) -> None:
    document = desk.keys("new", "first", "--bits", "2048", "--dir", str(tmp_path / "other"))
    assert (document["key_ring"], document["active"]) == (str(tmp_path / "other" / "keyring.toml"), True)
    assert KeyRing.load(tmp_path / "other" / "keyring.toml").opens("first")


def test_a_wrong_id_or_one_that_is_taken_is_a_usage_error(desk: Desk) -> None:
    desk.keys("new", "a:b", code=2)
    desk.keys("new", "key1", code=2)
    assert "has a key of this id" in desk.notes


def test_the_list_shows_what_each_key_is_and_what_needs_it(desk: Desk) -> None:
    desk.keys("new", "key2", "--bits", "2048")
    (desk.ring.parent / "key2.private.pem").unlink()
    text = desk.ring.read_text()
    desk.ring.write_text("".join(line for line in text.splitlines(True) if "key2.private" not in line))
    listed = desk.keys("list", "--segments")
    assert listed["active"] == "key1"
    assert listed["not_encrypted"] == 1
    shown = {key["key_id"]: key for key in listed["keys"]}
    assert [(key, row["active"], row["private"], row["segments"]) for key, row in shown.items()] == [
        ("key1", True, True, 1),
        ("key2", False, False, 0),
    ]
    public = serialization.load_pem_public_key((desk.ring.parent / "key2.public.pem").read_bytes())
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert (shown["key2"]["bits"], shown["key2"]["fingerprint"]) == (2048, hashlib.sha256(der).hexdigest())


def test_the_list_names_keys_that_segments_need_and_the_ring_lacks(desk: Desk, tmp_path: Path) -> None:
    desk.keys("new", "other", "--bits", "2048", "--dir", str(tmp_path / "other"))
    listed = desk.keys("list", "--segments", "--keyring", str(tmp_path / "other" / "keyring.toml"))
    assert [(row["key_id"], row["segments"], row["private"]) for row in listed["keys"]] == [
        ("other", 0, True),
        ("key1", 1, False),
    ]


def test_a_rotation_shows_its_plan_executes_it_and_can_be_repeated(desk: Desk) -> None:
    source = (DATA / "aiven" / "source.log").read_bytes()
    desk.keys("new", "key2", "--bits", "2048", "--activate")
    plan = desk.keys("rotate")
    assert plan["executed"] is False
    assert "--execute does it" in desk.notes
    assert {(row["outcome"], row["key_id"], row["segments"]) for row in plan["manifests"]} == {
        ("rotated", "key1", 1),
        ("plain", None, 1),
    }
    ring = KeyRing.load(desk.ring)
    alone = KeyRing("key2", {"key2": ring.keys["key2"]})
    assert desk.log(KeyRing("key1", {"key1": ring.keys["key1"]})) == source
    assert desk.keys("rotate", "--execute")["manifests"] == plan["manifests"]
    assert desk.log(alone) == source
    again = desk.keys("rotate", "topic:7", "--execute")
    assert ("active", "key2", 1) in {(row["outcome"], row["key_id"], row["segments"]) for row in again["manifests"]}
    assert desk.keys("rotate", "elsewhere")["manifests"] == []


def test_a_lost_private_key_is_named_and_exits_5(desk: Desk, tmp_path: Path) -> None:
    desk.keys("new", "other", "--bits", "2048", "--dir", str(tmp_path / "other"))
    desk.keys("rotate", "--execute", "--keyring", str(tmp_path / "other" / "keyring.toml"), code=5)
    assert "no_private_key=key1" in desk.notes
    assert "segments=1" in desk.notes


def test_a_corrupt_manifest_is_named_and_exits_4_after_the_others_are_done(desk: Desk) -> None:
    manifest = next(desk.store.rglob("pfx/**/*.rsm-manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-2])
    desk.keys("new", "key2", "--bits", "2048", "--activate")
    done = desk.keys("rotate", "--execute", code=4)
    assert {row["outcome"] for row in done["manifests"]} == {"rotated", "corrupt"}
    assert manifest.name in done["problems"][0]["object_key"]

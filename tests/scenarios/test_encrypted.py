"""An encrypted remote tier on a real broker: an agent with public keys, readers with private ones, a rotation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.guarded import self_signed
from tests.scenarios.house import House, eventually
from tests.spark.gateways import read_through
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied

pytestmark = pytest.mark.kafka

RECORDS = 2_000


@dataclass
class Encrypted:
    """A topic, copied and trimmed by an agent that never had a private key and has ended since."""

    house: House
    topic: str
    ring: Path
    digests: list[tuple[int, int, str]]

    @property
    def with_ring(self) -> tuple[str, str]:
        return "--set", f"encryption.keyring={self.ring}"


@pytest.fixture(scope="module")
def encrypted(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    house = House(kafka, tmp_path_factory.mktemp("encrypted") / "house", "encrypted")
    try:
        folder = house.folder / "keys"
        house.run("keys", "new", "key1", "--bits", "2048", "--dir", str(folder))
        ring, public = folder / "keyring.toml", folder / "agent.toml"
        public.write_text("".join(line for line in ring.read_text().splitlines(True) if "private" not in line))
        house.run("init")
        topic = house.create("t")
        house.append(topic, RECORDS)
        digests = house.digests(topic, "--via", "broker")
        with house.agent("--set", f"encryption.keyring={public}", "--set", "format.key_prefix={salt}/x/"):
            eventually(lambda: len(house.logs(topic)) == 1)
        yield Encrypted(house, topic, ring, digests)
    finally:
        house.close()


def reads_back(encrypted: Encrypted) -> None:
    """Read every record through `consume`, and every byte of every object through `verify`."""
    house, topic = encrypted.house, encrypted.topic
    read = house.run("consume", f"{topic}:0", "--format", "%o %k %s\\n", *encrypted.with_ring).stdout.splitlines()
    assert read == [f"{number} k{number % 7} {number:0120d}" for number in range(RECORDS)]
    findings = house.json("verify", topic, "--level", "3", *encrypted.with_ring)
    assert findings["findings"] == []
    assert findings["summary"]["bytes_read"] > 0


def test_nothing_in_the_store_is_plain_and_everything_reads_back(encrypted: Encrypted) -> None:
    house = encrypted.house
    manifests = house.manifests(encrypted.topic)
    assert len(manifests) > 1
    for path in house.objects():
        assert (b"%0120d" % 0)[:100] not in path.read_bytes()
    assert all(json.loads(path.read_bytes())["encryption"]["dataKey"].startswith("key1:") for path in manifests)
    reads_back(encrypted)
    assert house.digests(encrypted.topic, "--via", "consumer", *encrypted.with_ring) == encrypted.digests
    gateway, url = house.gateway(*encrypted.with_ring)
    assert house.digests(encrypted.topic, "--via", "gateway", "--gateway", url) == encrypted.digests
    gateway.stop()
    manifest = str(manifests[0])
    dumped = house.lines("dump-log", manifest, "--keyring", str(encrypted.ring))
    assert [each["offset"] for each in dumped] == list(range(len(dumped)))


def test_a_salted_prefix_is_the_agents_alone(encrypted: Encrypted) -> None:
    """Readers here have no setting for it: facts and manifests have whole keys."""
    for path in encrypted.house.manifests(encrypted.topic):
        assert re.match(rf"[01]{{5}}/x/{encrypted.topic}-", str(path.relative_to(encrypted.house.store)))


def test_check_names_the_active_key_and_readers_name_the_key_they_lack(encrypted: Encrypted) -> None:
    checked = {each["check"]: each["detail"] for each in encrypted.house.json("check", *encrypted.with_ring)}
    assert checked["key ring"].endswith("active key key1")
    for command in (("consume", f"{encrypted.topic}:0"), ("verify", encrypted.topic, "--level", "3")):
        assert "key_id=key1" in encrypted.house.run(*command, code=2).stderr


def test_a_rotation_changes_no_record_no_size_and_no_fact(encrypted: Encrypted) -> None:
    house, folder = encrypted.house, encrypted.ring.parent
    sizes = {path: path.stat().st_size for path in house.objects()}
    house.run("keys", "new", "a-longer-id", "--bits", "3072", "--activate", "--dir", str(folder))
    plan = house.json("keys", "rotate", encrypted.topic, *encrypted.with_ring)["manifests"]
    assert plan == [{"outcome": "rotated", "key_id": "key1", "segments": len(house.manifests(encrypted.topic))}]
    house.json("keys", "rotate", encrypted.topic, "--execute", *encrypted.with_ring)
    assert {path: path.stat().st_size for path in house.objects()} == sizes
    listed = house.json("keys", "list", "--segments", *encrypted.with_ring)["keys"]
    assert [(each["key_id"], each["segments"]) for each in listed] == [
        ("key1", 0),
        ("a-longer-id", plan[0]["segments"]),
    ]
    alone = folder / "alone.toml"
    text = encrypted.ring.read_text()
    alone.write_text('active = "a-longer-id"\n' + text[text.index('[keys."a-longer-id"]') :])
    reads_back(Encrypted(house, encrypted.topic, alone, encrypted.digests))


def test_through_a_gateway_a_data_key_is_told_over_tls_alone(encrypted: Encrypted, tmp_path: Path) -> None:
    """Readers have no ring; they get the key of one segment at a time, and nothing else of the ring."""
    plain, url = encrypted.house.gateway(*encrypted.with_ring)
    with pytest.raises(AccessDenied, match="over TLS only"):
        read_through(url, encrypted.topic, 1, lease_s=0)
    plain.stop()
    authority, identity = self_signed(tmp_path)
    sets = {"gateway.tls.certificate": identity, "gateway.tls.key": identity}
    flags = [flag for name, value in sets.items() for flag in ("--set", f"{name}={value}")]
    running, url = encrypted.house.gateway(*encrypted.with_ring, *flags)
    records = read_through(url, encrypted.topic, 1, ca=authority)
    assert [(offset, value) for _, offset, value in records] == [(at, b"%0120d" % at) for at in range(RECORDS)]
    running.stop()

"""`tierstate adopt` out of S3, out of encrypted segments, and out of several stores; killed, it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.kip405.kafkas_tiers import until
from tests.scenarios.house import House
from tests.scenarios.own_s3 import OwnS3, own_s3
from tests.scenarios.test_adopt import AIVEN
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.object_keys import ObjectKind

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
RECORDS = 1_500


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[OwnS3]:
    with own_s3(tmp_path, "lost", "lost-audit", "plugin") as made:
        yield made


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, topic_name: str, s3: OwnS3) -> Iterator[House]:
    """Yield a house whose store is a folder, and whose settings reach the bucket of another one."""
    made = House(kafka, tmp_path / "house", f"here-{topic_name[-60:]}")
    made.run("init")
    yield made
    made.close()


def set_up(house: House, *sections: str) -> None:
    with house.config.open("a") as file:
        file.write("".join(sections))


def killed_when(house: House, topic: str, source: str, kind: ObjectKind, count: int) -> None:
    """Kill a slow adoption by SIGKILL when it has written so many objects of this kind."""
    running = house.start("adopt", topic, "--from", source, "--execute", "--set", "copy.quota=60KiB")
    until(lambda: len(list(house.store.rglob(f"*{kind}"))) >= count or running.process.poll() is not None)
    running.process.kill()
    running.process.wait()


def test_encrypted_segments_in_two_buckets_are_adopted_under_another_key_after_kills(
    house: House, s3: OwnS3, tmp_path: Path
) -> None:
    ring, key = tmp_path / "keyring.toml", ("--bits", "2048", "--dir", str(tmp_path))
    house.run("keys", "new", "key1", *key)
    old = tmp_path / "old.toml"
    old.write_text(ring.read_text())
    house.run("keys", "new", "key2", "--activate", *key)
    lost = House(house.kafka, tmp_path / "lost", f"lost-{house.name}")
    store = f'url = "{lost.store.as_uri()}"\n'
    lost.config.write_text(lost.config.read_text().replace(store, f'url = "s3://lost/tier"\n{s3.lines}'))
    set_up(lost, f'[encryption]\nkeyring = "{old}"\n[store.topics]\n".*-audit" = "s3://lost-audit/tier"\n')
    lost.run("init")
    topic = lost.create("audit", internal_segment_bytes="30000")
    lost.append(topic, RECORDS)
    with lost.agent():
        until(lambda: len(lost.logs(topic)) == 1)
        lost.run("delete-records", f"{topic}:0", "--before", "30", "--execute")
    lost.run("agent", "--once")
    before = lost.digests(topic, "--source", "bucket")
    count = len([each for each in s3.keys("lost-audit") if each.endswith(str(ObjectKind.MANIFEST))])
    assert count > 4
    topic_id = next(each for each in s3.keys("lost-audit") if topic in each).split("/")[-3][-22:]
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    lost.close()

    source = "s3://lost/tier"
    set_up(house, f'[next_store]\nurl = "s3://lost"\n{s3.lines}')
    plan = house.json("adopt", topic, "--from", source, code=4)["partitions"][0]
    assert (plan["adopted"], len(plan["problems"]), len(plan["behind_a_hole"])) == ([], count, 0)
    assert all("no key ring was given: set encryption.keyring" in each["problem"] for each in plan["problems"])
    refused = house.run("adopt", topic, "--from", source, "--execute", code=4)
    assert "segment is encrypted and no key ring was given: set encryption.keyring" in refused.stdout
    set_up(house, f'[encryption]\nkeyring = "{ring}"\n')
    part = "s3://lost-audit/tier"
    refused = house.run("adopt", topic, "--from", part, "--set", f"next_store.url={part}", code=2)
    assert "name that one's store.url" in refused.stderr
    objects = {bucket: s3.keys(bucket) for bucket in ("lost", "lost-audit")}
    for kind, objects_there in ((ObjectKind.LOG, 1), (ObjectKind.MANIFEST, 2), (ObjectKind.MANIFEST, count)):
        killed_when(house, topic, source, kind, objects_there)
    done = house.json("adopt", topic, "--from", source, "--execute")
    assert done["partitions"][0]["problems"] == []
    assert {bucket: s3.keys(bucket) for bucket in objects} == objects, "the source is only read"
    assert [each[1:] for each in house.digests(topic_id)] == [each[1:] for each in before]
    house.run("verify", topic_id, "--level", "3")
    assert all(b'"key2:' in each.read_bytes() for each in house.manifests())


def test_an_encrypted_bucket_of_the_plugin_is_adopted_with_its_keys_only(
    house: House, s3: OwnS3, tmp_path: Path
) -> None:
    folder, source = AIVEN / "encrypted" / "bucket", "s3://plugin"
    for file in folder.rglob("*.*"):
        s3.client.put_object(Bucket="plugin", Key=str(file.relative_to(folder)), Body=file.read_bytes())
    set_up(house, f'[next_store]\nurl = "{source}"\n{s3.lines}')
    refused = house.run("adopt", "again", "--from", source, "--execute", code=4).stdout
    assert "segment is encrypted and no key ring was given: set encryption.keyring" in refused
    assert not house.manifests()
    set_up(house, f'[encryption]\nkeyring = "{AIVEN / "keyring.toml"}"\n')
    unmarked = house.json("adopt", "again", "--from", folder.as_uri())
    assert len(unmarked["partitions"][0]["adopted"]) == 2, "a copy of the bucket in a folder"
    done = house.json("adopt", "again", "--from", source, "--execute")
    topic_id = done["partitions"][0]["topic_id"]
    house.run("verify", topic_id, "--level", "3")
    assert [each[:2] for each in house.digests(topic_id)] == [(0, 560)]
    own = house.run("adopt", "again", "--from", house.store.as_uri(), code=2).stderr
    assert "this is the store in use: tierstate recover" in own
    assert "gone, not mounted" in house.run("adopt", "again", "--from", f"file://{tmp_path}/absent", code=3).stderr

"""`tierstate backup` keeps what a restore needs in addition to records, version by version, and never a secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.commits import commit
from tests.scenarios.house import House, eventually
from tests.servers.schema_registry import registry
from tierstate.app.operating.cluster_backup import newest_backup
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import TimestampMs
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka
SECRET = b"never in a backup"


@pytest.fixture
def house(guarded_kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(guarded_kafka, tmp_path, f"backup{abs(hash(request.node.name)) % 10_000}")
    made.run("init")
    yield made
    made.close()


def documents(house: House) -> list[dict[str, Any]]:
    folder = house.store / "_tierstate_backup" / house.kafka.cluster_id
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def test_topics_groups_and_access_lists_are_kept_without_secrets(house: House) -> None:
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    scram = UserScramCredentialUpsertion("ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), SECRET)
    for each in admin.alter_user_scram_credentials([scram]).values():
        each.result(30)
    topic = house.create("orders", 3, cleanup_policy="compact")
    commit(house.kafka.client_config, f"{house.name}-group", topic, 0, 17)
    allowed = AclBinding(
        ResourceType.TOPIC,
        f"{topic}-of-ann",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for each in admin.create_acls([allowed]).values():
        each.result(30)
    answer = house.json("backup")
    assert answer["problems"] == []
    (document,) = documents(house)
    kept = document["topics"][topic]
    assert (kept["partitions"], kept["replication_factor"]) == (3, 1)
    assert kept["config"]["cleanup.policy"] == "compact"
    assert "segment.ms" not in kept["config"], "a default is not a setting of the topic"
    assert document["groups"][f"{house.name}-group"] == {topic: {"0": 17}}
    assert any(each["principal"] == "User:ann" and each["name"] == f"{topic}-of-ann" for each in document["acls"])
    text = json.dumps(document)
    assert SECRET.decode() not in text
    assert "salt" not in text


def test_a_backup_is_written_on_change_only_and_a_past_one_is_chosen_by_its_time(house: House) -> None:
    topic = house.create("orders")
    commit(house.kafka.client_config, f"{house.name}-group", topic, 0, 5)
    first = house.json("backup")
    assert house.json("backup")["key"] is None, "nothing has changed"
    commit(house.kafka.client_config, f"{house.name}-group", topic, 0, 9)
    house.run("backup")
    before, after = documents(house)
    folder = house.store / "_tierstate_backup" / house.kafka.cluster_id
    data = sorted(folder.iterdir())[0].read_bytes()
    assert after["previous"] == {"at": before["at"], "sha256": hashlib.sha256(data).hexdigest()}
    store = DirectoryStore(house.store)
    for until, offset in ((None, 9), (TimestampMs(after["at"] - 1), 5)):
        backup = newest_backup(store, house.kafka.cluster_id, until)
        assert backup is not None
        assert backup.groups[f"{house.name}-group"][topic][0] == offset
    assert newest_backup(store, house.kafka.cluster_id, TimestampMs(first["at"] - 1)) is None


def test_an_agent_backs_up_by_itself_each_hour_and_with_backup_every_0_never(house: House) -> None:
    topic = house.create("orders")
    with house.agent("--set", "backup.every=0") as agent:
        eventually(lambda: house.json("describe", f"{topic}:0")[0].get("agent"))
        agent.says("agent ready")
        assert "\ntierstate_backup_problems " not in agent.metrics()
        assert not (house.store / "_tierstate_backup").exists()
    with house.agent("--set", "backup.every=1s") as agent:
        eventually(lambda: "tierstate_backup_problems 0.0" in agent.metrics())
        commit(house.kafka.client_config, f"{house.name}-group", topic, 0, 5)
        group = f"{house.name}-group"
        eventually(lambda: documents(house)[-1]["groups"].get(group) == {topic: {"0": 5}})
        assert 'tierstate_chore_failures_total{chore="backup"} 0.0' in agent.metrics()
        assert documents(house)[0]["previous"] is None


def test_every_version_of_a_subject_is_kept_and_requested_once(house: House) -> None:
    version = {"subject": "orders-value", "version": 1, "id": 7, "schema": '"string"'}
    answers: dict[int | str, Any] = {
        "/subjects": (200, ["orders-value"]),
        "/subjects/orders-value/versions": (200, [1]),
        "/subjects/orders-value/versions/1": (200, version),
    }
    with registry(answers) as server:
        flags = ["--set", f"registry.url={server.url}"]
        house.run("backup", *flags)
        server.answers["/subjects/orders-value/versions"] = 200, [1, 2]
        server.answers["/subjects/orders-value/versions/2"] = 200, {**version, "version": 2, "id": 8}
        house.run("backup", *flags)
        assert server.asked.count("/subjects/orders-value/versions/1") == 1
    subject = documents(house)[-1]["subjects"]["orders-value"]
    assert {number: each["id"] for number, each in subject.items()} == {"1": 7, "2": 8}


def test_a_registry_that_does_not_answer_is_named_and_the_rest_is_kept(house: House) -> None:
    topic = house.create("orders")
    answer = house.json("backup", "--set", "registry.url=http://127.0.0.1:9")
    assert any("the schema registry does not answer" in problem for problem in answer["problems"])
    assert topic in documents(house)[-1]["topics"]

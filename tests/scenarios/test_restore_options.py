"""`tierstate restore` from both tiers, as of a past moment, into a cluster with a login, while the leader moves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.broker.beheading import alter
from tests.scenarios.house import TIERSTATE, House, environment, eventually, opened_house
from tests.scenarios.lost_topics import copied_ends, read_rows
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS, MORE = 2_000, 700
FOREVER = 2**62


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    with opened_house(kafka, tmp_path / "house", f"options{len(request.node.name)}") as opened:
        yield opened


def values(kafka: KafkaSandbox, topic: str) -> list[int]:
    """Return the numbers of the records of `House.append`, in the order of the topic."""
    return [int(row[1] or b"-1") for _, row in read_rows(kafka.client_config, topic, 0, FOREVER)]


def copied_and_trimmed(house: House, topic: str) -> int:
    """Return the end of what is remote, once the broker has only its active segment and the bucket's view knows it."""
    eventually(lambda: len(house.logs(topic)) == 1)
    end = int(house.logs(topic)[0].stem)
    eventually(lambda: copied_ends(house, topic, 1) == [end])
    return end


def test_both_tiers_of_a_live_cluster_are_restored_into_one_behind_tls_and_sasl(
    house: House, tls_kafka: KafkaSandbox, tmp_path: Path
) -> None:
    topic = house.create("orders")
    house.append(topic, RECORDS)
    with house.agent():
        remote_end = copied_and_trimmed(house, topic)
    house.append(topic, MORE, first=RECORDS)
    assert 0 < remote_end < RECORDS + MORE, "each tier has records that the other lacks"
    file, report = tmp_path / "new.properties", tmp_path / "report.json"
    flags = ["--into", "both-tiers", "--command-config", str(file), "--verify", str(report), "--execute"]
    missing = house.run("restore", topic, *flags, code=2)
    assert "the file of --command-config cannot be read" in missing.stderr
    client = tls_kafka.client_config
    file.write_text("\n".join(f"{name}={value}" for name, value in (client | {"sasl.password": "wrong"}).items()))
    assert house.run("restore", topic, *flags, code=5).stderr
    file.write_text("# of the new cluster\n\n" + "\n".join(f"{name} = {value}" for name, value in client.items()))
    house.run("restore", topic, *flags)
    assert values(tls_kafka, "both-tiers") == list(range(RECORDS + MORE))
    ranges = json.loads(report.read_text())["ranges"]
    assert (sum(each["records"] for each in ranges), {each["outcome"] for each in ranges}) == (
        RECORDS + MORE,
        {"equal"},
    )


def test_as_of_a_moment_the_records_and_the_settings_of_then_come_back(house: House, kafka: KafkaSandbox) -> None:
    topic, clock = house.create("orders", max_message_bytes="900000"), SystemClock()
    house.append(topic, RECORDS)
    with house.agent():
        then_end = copied_and_trimmed(house, topic)
        house.run("backup")
        then = clock.now_ms()
        alter(AdminClient({**house.kafka.client_config, "log_level": 0}), topic, "max.message.bytes", "800000")
        house.append(topic, RECORDS, first=RECORDS)
        eventually(lambda: int(house.logs(topic)[0].stem) > then_end)
        now_end = copied_and_trimmed(house, topic)
        house.run("backup")
    assert now_end > then_end
    flags = ["--source", "bucket", "--execute"]
    into = f"{topic}-then"
    house.run("restore", topic, "--into", into, "--as-of", f"@{then}", *flags)
    assert values(kafka, into) == list(range(then_end))
    assert settings_of(kafka, into)["max.message.bytes"] == "900000"
    house.run("restore", topic, "--into", into, *flags)
    assert values(kafka, into) == list(range(now_end)), "a later run adds what is new"


def settings_of(kafka: KafkaSandbox, topic: str) -> dict[str, str]:
    admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: each.value for name, each in admin.describe_configs([resource])[resource].result(30).items()}


def test_a_leader_that_is_killed_meanwhile_costs_no_record_and_doubles_none(
    house: House, kafka_three: KafkaSandbox
) -> None:
    topic, into = house.create("orders"), "of-three"
    house.append(topic, RECORDS)
    with house.agent():
        end = copied_and_trimmed(house, topic)
    admin: Any = AdminClient({**kafka_three.client_config, "log_level": 0})
    admin.create_topics([NewTopic(into, 1, 3, config={"min.insync.replicas": "2"})])[into].result(30)
    flags = ["--store", house.store.as_uri(), "--source", "bucket", "--bootstrap-server", kafka_three.bootstrap]
    command = [*TIERSTATE, "restore", topic, "--into", into, *flags, "--max-rate", "20kB", "--execute", "--json"]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed = list[int]()
    for part in (5, 3):
        eventually(lambda: len(values(kafka_three, into)) > end // part)  # noqa: B023 - called at once
        leader = admin.list_topics(into, timeout=30).topics[into].partitions[0].leader
        killed.append(leader)
        kafka_three.kill(leader - 1)
        eventually(lambda: admin.list_topics(into, timeout=30).topics[into].partitions[0].leader not in (leader, -1))  # noqa: B023
        kafka_three.start(leader - 1)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert len(killed) == 2
    assert values(kafka_three, into) == list(range(end))
    assert sum(each["records"] for each in json.loads(out)["partitions"]) == end

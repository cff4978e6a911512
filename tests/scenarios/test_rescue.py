"""A broker without disk space is down: copied segments leave its folders, it starts, and both tiers are one log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios.house import House, eventually, opened_house
from tierstate.app.opening.bucket_connection import BucketConnection
from tierstate.app.opening.connection import Connection
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import TopicIdPartition

pytestmark = [pytest.mark.kafka, pytest.mark.extended]
RECORDS = 4_000
ALL_STAYS = "1000000000"
"""A value of ``local.retention.bytes``."""


def copied(house: House, topic: str) -> bool:
    """Return whether the bucket's view has all but the active segment."""
    settings = settings_from({"store.url": house.store.as_uri(), "view.source": "bucket"})
    with BucketConnection(Connection(settings), lambda age: None) as bucket:
        try:
            place = TopicIdPartition(bucket.control.topic(topic).topic_id, 0)
            owned = bucket.view().partition(place).coverage.owned
        except InvalidRequest:
            return False  # nothing is archived yet
    return bool(owned) and owned[-1].offsets.end + 1 == int(house.logs(topic)[-1].stem)


def rescued(house: House, *flags: str, code: int = 0) -> Any:
    return house.json("rescue", str(house.log_dir), *flags, code=code)


@contextmanager
def agents(house: House, kafka: KafkaSandbox) -> Iterator[None]:
    """Run one agent for each broker: the leader of a tier-state partition archives it."""
    with ExitStack() as running:
        for number, broker in enumerate(kafka.brokers):
            folders = (f"agent.log_dirs={broker.log_dir}", f"state_dir={house.folder}/state-{number}")
            running.enter_context(house.agent(*(flag for each in folders for flag in ("--set", each))))
        yield


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def house(kafka_own: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    with opened_house(kafka_own, tmp_path, "rescued") as house:
        house.run("init")
        yield house


def test_proven_segments_leave_the_disk_of_a_dead_broker_without_loss(house: House, kafka_own: KafkaSandbox) -> None:
    topic = house.create("orders", local_retention_bytes=ALL_STAYS)
    with house.agent():
        house.append(topic, RECORDS)
        eventually(lambda: copied(house, topic))
    before, segments = house.digests(topic), house.logs(topic)
    assert len(segments) > 4
    refused = house.run("rescue", str(house.log_dir), code=3)
    assert "the broker of this folder is running" in refused.stderr
    kafka_own.kill(0)
    shown = rescued(house)
    assert not shown["executed"]
    assert shown["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "segments": len(segments) - 1,
            "bytes": shown["bytes"],
            "log_begins_at": int(segments[-1].stem),
            "why_no_more": "only the active segment is left",
        }
    ]
    assert house.logs(topic) == segments, "it was a dry run"
    some = rescued(house, "--free", "1KiB", "--execute")
    assert some["partitions"][0]["segments"] == 1
    assert house.logs(topic) == segments[1:]
    damaged = next(path for path in house.store.rglob("*.log") if f"/{segments[2].stem}-" in str(path))
    flipped(damaged)
    some = rescued(house, "--execute", code=1)
    assert house.logs(topic) == segments[2:], "a copy that is damaged keeps its local segment, and those behind it"
    flipped(damaged)
    rescued(house, "--execute")
    assert house.logs(topic) == segments[-1:]
    kafka_own.start(0)
    with house.agent():
        assert house.digests(topic) == before
        assert house.holds(topic, RECORDS)
        described = house.json("describe", topic)[0]
        assert described["local_log_start_offset"] == int(segments[-1].stem)
        house.run("verify", topic, "--level", "3")
        house.append(topic, RECORDS, 0, RECORDS)
        assert house.holds(topic, 2 * RECORDS)


def test_a_rescued_replica_catches_up_and_leads_again(kafka_three: KafkaSandbox, tmp_path: Path) -> None:
    with opened_house(kafka_three, tmp_path, "replicas") as house:
        house.run("init")
        admin: Any = AdminClient({**kafka_three.client_config, "log_level": 0})
        topic = "replicas-orders"
        config = {
            "internal.segment.bytes": "50000",
            "retention.ms": "-1",
            "local.retention.bytes": ALL_STAYS,
            "min.insync.replicas": "2",
        }
        made = NewTopic(topic, 1, replica_assignment=[[1, 2, 3]], config=config)
        admin.create_topics([made], operation_timeout=30)[topic].result(30)
        with agents(house, kafka_three):
            house.append(topic, RECORDS)
            eventually(lambda: copied(house, topic))
        before = house.digests(topic)
        kafka_three.kill(0)
        house.append(topic, 500, 0, RECORDS)
        rescued(house, "--execute")
        assert len(house.logs(topic)) == 1
        kafka_three.start(0)
        place = TopicPartition(topic, 0)

        def leads_again() -> bool:
            partition = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
            if len(partition.isrs) == 3 and partition.leader != 1:
                admin.elect_leaders(ElectionType.PREFERRED, [place]).result(30)
            return bool(partition.leader == 1 and len(partition.isrs) == 3)

        eventually(leads_again)
        with agents(house, kafka_three):
            assert house.holds(topic, RECORDS + 500)
            assert house.json("digest", topic, "--to", str(RECORDS))["partitions"][0]["digest"] == before[0][2]
            house.run("verify", topic, "--level", "3")

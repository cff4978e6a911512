"""The target topic is as the old one was, except for what would lose or refuse the old records."""

from __future__ import annotations

import pytest

from tierstate.app.operating.cluster_backup import TopicBackup
from tierstate.broker.topics import PartitionDescription, TopicDescription
from tierstate.restore.target import existing_topic, new_topic, retention_note
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import TopicId
from tierstate.state.offsets import TimestampMs

DAY = 86_400_000
NOW = TimestampMs(1_800_000_000_000)
OLD = TimestampMs(NOW - 400 * DAY)
TOPIC = TopicDescription("new", TopicId("x2QkAAAAAAAAAAAAAAAAAA"), False, (PartitionDescription(0, None, None),))


def backup(**config: str) -> TopicBackup:
    return TopicBackup("id", 2, 3, {name.replace("_", "."): value for name, value in config.items()})


def test_settings_of_the_backup_are_taken_over() -> None:
    plan = new_topic("new", 2, 3, backup(cleanup_policy="compact", min_insync_replicas="2"), {})
    assert plan.create is not None
    assert (plan.create.partitions, plan.create.replication_factor) == (2, 3)
    assert plan.create.config == {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    assert plan.notes == ()


def test_settings_that_would_lose_or_refuse_old_records_are_replaced_and_named() -> None:
    config = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "1"}
    plan = new_topic("new", 2, 1, backup(**config, min_insync_replicas="2", remote_storage_enable="true"), {})
    assert plan.create is not None
    assert plan.create.config == {"message.timestamp.type": "CreateTime", "min.insync.replicas": "1"}
    assert plan.create.replication_factor == 1
    for name in (
        "remote.storage.enable",
        "LogAppendTime",
        "before.max.ms",
        "min.insync.replicas=1",
        "replication factor 1",
    ):
        assert any(name in note for note in plan.notes), name


def test_settings_that_kafka_4_refuses_are_replaced_and_named() -> None:
    plan = new_topic("new", 2, 3, backup(message_format_version="2.8", segment_bytes="20000"), {})
    assert plan.create is not None
    assert plan.create.config == {"segment.bytes": "1048576"}
    for name in ("message.format.version", "segment.bytes=1048576, not 20000"):
        assert any(name in note for note in plan.notes), name


def test_without_a_backup_nothing_expires() -> None:
    plan = new_topic("new", 2, 3, None, {"compression.type": "producer"})
    assert plan.create is not None
    assert plan.create.config == {"retention.ms": "-1", "compression.type": "producer"}


def test_a_retention_that_deletes_what_is_restored_is_named() -> None:
    assert "400d" in retention_note({"retention.ms": str(7 * DAY)}, OLD, NOW)[0]
    assert retention_note({"retention.ms": "-1"}, OLD, NOW) == ()
    assert retention_note({"retention.ms": str(401 * DAY)}, OLD, NOW) == ()


@pytest.mark.parametrize(
    ("partitions", "config", "reason"),
    [
        (2, {}, "too few partitions"),
        (1, {"message.timestamp.type": "LogAppendTime"}, "stored times would be lost"),
        (1, {"message.timestamp.before.max.ms": str(DAY)}, "raise its message.timestamp.before.max.ms"),
    ],
)
def test_an_existing_topic_that_cannot_take_the_records_is_refused(
    partitions: int, config: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        existing_topic(TOPIC, partitions, config, OLD, NOW)


def test_an_existing_topic_that_takes_them_stays_as_it_is() -> None:
    assert existing_topic(TOPIC, 1, {"message.timestamp.before.max.ms": str(401 * DAY)}, OLD, NOW).create is None

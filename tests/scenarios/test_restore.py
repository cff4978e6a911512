"""`tierstate restore` as people run it: the cluster burned down, and another one gets its topics from the bucket."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.scenarios.house import TIERSTATE, House, environment, eventually, run
from tests.scenarios.lost_topics import Lost, Row, produce_all_kinds, read_rows, remember
from tests.topics import create
from tierstate.broker.administration import commit as set_offset
from tierstate.broker.open import open_broker
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka
FOREVER = 2**62


@pytest.fixture(scope="module")
def lost(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    house = House(kafka_own, tmp_path_factory.mktemp("lost"), "lost")
    times = house.create("times", internal_segment_bytes="20000", message_timestamp_type="LogAppendTime")
    topics = {house.create("orders", 2, internal_segment_bytes="20000"): 2, times: 1}
    house.run("init")
    try:
        for topic, partitions in topics.items():
            produce_all_kinds(house, topic, partitions)
        remembered = remember(house, topics)
        commit(kafka_own, "billing", {("lost-orders", 0): 700, ("lost-orders", 1): 0})
        house.run("backup")
        kafka_own.kill(0)
        yield remembered
    finally:
        house.close()


def commit(kafka: KafkaSandbox, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer: Any = Consumer({**kafka.client_config, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(*place, at) for place, at in offsets.items()], asynchronous=False)
    consumer.close()


def rows_of(kafka: KafkaSandbox, topic: str, partition: int) -> list[Row]:
    """Return all records of a partition, also those that a restore would have left in an aborted transaction."""
    return [row for _, row in read_rows(kafka.client_config, topic, partition, FOREVER)]


def restore(lost: Lost, kafka: KafkaSandbox, topic: str, into: str, *flags: str, code: int = 0) -> Any:
    target = ["--bootstrap-server", kafka.bootstrap]
    done = run("restore", topic, "--into", into, *lost.bucket, *target, *flags, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if not code else json.loads(done.stderr.splitlines()[-1])


@pytest.mark.essential
def test_a_new_cluster_gets_every_record_once_with_all_that_belongs_to_it(
    lost: Lost, kafka: KafkaSandbox, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = restore(lost, kafka, "lost-orders", "orders", "--execute", "--verify", str(report))
    for number in (0, 1):
        assert rows_of(kafka, "orders", number) == lost.committed("lost-orders", number)
    assert sum(each["batches_rewritten"] for each in done["partitions"]) == 0
    outcomes = json.loads(report.read_text())["ranges"]
    assert {each["outcome"] for each in outcomes} == {"equal"}
    assert sum(each["records"] for each in outcomes) == sum(len(lost.rows["lost-orders", n]) for n in (0, 1))


def test_a_topic_with_append_times_keeps_the_stored_times(lost: Lost, kafka: KafkaSandbox) -> None:
    done = restore(lost, kafka, "lost-times", "times", "--execute")
    assert rows_of(kafka, "times", 0) == lost.committed("lost-times", 0)
    assert done["partitions"][0]["batches_rewritten"] > 0


def test_groups_go_on_at_the_record_that_they_would_have_read_next(lost: Lost, kafka: KafkaSandbox) -> None:
    restore(lost, kafka, "lost-orders", "orders-of-groups", "--execute")
    flags = ["--store", lost.house.store.as_uri(), "--bootstrap-server", kafka.bootstrap, "--json"]
    shown = run("restore", "groups", "orders-of-groups", *flags)
    assert json.loads(shown.stdout)["executed"] is False
    assert committed(kafka, "billing", "orders-of-groups") == {}
    done = run("restore", "groups", "orders-of-groups", "--group", "billing", "--execute", *flags)
    assert done.returncode == 0, done.stderr
    offsets = committed(kafka, "billing", "orders-of-groups")
    for number, old in ((0, 700), (1, 0)):
        rest = [row for offset, row in lost.rows["lost-orders", number] if offset >= old]
        rows = read_rows(kafka.client_config, "orders-of-groups", number, FOREVER)
        assert [row for offset, row in rows if offset >= offsets[number]] == rest


def committed(kafka: KafkaSandbox, group: str, topic: str) -> dict[int, int]:
    consumer: Any = Consumer({**kafka.client_config, "group.id": group, "log_level": 0})
    places = consumer.committed([TopicPartition(topic, number) for number in (0, 1)], timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in places if each.offset >= 0}


def test_a_new_cluster_without_a_topic_of_offsets_gets_the_offsets_of_groups(kafka_older: KafkaSandbox) -> None:
    admin: Any = AdminClient({**kafka_older.client_config, "log_level": 0})
    create(admin, NewTopic("orders", 1, 1))
    with open_broker(kafka_older.client_config) as broker:
        set_offset(broker.raw, SystemClock(), "billing", {("orders", 0): Offset(7)})
    assert committed(kafka_older, "billing", "orders")[0] == 7


def test_a_group_with_members_is_refused(lost: Lost, kafka: KafkaSandbox) -> None:
    restore(lost, kafka, "lost-orders:0", "orders-with-members", "--execute")
    member: Any = Consumer({**kafka.client_config, "group.id": "billing", "log_level": 0})
    member.subscribe(["orders-with-members"])
    try:
        eventually(lambda: (member.poll(0.1), member.assignment())[1])
        flags = ["--store", lost.house.store.as_uri(), "--bootstrap-server", kafka.bootstrap]
        done = run("restore", "groups", "orders-with-members", "--execute", *flags)
        assert done.returncode == 2
        assert "stop its consumers first" in done.stderr
    finally:
        member.close()


def end_of(kafka: KafkaSandbox, topic: str) -> int:
    consumer: Any = Consumer({**kafka.client_config, "group.id": "end", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    except KafkaException:
        return 0  # it is not created yet
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_process_killed_at_any_moment_and_run_again_leaves_no_record_twice(lost: Lost, kafka: KafkaSandbox) -> None:
    target = ["--bootstrap-server", kafka.bootstrap, "--max-rate", "10kB", "--execute"]
    command = [*TIERSTATE, "restore", "lost-orders", "--into", "orders-of-killed", *lost.bucket, *target]
    for records in (1, 300, 600, 900):
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: end_of(kafka, "orders-of-killed") > records)  # noqa: B023 - called at once
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = restore(lost, kafka, "lost-orders", "orders-of-killed", "--execute")
    assert sum(each["matched"] for each in done["partitions"]) > 0, "it was killed too late or too early"
    for number in (0, 1):
        assert rows_of(kafka, "orders-of-killed", number) == lost.committed("lost-orders", number)


def test_a_plan_says_what_is_created_and_costs_and_does_nothing(lost: Lost, kafka: KafkaSandbox) -> None:
    plan = restore(lost, kafka, "lost-times", "times-planned")
    assert plan["executed"] is False
    assert plan["create"]["partitions"] == 1
    assert plan["create"]["config"]["message.timestamp.type"] == "CreateTime"
    assert plan["create"]["config"]["retention.ms"] == "-1"
    assert any("the stored times would be lost" in note for note in plan["notes"])
    assert plan["gets"] > 0
    admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
    assert "times-planned" not in admin.list_topics(timeout=30).topics


def test_targets_that_cannot_keep_what_is_restored_are_refused(lost: Lost, kafka: KafkaSandbox) -> None:
    admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
    topics = [
        NewTopic("of-append-time", 2, 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("of-new-records", 2, 1, config={"message.timestamp.before.max.ms": "1000"}),
        NewTopic("of-one-partition", 1, 1),
        NewTopic("of-others", 2, 1),
    ]
    for each in admin.create_topics(topics).values():
        each.result(30)
    other: Any = Producer({**kafka.client_config, "log_level": 0})
    other.produce("of-others", b"mine", partition=0)
    other.flush(30)
    for topic, reason in {
        "of-append-time": "the stored times would be lost",
        "of-new-records": "raise its message.timestamp.before.max.ms",
        "of-one-partition": "too few partitions",
        "of-others": "the target is not empty",
    }.items():
        assert reason in restore(lost, kafka, "lost-orders", topic, "--execute", code=2)["message"]
    assert rows_of(kafka, "of-others", 1) == lost.committed("lost-orders", 1), "the other partition is restored"


def test_a_range_is_cut_within_batches_and_goes_on_later(lost: Lost, kafka: KafkaSandbox) -> None:
    for end in ("333", "777"):
        restore(lost, kafka, "lost-orders:0", "orders-in-parts", "--to", end, "--execute")
        assert rows_of(kafka, "orders-in-parts", 0) == [
            row for offset, row in lost.rows["lost-orders", 0] if offset < int(end)
        ]
    again = restore(lost, kafka, "lost-orders:0", "orders-in-parts", "--from", "5", "--to", "777", "--execute")
    assert again["partitions"][0]["sent_now"] == 0
    error = restore(lost, kafka, "lost-orders:1", "orders-in-parts", "--from", "5", "--to", "9", "--execute")
    assert error["partitions"][0]["records"] == 4


def test_a_target_that_has_other_records_than_the_map_says_is_a_difference(
    lost: Lost, kafka: KafkaSandbox, tmp_path: Path
) -> None:
    restore(lost, kafka, "lost-times", "times-changed", "--to", "40", "--execute")
    step = next(path for path in lost.house.store.rglob("00000002") if '"source_end":40' in path.read_text())
    step.write_text(step.read_text().replace("[[0,40,1,40]]", "[[0,39,2,39]]"))
    report = tmp_path / "report.json"
    error = restore(lost, kafka, "lost-times", "times-changed", "--to", "40", "--verify", str(report), code=1)
    assert error["error"] == "Difference"
    assert [each["outcome"] for each in json.loads(report.read_text())["ranges"]] == ["different"]

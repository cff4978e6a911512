"""DeleteRecords through the proxy: refused for tiered topics, passed to the broker for all others."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place
from kafka.errors import PolicyViolationError

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.running import RunningProxy, received, running
from tierstate.sandbox.artifacts import RELEASES, find_java, kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 400
ALL = -1


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("deletions"), "_tier-state-deletions")


@pytest.fixture(scope="module")
def tiered(cluster: TieredCluster) -> tuple[str, int]:
    """Return a topic, and the local log start offset on the broker."""
    topic, starts = cluster.tiered("orders", RECORDS)
    return topic, starts[0]


@pytest.fixture(scope="module")
def proxy(cluster: TieredCluster, tiered: tuple[str, int]) -> Iterator[RunningProxy]:
    with running(cluster) as made:
        yield made


def deleted(bootstrap: str, *places: tuple[str, int]) -> dict[str, int | KafkaError]:
    """Return the answer of Kafka's own client for each topic: its new log start offset, or an error."""
    partitions = [TopicPartition(topic, 0, before) for topic, before in places]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answers: dict[Any, Future[Any]] = admin.delete_records(partitions)
    replies: dict[str, int | KafkaError] = {}
    for place, answer in answers.items():
        try:
            replies[place.topic] = int(answer.result(30).low_watermark)
        except KafkaException as error:
            replies[place.topic] = error.args[0].code()
    return replies


@pytest.mark.parametrize("where", ["remote", "local", "all"])
def test_no_record_of_a_tiered_topic_is_deleted_or_reported_as_deleted(
    cluster: TieredCluster, proxy: RunningProxy, tiered: tuple[str, int], where: str
) -> None:
    topic, start = tiered
    before = {"remote": 10, "local": start + 4, "all": ALL}[where]
    assert deleted(proxy.bootstrap, (topic, before)) == {topic: KafkaError.POLICY_VIOLATION}
    assert cluster.local_start(topic) == start
    with proxy.consumer((topic, 0, 0)) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: offsets.get(0) == list(range(RECORDS)), lambda: received(consumer, offsets))
    reason = str([facts["reason"] for event, facts in proxy.said if event == "records are not deleted"][-1])
    assert f"tierstate delete-records {topic}:0" in reason


def test_one_request_for_several_topics_deletes_those_that_are_not_tiered(
    cluster: TieredCluster, proxy: RunningProxy, tiered: tuple[str, int]
) -> None:
    plain = "plain-beside-deletions"
    cluster.admin.create_topics([NewTopic(plain, 1, 1)])[plain].result(30)
    cluster.produce(plain, 0, 20)
    assert deleted(proxy.bootstrap, (plain, 7), (tiered[0], 300)) == {plain: 7, tiered[0]: KafkaError.POLICY_VIOLATION}
    assert (cluster.local_start(plain), cluster.local_start(tiered[0])) == (7, tiered[1])


def test_an_offset_that_the_broker_refuses_of_a_plain_topic_is_refused_by_the_broker(
    cluster: TieredCluster, proxy: RunningProxy
) -> None:
    plain = "plain-and-short"
    cluster.admin.create_topics([NewTopic(plain, 1, 1)])[plain].result(30)
    cluster.produce(plain, 0, 5)
    assert deleted(proxy.bootstrap, (plain, 99)) == {plain: KafkaError.OFFSET_OUT_OF_RANGE}


def test_kafka_pythons_admin_is_told_that_a_policy_forbids_it(
    cluster: TieredCluster, proxy: RunningProxy, tiered: tuple[str, int]
) -> None:
    topic, start = tiered
    with closing(KafkaAdminClient(bootstrap_servers=proxy.bootstrap)) as admin:
        with pytest.raises(PolicyViolationError):
            admin.delete_records({Place(topic, 0): start + 4}, timeout_ms=30_000)
    assert cluster.local_start(topic) == start


@pytest.mark.parametrize("release", RELEASES)
def test_kafkas_own_command_says_that_a_policy_forbids_it(
    cluster: TieredCluster, proxy: RunningProxy, tiered: tuple[str, int], release: str
) -> None:
    topic, start = tiered
    file = cluster.folder / "deletions.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": start + 4}]}))
    command = [find_java(), "-cp", f"{kafka_libs(release=release)}/*", "org.apache.kafka.tools.DeleteRecordsCommand"]
    command += ["--bootstrap-server", proxy.bootstrap, "--offset-json-file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "PolicyViolationException" in done.stdout + done.stderr
    assert cluster.local_start(topic) == start

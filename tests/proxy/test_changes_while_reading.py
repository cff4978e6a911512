"""A client reads through the proxy while the log's start and its partitions change; and append times."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.consumer.tiered_cluster import SEGMENT, TieredCluster, until
from tests.proxy.running import received, running
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka
RECORDS = 400


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("changes"), "_tier-state-changes")


def rows(bootstrap: str, topic: str) -> list[Any]:
    with closing(
        PlainConsumer({"bootstrap.servers": bootstrap}, Isolation.READ_UNCOMMITTED, SystemClock())
    ) as consumer:
        start, end = consumer.bounds(topic, 0)
        assert start == 0
        return [row for batch in consumer.records(topic, 0, Offset(start), end) for row in batch]


def at_times(bootstrap: str, topic: str, times: list[int]) -> list[int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})) as consumer:
        return [consumer.offsets_for_times([TopicPartition(topic, 0, time)], 20)[0].offset for time in times]


def test_a_topic_of_append_times_is_read_and_searched_as_before_the_trim(cluster: TieredCluster) -> None:
    append_times: Any = {"message.timestamp.type": "LogAppendTime"}
    topic = cluster.topic("append-times", 0, **append_times)
    for first in range(0, RECORDS, 100):
        cluster.produce(topic, first, first + 100)
    before = rows(cluster.kafka.bootstrap, topic)
    times = sorted({row.timestamp + beside for row in before for beside in (-1, 0, 1)})
    offsets = at_times(cluster.kafka.bootstrap, topic, times)
    assert cluster.copy_and_trim(topic)[0] > RECORDS // 2
    with running(cluster) as proxy:
        assert rows(proxy.bootstrap, topic) == before
        assert at_times(proxy.bootstrap, topic, times) == offsets
    assert min(row.timestamp for row in before) > 1_700_000_000_000, "these are the producer's times"


def test_a_client_goes_on_at_the_new_start_when_records_expire_under_it(cluster: TieredCluster) -> None:
    topic = cluster.tiered("expiring", RECORDS)[0]
    more = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 1, "queued_min_messages": 1}
    with running(cluster) as proxy, proxy.consumer((topic, 0, 0), **more) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: offsets, lambda: received(consumer, offsets))
        start = 4 * SEGMENT
        cluster.run("delete-records", f"{topic}:0", "--before", str(start), "--execute", "--no-wait")
        cluster.run("agent", "--once")
        until(lambda: offsets[0][-1] == RECORDS - 1, lambda: received(consumer, offsets))
    seen = offsets[0]
    assert seen == sorted(set(seen)), "read twice, or out of order"
    assert set(range(start, RECORDS)) <= set(seen)
    first_part = [offset for offset in seen if offset < start]
    assert first_part == list(range(len(first_part))), "records were skipped before the new start"


def test_a_group_reads_a_partition_that_was_added_while_it_reads(cluster: TieredCluster) -> None:
    topic = cluster.tiered("growing", RECORDS)[0]
    with running(cluster) as proxy:
        config = {
            "bootstrap.servers": proxy.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "enable.auto.commit": False,
        }
        with closing(Consumer(config)) as consumer:
            consumer.subscribe([topic])
            offsets: dict[int, list[int]] = {}
            until(lambda: offsets, lambda: received(consumer, offsets))
            cluster.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
            until(lambda: len(cluster.admin.list_topics(topic, 10).topics[topic].partitions) == 2, lambda: None)
            cluster.produce(topic, RECORDS, 2 * RECORDS, partitions=2)
            cluster.run("agent", "--once")
            assert cluster.local_start(topic, 1) > SEGMENT
            until(lambda: len(offsets.get(1, ())) == RECORDS, lambda: received(consumer, offsets, []))
            assert offsets[1] == list(range(RECORDS))
            assert sorted(set(offsets[0])) == list(range(len(set(offsets[0]))))

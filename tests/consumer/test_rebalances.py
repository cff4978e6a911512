"""Groups that rebalance while the remote tier is read: no record is lost, and none is handed out twice."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.consumer.tiered_cluster import TieredCluster, polled, until
from tierstate.consumer.tiered_consumer import TieredConsumer

pytestmark = pytest.mark.kafka
RECORDS, PARTITIONS = 400, 4
PROTOCOLS = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "kip-848": {"group.protocol": "consumer"},
}
Seen = Counter[tuple[int, int]]


def config_of(cluster: TieredCluster, topic: str, protocol: str) -> dict[str, Any]:
    config = cluster.config(topic, auto_offset_reset="earliest", enable_auto_commit=True, **PROTOCOLS[protocol])
    return config if protocol == "kip-848" else {**config, "heartbeat.interval.ms": 300}


def take(consumer: TieredConsumer, seen: Seen, batch: int) -> None:
    for message in consumer.consume(batch, 0.2):
        assert message.error() is None, message.error()
        seen[message.partition(), message.offset()] += 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_comes_and_one_that_goes_neither_lose_nor_repeat(cluster: TieredCluster, protocol: str) -> None:
    topic, starts = cluster.tiered(protocol, RECORDS, PARTITIONS)
    config, seen = config_of(cluster, topic, protocol), Seen()
    shared: dict[str, int] = {}
    with TieredConsumer(config) as first:
        first.subscribe([topic])
        until(lambda: len(seen) >= 60, lambda: take(first, seen, 7))
        with TieredConsumer(config) as second:
            second.subscribe([topic])

            def both() -> None:
                take(first, seen, 5)
                take(second, seen, 5)
                shared.update(first=len(first.assignment()), second=len(second.assignment()))

            until(lambda: shared == {"first": 2, "second": 2}, both)
            assert all(offset < starts[partition] for partition, offset in seen), "the remote tier was read to its end"
            until(lambda: len(seen) >= 900, both)
        until(lambda: len(seen) == RECORDS * PARTITIONS, lambda: take(first, seen, 100))
    assert seen == Counter({(number, offset): 1 for number in range(PARTITIONS) for offset in range(RECORDS)})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_handed_out_just_before_a_revocation_are_committed(cluster: TieredCluster, protocol: str) -> None:
    topic, _ = cluster.tiered(f"{protocol}-taken")
    config = config_of(cluster, topic, protocol)
    with TieredConsumer(config) as consumer:
        consumer.subscribe([topic])
        messages = polled(consumer, 1)
        consumer.unsubscribe()
        until(lambda: not consumer.assignment(), lambda: messages.extend(consumer.consume(2, 0)))
        assert consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == len(messages)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_callbacks_of_an_application_decide_where_a_partition_begins(cluster: TieredCluster, protocol: str) -> None:
    topic, (start, *_) = cluster.tiered(f"{protocol}-callbacks", RECORDS, 2)
    calls: list[str] = []

    def assigned(consumer: TieredConsumer, partitions: list[TopicPartition]) -> None:
        calls.append("assigned")
        for place in partitions:
            place.offset = start - 3 if place.partition else 11
        (consumer.assign if protocol == "eager" else consumer.incremental_assign)(partitions)

    def revoked(consumer: TieredConsumer, partitions: list[TopicPartition]) -> None:
        calls.append("revoked")
        assert {place.offset for place in consumer.position(partitions)} != {11, start - 3}

    with TieredConsumer(config_of(cluster, topic, protocol)) as consumer:
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        messages = polled(consumer, 2 * RECORDS - 11 - start + 3, 10)
    assert sorted((message.partition(), message.offset()) for message in messages) == [
        *((0, offset) for offset in range(11, RECORDS)),
        *((1, offset) for offset in range(start - 3, RECORDS)),
    ]
    assert calls == ["assigned", "revoked"]


def test_a_read_in_flight_for_a_revoked_partition_is_not_handed_out(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("taken-away", RECORDS, 2)
    with TieredConsumer(cluster.config(topic)) as consumer:
        for _ in range(20):
            consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
            consumer.poll(0.02)
            consumer.assign([TopicPartition(topic, 1, 5)])
            message = polled(consumer, 1)[0]
            assert (message.partition(), message.offset()) == (1, 5)


def test_a_close_by_another_thread_in_the_middle_of_the_remote_tier_commits_what_was_handed_out(
    cluster: TieredCluster,
) -> None:
    topic, (start,) = cluster.tiered("closed-in-the-middle")
    config = cluster.config(topic, auto_offset_reset="earliest", enable_auto_commit=True)
    consumer = TieredConsumer(config)
    consumer.subscribe([topic])
    messages, in_the_middle = polled(consumer, 5), threading.Event()
    closed: list[str] = []

    def read() -> None:
        try:
            while True:
                messages.extend(consumer.consume(1, 1))
                in_the_middle.set()
        except RuntimeError as error:
            closed.append(str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert in_the_middle.wait(30)
    consumer.close()
    reader.join(30)
    assert closed == ["Consumer closed"]
    assert [message.offset() for message in messages] == list(range(len(messages)))
    assert 5 < len(messages) < start, "it was at the broker already"
    with Consumer({**cluster.kafka.client_config, "group.id": topic}) as plain:
        assert plain.committed([TopicPartition(topic, 0)], 10)[0].offset == len(messages)


def test_a_close_by_another_thread_ends_a_poll(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("closed")
    consumer = TieredConsumer(cluster.config(topic, auto_offset_reset="earliest"))
    consumer.subscribe([topic])
    polled(consumer, RECORDS, 100)
    ended: list[object] = []

    def poll() -> None:
        try:
            ended.append(consumer.poll(-1))
        except RuntimeError as closed:
            ended.append(closed)

    threads = [threading.Thread(target=target, daemon=True) for target in (poll, consumer.close)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert ended
    assert ended[0] is None or str(ended[0]) == "Consumer closed"
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)

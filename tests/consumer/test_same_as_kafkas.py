"""On a topic that is wholly on the broker, a `TieredConsumer` does what Kafka's consumer does: one test for both."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.consumer.tiered_cluster import TieredCluster, offsets, polled, until
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.consumer.tiered_message import TieredMessage

RECORDS = 200
PAGE = (Path(__file__).parents[2] / "docs" / "consumer.md").read_text()
METHODS = {name for name in dir(Consumer) if not name.startswith("_")}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def topic(cluster: TieredCluster) -> str:
    return cluster.topic("local", RECORDS, 2)


@pytest.fixture(params=[Consumer, TieredConsumer])
def opened(request: pytest.FixtureRequest, cluster: TieredCluster) -> Iterator[Open]:
    """Yield a function that opens a consumer of either class in a group of its own; close each one at the end."""
    consumers: list[Any] = []

    def open_one(group: str, **more: Any) -> Any:
        config = cluster.config(f"{group}-{request.param.__name__}", auto_offset_reset="earliest", **more)
        if request.param is Consumer:
            config = {key: value for key, value in config.items() if not key.startswith("tierstate.")}
        consumers.append(request.param(config))
        return consumers[-1]

    yield open_one
    for consumer in consumers:
        consumer.close()


def test_the_page_has_every_method_of_kafkas_consumer() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index("## Methods") :], re.MULTILINE)) == METHODS | {"tier_of"}
    assert len(METHODS) == 24


@pytest.mark.parametrize("name", sorted({name for name in dir(Message) if not name.startswith("_")}))
def test_a_message_of_the_remote_tier_has_every_method_of_kafkas(name: str) -> None:
    assert callable(getattr(TieredMessage, name))


@pytest.mark.parametrize("name", sorted(METHODS & vars(TieredConsumer).keys()))
def test_arguments_have_the_names_of_kafkas_consumer(name: str) -> None:
    signature = re.search(rf"^\.\. py:function:: {name}\((.*)\)", getattr(Consumer, name).__doc__ or "", re.MULTILINE)
    expected = re.findall(r"(\w+)(?:=|,|\]|$)", re.sub(r"=[^,\]]+", "=", signature[1])) if signature else []
    assert [word for word in inspect.signature(getattr(TieredConsumer, name)).parameters if word != "self"] == expected


@pytest.mark.kafka
def test_assign_reads_from_the_offsets_given(opened: Open, topic: str) -> None:
    consumer = opened("assign")
    consumer.assign([TopicPartition(topic, 0, 190), TopicPartition(topic, 1, OFFSET_BEGINNING)])
    assert sorted((place.topic, place.partition) for place in consumer.assignment()) == [(topic, 0), (topic, 1)]
    messages = polled(consumer, RECORDS + 10, 50)
    assert offsets([message for message in messages if message.partition() == 0]) == list(range(190, RECORDS))
    assert offsets([message for message in messages if message.partition() == 1]) == list(range(RECORDS))
    consumer.unassign()
    assert consumer.assignment() == []


@pytest.mark.kafka
def test_incremental_changes_leave_the_rest_alone(opened: Open, topic: str) -> None:
    consumer = opened("incremental")
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    assert offsets(polled(consumer, 3)) == [0, 1, 2]
    with pytest.raises(KafkaException, match="already part of"):
        consumer.incremental_assign([TopicPartition(topic, 0, 50)])
    consumer.incremental_assign([TopicPartition(topic, 1, 100)])
    consumer.incremental_unassign([TopicPartition(topic, 1)])
    assert offsets(polled(consumer, 2)) == [3, 4]
    with pytest.raises(KafkaException, match="can't be unassigned"):
        consumer.incremental_unassign([TopicPartition(topic, 1)])


@pytest.mark.kafka
def test_a_record_has_the_same_parts(opened: Open, topic: str) -> None:
    consumer = opened("parts")
    consumer.assign([TopicPartition(topic, 1, 17)])
    (record,) = polled(consumer, 1)
    assert (record.topic(), record.partition(), record.offset()) == (topic, 1, 17)
    assert (record.key(), record.value()[:5]) == (b"17", b"1/17 ")
    assert (record.headers(), record.timestamp()) == ([("n", b"17")], (1, 1_000_017))
    assert (record.error(), record.latency(), len(record)) == (None, None, 200)


@pytest.mark.kafka
def test_a_group_begins_where_it_committed(opened: Open, topic: str) -> None:
    consumer = opened("group")
    calls: list[str] = []
    consumer.subscribe(
        [topic],
        on_assign=lambda same, parts: calls.append(f"assigned {same is consumer} {len(parts)}"),
        on_revoke=lambda same, parts: calls.append(f"revoked {same is consumer} {len(parts)}"),
    )
    assert len(polled(consumer, 2 * RECORDS, 100)) == 2 * RECORDS
    assert consumer.memberid()
    done = consumer.commit(offsets=[TopicPartition(topic, 0, 120), TopicPartition(topic, 1, 130)], asynchronous=False)
    assert [(place.partition, place.offset, place.error) for place in done] == [(0, 120, None), (1, 130, None)]
    consumer.close()
    assert calls == ["assigned True 2", "revoked True 2"]
    again = opened("group")
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert [place.offset for place in again.committed(partitions, timeout=30)] == [120, 130]
    again.subscribe([topic])
    messages = polled(again, 150, 100)
    assert sorted(message.offset() for message in messages) == sorted([*range(120, 200), *range(130, 200)])
    again.unsubscribe()
    until(lambda: not again.assignment(), lambda: again.poll(0.1))


@pytest.mark.kafka
def test_commits_are_of_messages_of_offsets_or_of_what_was_handed_out(opened: Open, topic: str) -> None:
    consumer = opened("commits")
    consumer.assign([TopicPartition(topic, 0, 10)])
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.args[0].code() == KafkaError._NO_OFFSET
    messages = polled(consumer, 5)
    assert consumer.commit(asynchronous=False)[0].offset == 15
    assert consumer.commit(message=messages[1], asynchronous=False)[0].offset == 12
    assert consumer.commit(message=messages[2]) is None
    with pytest.raises(ValueError, match="mutually exclusive"):
        consumer.commit(message=messages[1], offsets=[])


@pytest.mark.kafka
def test_the_application_stores_offsets_only_if_it_is_set_to(opened: Open, topic: str) -> None:
    by_itself = opened("stores-by-itself")
    by_itself.assign([TopicPartition(topic, 0, 10)])
    with pytest.raises(KafkaException) as refused:
        by_itself.store_offsets(offsets=[TopicPartition(topic, 0, 3)])
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    consumer = opened("stores", enable_auto_offset_store=False)
    consumer.assign([TopicPartition(topic, 0, 10)])
    messages = polled(consumer, 4)
    consumer.store_offsets(message=messages[2])
    assert consumer.commit(asynchronous=False)[0].offset == 13
    with pytest.raises(ValueError, match="either message or offsets"):
        consumer.store_offsets()
    with pytest.raises(KafkaException) as unknown:
        consumer.store_offsets(offsets=[TopicPartition("nobodys", 0, 3)])
    assert unknown.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.kafka
def test_seek_pause_resume_and_position(opened: Open, topic: str) -> None:
    consumer = opened("seeks")
    place = [TopicPartition(topic, 0)]
    consumer.assign([TopicPartition(topic, 0, 10)])
    polled(consumer, 2)
    assert [p.offset for p in consumer.position(place)] == [12]
    consumer.pause(place)
    assert consumer.poll(0.5) is None
    consumer.resume(place)
    assert polled(consumer, 1)[0].offset() == 12
    consumer.seek(TopicPartition(topic, 0, 100))
    assert [p.offset for p in consumer.position(place)] == [OFFSET_INVALID]
    assert offsets(polled(consumer, 2)) == [100, 101]
    consumer.pause([TopicPartition("nobodys", 0)])
    consumer.resume([TopicPartition("nobodys", 0)])
    assert consumer.position([TopicPartition("nobodys", 0)])[0].offset == OFFSET_INVALID
    with pytest.raises(KafkaException) as unknown:
        consumer.seek(TopicPartition("never-named", 0, 3))
    assert unknown.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.kafka
def test_consume_waits_for_its_number_and_no_longer_than_its_time(opened: Open, topic: str) -> None:
    consumer = opened("consume")
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(RECORDS, 30)) == RECORDS
    assert consumer.consume(5, 0.2) == []
    assert consumer.consume(0, 1) == []
    assert consumer.poll(0) is None
    assert consumer.poll(timeout=0.1) is None
    for wrong in (-1, 1_000_001):
        with pytest.raises(ValueError, match="num_messages must be between"):
            consumer.consume(wrong)


@pytest.mark.kafka
def test_watermarks_and_times(opened: Open, topic: str) -> None:
    consumer = opened("watermarks")
    place = TopicPartition(topic, 0, 0)
    assert consumer.get_watermark_offsets(place, timeout=30) == (0, RECORDS)
    times = [TopicPartition(topic, number, 1_000_000 + number * 7) for number in (0, 1)]
    assert [place.offset for place in consumer.offsets_for_times(times, timeout=30)] == [0, 7]
    late = consumer.offsets_for_times([TopicPartition(topic, 0, 2**50)], timeout=30)
    assert [place.offset for place in late] == [OFFSET_END]
    consumer.assign([place])
    polled(consumer, 1)
    assert consumer.get_watermark_offsets(place, cached=True)[1] == RECORDS
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("nobodys", 0), timeout=10)


@pytest.mark.kafka
def test_metadata_of_cluster_and_group_have_the_same_form(opened: Open, topic: str, cluster: TieredCluster) -> None:
    consumer = opened("told")
    assert consumer.cluster_id(timeout=30) == cluster.kafka.cluster_id
    assert set(consumer.list_topics(topic, timeout=30).topics[topic].partitions) == {0, 1}
    assert consumer.consumer_group_metadata() is not None
    consumer.set_sasl_credentials("user", "password")


@pytest.mark.kafka
def test_the_end_of_a_partition_is_an_event_where_it_is_asked_for(opened: Open, topic: str) -> None:
    consumer = opened("end", enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, RECORDS - 1)])
    assert polled(consumer, 1)[0].offset() == RECORDS - 1
    end = consumer.poll(10)
    assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, RECORDS)


@pytest.mark.kafka
def test_a_closed_consumer_says_so(opened: Open, topic: str) -> None:
    consumer = opened("closed")
    with consumer as same:
        assert same is consumer
        consumer.subscribe([topic])
        polled(consumer, 1)
    consumer.close()
    place = [TopicPartition(topic, 0, 0)]
    uses: list[Callable[[], object]] = [
        lambda: consumer.poll(0),
        lambda: consumer.consume(1, 0),
        lambda: consumer.assignment(),
        lambda: consumer.assign(place),
        lambda: consumer.subscribe([topic]),
        lambda: consumer.unsubscribe(),
        lambda: consumer.unassign(),
        lambda: consumer.pause(place),
        lambda: consumer.resume(place),
        lambda: consumer.seek(place[0]),
        lambda: consumer.position(place),
        lambda: consumer.committed(place),
        lambda: consumer.commit(),
        lambda: consumer.memberid(),
        lambda: consumer.offsets_for_times(place),
        lambda: consumer.get_watermark_offsets(place[0]),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="Consumer closed"):
            use()

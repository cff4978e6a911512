"""A record whose time does not fit into microseconds is read as any other, from both tiers, by every reader."""

from __future__ import annotations

import json
import urllib.request
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from tests.scenarios.house import House, eventually, opened_house
from tierstate.consumer.connect import read_records
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS, LATE = 1_500, 2**62
PLACES = (100, 1_490)
"""One offset in the remote tier, and one at the broker."""


def test_every_reader_goes_on_behind_a_time_that_microseconds_do_not_hold(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with opened_house(kafka, tmp_path / "house", "late-times") as house:
        topic = house.create("orders", internal_segment_bytes="40000", message_timestamp_after_max_ms=str(2**63 - 1))
        produce(kafka, topic)
        with house.agent():
            eventually(lambda: len(house.logs(topic)) == 1)
        times = [LATE if number in PLACES else 1_000_000 + number for number in range(RECORDS)]
        lines = house.lines("consume", f"{topic}:0")
        assert [line["timestamp"] for line in lines] == times
        assert {line["tier"] for line in lines if line["timestamp"] == LATE} == {"remote", "local"}
        assert house.json("digest", f"{topic}:0", "--via", "reader")["records"] == RECORDS
        assert by_python(house, kafka, topic) == times
        assert by_consumer(house, kafka, topic) == times
        assert by_http(house, topic) == times


def produce(kafka: KafkaSandbox, topic: str) -> None:
    producer = Producer({**kafka.client_config, "batch.num.messages": 20, "enable.idempotence": True})
    for number in range(RECORDS):
        time = LATE if number in PLACES else 1_000_000 + number
        producer.produce(topic, bytes(200), partition=0, timestamp=time)
    assert producer.flush(30) == 0


def milliseconds(batch: pa.RecordBatch) -> list[int]:
    times: list[int] = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return times


def by_python(house: House, kafka: KafkaSandbox, topic: str) -> list[int]:
    store, more = house.store.as_uri(), {"tier_state.topic": house.tier_topic}
    batches = read_records(kafka.client_config, store, topic, 0, 0, RECORDS, settings=more)
    return [time for batch in batches for time in milliseconds(batch)]


def by_consumer(house: House, kafka: KafkaSandbox, topic: str) -> list[int]:
    config = {
        **kafka.client_config,
        "group.id": "late-times",
        "tierstate.store.url": house.store.as_uri(),
        "tierstate.tier_state.topic": house.tier_topic,
        "enable.auto.commit": False,
    }
    times: list[int] = []
    with closing(TieredConsumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(times) < RECORDS:
            for message in consumer.consume(500, 5.0):
                assert message.error() is None, message.error()
                times.append(message.timestamp()[1])
    return times


def by_http(house: House, topic: str) -> list[int]:
    """Read JSON lines by HTTP; their times equal those of Arrow."""
    running, url = house.gateway()
    times: dict[str, list[int]] = {"json": [], "arrow": []}
    for name, accept in (("json", "application/x-ndjson"), ("arrow", "application/vnd.apache.arrow.stream")):
        at = 0
        while at < RECORDS:
            where = f"{url}/v1/topics/{topic}/partitions/0/records?offset={at}"
            with urllib.request.urlopen(urllib.request.Request(where, headers={"Accept": accept})) as answer:
                body = answer.read()
            if name == "json":
                times[name] += [json.loads(line)["timestamp"] for line in body.splitlines()]
            else:
                with pa.ipc.open_stream(body) as stream:
                    times[name] += [time for batch in stream for time in milliseconds(batch)]
            assert len(times[name]) > at
            at = len(times[name])
    running.stop()
    assert times["json"] == times["arrow"]
    return times["json"]

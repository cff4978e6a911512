"""One flipped bit in one object: its partition stops there and reports it, and other partitions lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.consumer.tiered_cluster import SEGMENT, TieredCluster, offsets, polled, until
from tests.sampled import sampled
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.log.batch import BatchHeader, iter_batches
from tierstate.state.errors import CorruptData

pytestmark = pytest.mark.kafka
RECORDS = 400
BYTE_OF_BATCH = {"base offset": 3, "length": 11, "magic": 16, "records": 200}
"""Bytes of a batch that are flipped: in its header, which no CRC covers, or in its records."""


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierstate.consumer.hand_over.AGAIN_S", 0.5)


def tiered(cluster: TieredCluster, name: str, records: int, partitions: int, compression: str = "none") -> str:
    """Create a topic whose first segments are in the object store only, with this compression. Return its name."""
    topic = cluster.topic(name, records, partitions)
    cluster.run("agent", "--once", "--set", f"format.compression={compression}")
    assert all(cluster.local_start(topic, number) > 2 * SEGMENT for number in range(partitions))
    return topic


def log_object(cluster: TieredCluster, topic: str, partition: int) -> Path:
    """Return the log object of the partition's second segment."""
    logs = sorted((cluster.folder / "store").glob(f"{topic}-*/{partition}/*.log"))
    assert len(logs) > 2
    return logs[1]


def damage(path: Path, byte: int = BYTE_OF_BATCH["records"], batch: int = 1) -> int:
    """Flip a bit of one batch. Return the batch's first offset."""
    data = bytearray(path.read_bytes())
    headers: list[BatchHeader] = list(iter_batches(bytes(data), source=str(path)))
    data[headers[batch].position + byte] ^= 64
    path.write_bytes(data)
    return int(headers[batch].base_offset)


def received(consumer: TieredConsumer, batch: int) -> Iterator[Any]:
    if batch > 1:
        yield from consumer.consume(batch, 0.5)
    elif (message := consumer.poll(0.2)) is not None:
        yield message


@pytest.mark.parametrize("byte", BYTE_OF_BATCH)
@pytest.mark.parametrize("batch", sampled([1000, 37, 1], 1))
def test_a_damaged_partition_stops_at_the_bad_record_and_others_lose_nothing(
    cluster: TieredCluster, byte: str, batch: int
) -> None:
    topic = tiered(cluster, f"damaged-{byte.replace(' ', '-')}-{batch}", RECORDS, 2)
    damaged = log_object(cluster, topic, 1)
    whole = damaged.read_bytes()
    bad = damage(damaged, BYTE_OF_BATCH[byte])
    records: dict[int, list[int]] = {0: [], 1: []}
    errors: list[Any] = []

    def step() -> None:
        for message in received(consumer, batch):
            if message.error() is None:
                records[message.partition()].append(message.offset())
            else:
                errors.append(message)

    with TieredConsumer(cluster.config(topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        until(lambda: len(records[0]) == RECORDS and len(records[1]) == bad and len(errors) > 2, step)
        assert records == {0: [*range(RECORDS)], 1: [*range(bad)]}
        assert {(error.partition(), error.error().code()) for error in errors} == {(1, KafkaError._BAD_MSG)}
        assert errors[-1].offset() == bad
        assert isinstance(errors[-1].cause(), CorruptData)
        committed = consumer.commit(asynchronous=False)
        assert {place.partition: place.offset for place in committed} == {0: RECORDS, 1: bad}
        damaged.write_bytes(whole)
        until(lambda: len(records[1]) == RECORDS, step)
    assert records[1] == [*range(RECORDS)]


def test_a_chunk_that_cannot_be_opened_is_where_its_partition_stops(cluster: TieredCluster) -> None:
    topic = tiered(cluster, "chunk", RECORDS, 2, "zstd")
    damaged = log_object(cluster, topic, 1)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    bad = int(damaged.name[:20])
    records: dict[int, list[int]] = {0: [], 1: []}
    errors: list[Any] = []

    def step() -> None:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                records[message.partition()].append(message.offset())
            else:
                errors.append(message)

    with TieredConsumer(cluster.config(topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        until(lambda: len(records[0]) == RECORDS and len(errors) > 2, step)
        assert {error.offset() for error in errors} == {bad}
        assert records[1] == [*range(bad)]
        damaged.write_bytes(whole)
        until(lambda: len(records[1]) == RECORDS, step)
    assert records == {0: [*range(RECORDS)], 1: [*range(RECORDS)]}


@pytest.mark.parametrize("batch", [1, 2])
def test_each_of_three_errors_at_once_reaches_the_client(cluster: TieredCluster, batch: int) -> None:
    topic = tiered(cluster, f"three-errors-{batch}", RECORDS, 3)
    failed: list[int] = []

    def step() -> None:
        messages = [*received(consumer, batch)]
        assert len(messages) <= batch
        failed.extend(message.partition() for message in messages)

    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, number, RECORDS + 1000) for number in range(3)])
        consumer.pause(consumer.assignment())
        consumer.poll(0)
        both = consumer._both
        assert both is not None
        until(lambda: not any(part.looking for part in both._parts.values()), lambda: consumer.poll(0.1))
        consumer.resume(consumer.assignment())
        until(lambda: sorted(failed) == [0, 1, 2], step)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_records_that_were_taken_before_a_callback_raised_are_handed_out_before_its_error(
    cluster: TieredCluster, kind: type[BaseException]
) -> None:
    topic = tiered(cluster, f"callback-{kind.__name__}", RECORDS, 1)
    place = [TopicPartition(topic, 0)]
    received_offsets: list[int] = []
    raised: list[BaseException] = []
    caught: list[BaseException] = []

    def tell(statistics: str) -> None:
        if not raised and consumer.position(place)[0].offset > 0:
            raised.append(kind("of the application"))
            raise raised[0]

    def step() -> None:
        try:
            received_offsets.extend(offsets(consumer.consume(10 * RECORDS, 5)))
        except kind as error:
            caught.append(error)

    config = cluster.config(topic, tiered_mode="tiered_storage_only", statistics_interval_ms=50)
    with TieredConsumer({**config, "stats_cb": tell}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        until(lambda: caught, step)
        assert caught == raised
        assert received_offsets == [*range(consumer.position(place)[0].offset)]


APPLICATION = """
import json, sys
from tierstate import TieredConsumer

config, topic, handed_out = json.loads(sys.argv[1]), sys.argv[2], {"0": [], "1": []}
consumer, failed = TieredConsumer(config), 0
consumer.subscribe([topic])
try:
    while not failed or len(handed_out["0"]) < int(sys.argv[3]):
        for message in consumer.consume(5000, timeout=1):
            if message.error() is None:
                handed_out[str(message.partition())].append(message.offset())
            else:
                failed += 1
finally:
    consumer.close()
    print(json.dumps(handed_out))
"""


def test_a_group_that_is_started_again_and_again_over_a_damaged_object_loses_nothing(cluster: TieredCluster) -> None:
    topic = tiered(cluster, "restarted", RECORDS, 2)
    damaged = log_object(cluster, topic, 1)
    whole = damaged.read_bytes()
    bad = damage(damaged)
    config = cluster.config(topic, auto_offset_reset="earliest", enable_auto_commit=True)

    def handed_out(healthy: int) -> dict[str, list[int]]:
        command = [sys.executable, "-c", APPLICATION, json.dumps(config), topic, str(healthy)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def committed() -> list[int]:
        with Consumer({**cluster.kafka.client_config, "group.id": topic}) as plain:
            return [place.offset for place in plain.committed([TopicPartition(topic, n) for n in range(2)], 10)]

    assert handed_out(RECORDS) == {"0": [*range(RECORDS)], "1": [*range(bad)]}
    assert committed() == [RECORDS, bad]
    for _ in range(2):
        assert handed_out(0) == {"0": [], "1": []}
        assert committed() == [RECORDS, bad]
    damaged.write_bytes(whole)
    with TieredConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, RECORDS - bad)) == [*range(bad, RECORDS)]

"""Bit rot in the only file of a segment without a checksum: a broker shows aborted records, a copy does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.scenarios.house import House, eventually
from tierstate.log.transaction_index import ENTRY
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

TRANSACTIONS = 60
EACH = 40
ABORTED, COMMITTED = "aborted", "committed"
PRODUCER_ID_AT = 9
"""The last byte of the producer id, in the entry of a transaction index."""


@pytest.fixture
def house(kafka_own: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    made = House(kafka_own, tmp_path / "house", "bit-rot")
    made.run("init")
    yield made
    made.close()


def write_transactions(house: House, topic: str) -> None:
    """Write transactions, every third of them aborted."""
    config = {"bootstrap.servers": house.kafka.bootstrap, "log_level": 0, "transactional.id": topic}
    producer: Any = Producer(config)
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        fate = ABORTED if number % 3 == 1 else COMMITTED
        for record in range(EACH):
            producer.produce(topic, key=fate, value=b"%0120d" % (number * EACH + record), partition=0)
        if fate == ABORTED:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def kafkas_consumer(house: House, topic: str, records: int) -> list[str]:
    """Return the keys of so many records that Kafka's own client gets under read_committed."""
    config = {"bootstrap.servers": house.kafka.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer: Any = Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    keys: list[str] = []
    try:
        while len(keys) < records:
            (message,) = consumer.consume(1, 30)
            assert message.error() is None
            keys.append(message.key().decode())
    finally:
        consumer.close()
    return keys


@pytest.mark.slow
def test_a_flipped_bit_in_a_transaction_index_is_told_and_not_copied(house: House) -> None:
    topic = house.create("orders", local_retention_bytes="-2")
    write_transactions(house, topic)
    committed = EACH * TRANSACTIONS * 2 // 3
    eventually(lambda: len(house.lines("consume", topic)) == committed)
    folder = house.log_dir / f"{topic}-0"
    house.kafka.stop(0)
    index = next(file for file in sorted(folder.glob("*.txnindex")) if file.stat().st_size >= 2 * ENTRY.size)
    assert index.with_suffix(".log") != house.logs(topic)[-1], "not of a rolled segment"
    good = index.read_bytes()
    index.write_bytes(good[:PRODUCER_ID_AT] + bytes([good[PRODUCER_ID_AT] ^ 4]) + good[PRODUCER_ID_AT + 1 :])
    house.kafka.start(0)

    assert ABORTED in kafkas_consumer(house, topic, committed), "Kafka believes its index: or nothing is shown here"
    refused = house.run("consume", topic, "--tier", "local", code=4).stderr
    assert "records of an aborted transaction would be shown" in refused
    assert topic in refused
    dumped = house.run("dump-log", str(folder), "--isolation", "read_committed", "--json", code=4)
    assert str(index) in dumped.stderr
    assert ABORTED not in dumped.stdout

    with house.agent() as agent:
        event = agent.says("transaction index rebuilt")
        assert event["file"] == str(index)
        rolled = len(house.logs(topic)) - 1
        eventually(lambda: len(house.json("segments", f"{topic}:0")) == rolled)
        counted = f'tierstate_transaction_indexes_rebuilt_total{{topic="{topic}"}} 1.0'
        assert counted in agent.metrics()
    read = house.lines("consume", topic, "--tier", "remote")
    assert {each["key"] for each in read} == {COMMITTED}
    copied = [int(each["value"]) // EACH for each in read]
    assert copied == [number for number in range(TRANSACTIONS) for _ in range(EACH) if number % 3 != 1][: len(copied)]
    assert house.json("verify", topic, "--level", "3")["findings"] == []

    house.kafka.stop(0)
    index.unlink()
    index.with_suffix(".index").unlink()
    house.kafka.start(0)
    assert index.read_bytes() == good, "the broker did not make it anew"
    assert {each["key"] for each in house.lines("consume", topic, "--tier", "local")} == {COMMITTED}

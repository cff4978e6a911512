"""A broker that dies right after DeleteRecords begins its log again below its leader-epoch checkpoint (Kafka writes
log starts to its disk once a minute): the records that it serves again are copied, and so is all behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.leaders import in_sync
from tests.scenarios.house import House, eventually
from tests.tail.test_leaders_that_move import FetchHouse, both_digests, copied_to, findings
from tierstate.log.partition import open_partition
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
HOUSES: dict[str, type[House]] = {"disk": House, "fetch": FetchHouse}


@pytest.fixture(params=HOUSES)
def house(request: pytest.FixtureRequest, kafka_own: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    opened = HOUSES[request.param](kafka_own, tmp_path, f"h{abs(hash(request.node.name)) % 10_000}")
    try:
        opened.run("init")
        yield opened
    finally:
        opened.close()


def starts_again(house: House, topic: str) -> None:
    house.kafka.start(0)
    eventually(lambda: in_sync(house.kafka, topic) == 1)


def aborted_over(house: House, topic: str, first: int) -> None:
    """Append records with a transaction among them that is aborted behind all of them."""
    config = {**house.kafka.client_config, "transactional.id": topic, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(50):
        producer.produce(topic, b"aborted", b"key", 0)
    assert producer.flush(60) == 0
    house.append(topic, 1500, first=first)
    producer.abort_transaction(60)


def deletes_and_dies(house: House, topic: str, before: int) -> None:
    """Delete records, and kill the broker before it has written the log start to its file. Start it again."""
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    place = TopicPartition(topic, 0, before)
    admin.delete_records([place])[place].result(30)
    checkpoint = house.log_dir / f"{topic}-0" / "leader-epoch-checkpoint"
    eventually(lambda: f" {before}\n" in checkpoint.read_text())
    house.kafka.kill(0)
    (house.log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
    starts_again(house, topic)


def read_by_kafka(house: House, topic: str) -> list[int]:
    """Return the offsets that Kafka's own consumer reads from the broker, read_committed."""
    config = {**house.kafka.client_config, "group.id": topic, "enable.partition.eof": True, "log_level": 0}
    consumer: Any = Consumer({**config, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        offsets.append(message.offset())
    consumer.close()
    return offsets


@pytest.mark.parametrize("copied", [False, True], ids=["nothing copied", "a part copied"])
def test_records_that_a_broker_serves_again_below_its_epochs_are_copied(house: House, copied: bool) -> None:
    topic, kept = house.create("again"), ("--set", "trim.enabled=false")
    house.append(topic, 1500)
    if copied:
        house.run("agent", "--once", *kept)
        assert copied_to(house, topic) > 0
    for number in (1, 2):
        house.kafka.stop(0)
        starts_again(house, topic)
        aborted_over(house, topic, 1500 * number)
    folder = house.log_dir / f"{topic}-0"
    before = open_partition(folder).lineage.entries[-1].start_offset + 700
    assert len([base for base in open_partition(folder).base_offsets if base < before]) > 3
    deletes_and_dies(house, topic, before)

    first = open_partition(folder).lineage.entries[0].start_offset
    assert first == before, "Kafka's checkpoint begins above the records that it serves"
    # the coordinator writes the marker of an abort later than it answers, here after the broker's death
    eventually(lambda: len(read_by_kafka(house, topic)) == 4500)
    with house.agent(*kept):
        house.append(topic, 1500, first=4500)
        eventually(lambda: copied_to(house, topic) > before + 1500)
    expected = both_digests(house, topic, "--via", "broker")
    offsets = read_by_kafka(house, topic)
    with house.agent():
        eventually(lambda: int(house.json("describe", f"{topic}:0")[0]["local_log_start_offset"]) > before)
    assert both_digests(house, topic) == expected
    assert [int(each) for each in house.run("consume", topic, "--format", "%o\\n").stdout.split()] == offsets
    assert findings(house, topic) == []

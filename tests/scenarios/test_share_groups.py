"""Share groups (KIP-932) lose nothing to a trim: they read from the broker alone, and keep what they have not taken."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scenarios.house import House, environment, eventually, opened_house
from tierstate.broker.groups import GroupPosition
from tierstate.broker.open import open_broker
from tierstate.sandbox.artifacts import find_java, kafka_libs
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka
RECORDS, TAKEN = 2_500, 72


@contextmanager
def share_consumer(house: House, topic: str, records: int) -> Iterator[subprocess.Popen[str]]:
    """Run Kafka's own share consumer in the group ``takers``, which accepts so many records and ends."""
    command = [find_java(), "-cp", f"{kafka_libs()}/*", "org.apache.kafka.tools.consumer.ConsoleShareConsumer"]
    command += ["--bootstrap-server", house.kafka.bootstrap, "--topic", topic, "--group", "takers"]
    command += ["--max-messages", str(records)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    ) as consumer:
        try:
            yield consumer
        finally:
            consumer.kill()


def taken(consumer: subprocess.Popen[str]) -> list[int]:
    out, _ = consumer.communicate(timeout=120)
    return [int(line) for line in out.splitlines()]


def test_a_share_group_reads_every_record_although_an_agent_trims(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with opened_house(kafka, tmp_path / "house", "share-groups") as house, open_broker(kafka.client_config) as broker:
        topic = house.create("orders")

        def holder() -> GroupPosition | None:
            return next(iter(broker.control.groups(topic).positions), None)

        written = 0
        with share_consumer(house, topic, TAKEN) as consumer:
            eventually(holder)
            while consumer.poll() is None or written < RECORDS:  # it does not get records from before its start
                house.append(topic, 100, first=written)
                written += 100
            accepted = taken(consumer)
        assert accepted == [*range(accepted[0], accepted[0] + TAKEN)]
        next_one = accepted[-1] + 1
        eventually(lambda: holder() == GroupPosition("takers", 0, Offset(next_one)))
        house.run("agent", "--once")
        assert house.json("describe", topic)[0]["local_log_start_offset"] <= next_one
        with share_consumer(house, topic, written - next_one) as consumer:
            assert taken(consumer) == [*range(next_one, written)]

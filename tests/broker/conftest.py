"""Shared builders: topics with records on the real broker, and the objects under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.topics import create
from tierstate.broker.open import Broker, open_broker
from tierstate.sandbox.kafka import KafkaSandbox


class RealTopics:
    """Creates topics and appends records on a sandbox."""

    def __init__(self, sandbox: KafkaSandbox) -> None:
        self.sandbox = sandbox
        self.admin = AdminClient({"bootstrap.servers": sandbox.bootstrap, "log_level": 0})

    def create(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        copies = len(self.sandbox.brokers)
        create(self.admin, NewTopic(name, partitions, copies, config=config or {}))
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)
        while name in self.admin.list_topics(timeout=60).topics:
            time.sleep(0.02)

    def append(self, name: str, partition: int, records: int, *, transaction: str = "") -> None:
        """Append records of 100 bytes, at most ten per batch; ``transaction``: "commit", "abort" or "leave open"."""
        config = {"bootstrap.servers": self.sandbox.bootstrap, "log_level": 0, "batch.num.messages": 10, "acks": "all"}
        producer = Producer(config | ({"transactional.id": f"{name}-{transaction}"} if transaction else {}))
        if transaction:
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(records):
            producer.produce(name, f"{number:0100}".encode(), partition=partition)
        assert producer.flush(30) == 0
        if transaction == "commit":
            producer.commit_transaction()
        elif transaction == "abort":
            producer.abort_transaction()


@pytest.fixture
def topics(kafka: KafkaSandbox) -> RealTopics:
    return RealTopics(kafka)


@pytest.fixture
def make_topics() -> Callable[[KafkaSandbox], RealTopics]:
    """Return the builder of topics on another sandbox than the shared one."""
    return RealTopics


@pytest.fixture
def broker(kafka: KafkaSandbox) -> Iterator[Broker]:
    with open_broker({"bootstrap.servers": kafka.bootstrap}) as opened:
        yield opened

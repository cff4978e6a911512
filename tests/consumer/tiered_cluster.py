"""Topics in two tiers on a real broker: an agent copies and trims when a test runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.cli.main import run
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

SEGMENT = 60
"""The approximate number of records in a segment."""
PATIENCE_S = 60.0


class TieredCluster:
    """One tier-state topic and one object store for a file of tests; every topic has a name of its own."""

    def __init__(
        self, kafka: KafkaSandbox, folder: Path, facts: str, store: Mapping[str, str | bool] | None = None
    ) -> None:
        """``store``: settings of the object store; None means a folder."""
        self.kafka, self.folder, self.facts = kafka, folder, facts
        self.admin = AdminClient({**kafka.client_config})
        self.store = store or {"url": (folder / "store").as_uri()}
        folder.mkdir(exist_ok=True)
        secret = folder / "secret"
        secret.write_text(str(self.store.get("secret_access_key", "")))
        written = (
            {**self.store, "secret_access_key": {"file": str(secret)}}
            if "secret_access_key" in self.store
            else self.store
        )
        lines = "".join(f"{name} = {_toml(value)}\n" for name, value in written.items())
        self.settings_file = folder / "tierstate.toml"
        self.settings_file.write_text(
            f'state_dir = "{folder / "state"}"\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
            f"[store]\n{lines}"
            f'[tier_state]\ntopic = "{facts}"\npartitions = 2\nreplication_factor = 1\n'
            f'[tiering]\ninclude = ["{facts.strip("_")}-.*"]\n[agent]\nlog_dirs = ["{kafka.brokers[0].log_dir}"]\n'
            f'[trim]\ndelay = "0s"\nrespect_groups = false\n[management]\nlisten = "127.0.0.1:0"\n'
        )
        self.run("init")

    def settings(self, more: str) -> None:
        """Append settings of the agent, which hold from its next run on."""
        with open(self.settings_file, "a") as file:
            file.write(more)

    def run(self, *command: str) -> None:
        assert run([*command, "--config", str(self.settings_file)]) == 0

    def topic(self, name: str, records: int = 400, partitions: int = 1, **config: str) -> str:
        """Create a topic that rolls a segment every `SEGMENT` records and keeps about one locally. Return its name."""
        full = f"{self.facts.strip('_')}-{name}"
        settings = {"internal.segment.bytes": "16384", "retention.ms": "-1", "local.retention.bytes": "16384", **config}
        self.admin.create_topics([NewTopic(full, partitions, 1, config=settings)])[full].result(30)
        self.produce(full, 0, records, partitions)
        return full

    def produce(self, topic: str, first: int, end: int, partitions: int = 1) -> None:
        """Produce records ``first`` to ``end`` (exclusive) in every partition; each value names its place."""
        # idempotent: a batch that is sent again comes before those behind it
        producer = Producer({**self.kafka.client_config, "batch.num.messages": 20, "enable.idempotence": True})
        for number in range(first, end):
            for partition in range(partitions):
                value = f"{partition}/{number} ".ljust(200, ".")
                producer.produce(
                    topic, value, str(number), partition, timestamp=1_000_000 + number, headers=[("n", b"%d" % number)]
                )
        assert producer.flush(30) == 0

    def copy_and_trim(self, topic: str, partitions: int = 1) -> list[int]:
        """Run the agent, and return where each partition begins on the broker afterwards.

        An S3 store's ``Date`` shows whole seconds: by it a trim may come due only after the agent has ended.
        """
        before = self._starts(topic, partitions)
        self.run("agent", "--once")
        if "endpoint" in self.store:
            until(lambda: self._trimmed(topic, before), lambda: self.run("agent", "--once"))
            time.sleep(1)
            self.run("agent", "--once")  # trims the segments whose second had not ended
        return self._starts(topic, partitions)

    def _trimmed(self, topic: str, before: list[int]) -> bool:
        return all(now > old for now, old in zip(self._starts(topic, len(before)), before, strict=True))

    def _starts(self, topic: str, partitions: int) -> list[int]:
        return [self.local_start(topic, partition) for partition in range(partitions)]

    def tiered(self, name: str, records: int = 400, partitions: int = 1) -> tuple[str, list[int]]:
        """Create a topic whose first segments are in the object store only. Return it, and where the broker begins."""
        topic = self.topic(name, records, partitions)
        starts = self.copy_and_trim(topic, partitions)
        assert all(start > SEGMENT for start in starts), "nothing was trimmed: nothing is read from the remote tier"
        return topic, starts

    def local_start(self, topic: str, partition: int = 0) -> int:
        """Return the first offset that Kafka's own client sees."""
        with closing(Consumer({**self.kafka.client_config, "group.id": "looks"})) as consumer:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[0])

    def config(self, group: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a `TieredConsumer`; ``_`` in names stands for ``.``."""
        settings = {
            **self.kafka.client_config,
            "group.id": group,
            **{f"tierstate.store.{name}": value for name, value in self.store.items()},
            "tierstate.tier_state.topic": self.facts,
            "enable.auto.commit": False,
        }
        return {**settings, **{_property(name): value for name, value in more.items()}}


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + " }"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _property(name: str) -> str:
    return name if name.endswith("_cb") else name.replace("_", ".")


def polled(consumer: Any, count: int, batch: int = 1) -> list[Any]:
    """Poll ``count`` records, whatever callbacks do in between. Errors fail the test."""
    items: list[Any] = []
    until(lambda: len(items) >= count, lambda: items.extend(_received(consumer, min(batch, count - len(items)))))
    return items


def _received(consumer: Any, batch: int) -> Iterator[Any]:
    messages = [consumer.poll(0.2)] if batch == 1 else consumer.consume(batch, 0.5)
    for message in messages:
        if message is not None:
            assert message.error() is None, message.error()
            yield message


def until(done: Callable[[], object], step: Callable[[], object]) -> None:
    """Call ``step`` until ``done`` holds. Fail the test after `PATIENCE_S` seconds."""
    clock = SystemClock()
    ends = clock.monotonic() + PATIENCE_S
    while not done():
        assert clock.monotonic() < ends, "it did not come to that"
        step()


def first_error(consumer: Any) -> Any:
    """Return the first message that is an error."""
    errors: list[Any] = []

    def step() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            errors.append(message)

    until(lambda: errors, step)
    return errors[0]


def offsets(messages: list[Any]) -> list[int]:
    return [message.offset() for message in messages]

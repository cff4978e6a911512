"""An agent of a real broker, and changes while it runs: a roll, the topic's settings, the disk.

Only the operating system and the broker call for looks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import KafkaAdminClient

from tests.leader.real import Job, RealTopic, eventually
from tierstate.leader.observe import CONFIG_AGE_S
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Run the agent in a thread of its own; its error is raised at the end."""
    stop, died = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            job.leader.agent.run(stop)
        except BaseException as error:
            died.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not died, died


def everything_rolled_is_copied(topic: RealTopic, job: Job) -> bool:
    return topic.seen(job).copied_to == topic.bases()[-1] - 1 > 0


def set_topic(topic: RealTopic, name: str, value: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": topic.sandbox.bootstrap, "log_level": 0})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.fixture
def topic(kafka: KafkaSandbox, topic_name: str, tmp_path: Path) -> RealTopic:
    return RealTopic(kafka, topic_name[-80:].strip("-"), tmp_path / "store")


def test_segments_that_roll_later_are_copied_too(topic: RealTopic) -> None:
    topic.create().append(4_000)
    with topic.agent() as job, running(job):
        for _ in range(3):
            eventually(lambda: everything_rolled_is_copied(topic, job))
            topic.append(4_000)
        eventually(lambda: everything_rolled_is_copied(topic, job))


@pytest.mark.slow
def test_retention_that_is_shortened_acts_within_a_minute_and_without_a_restart(topic: RealTopic) -> None:
    topic.create(**{"local.retention.bytes": "-2", "retention.bytes": "-1"}).append(8_000)
    with topic.agent() as job, running(job):
        eventually(lambda: everything_rolled_is_copied(topic, job))
        assert topic.seen(job).log_start == 0
        set_topic(topic, "retention.bytes", str(300_000))
        eventually(lambda: (topic.seen(job).log_start or 0) > 0, CONFIG_AGE_S + 30)


@dataclass
class TwoDisks(RealTopic):
    """A topic on a broker with two log folders."""

    def log_folders(self, index: int) -> list[Path]:
        first = self.sandbox.brokers[index].log_dir
        return [first, first.with_name("more")]

    def moved(self) -> None:
        """Return whether the replica is on the other disk."""
        here, there = sorted(self.log_folders(0), key=lambda folder: not (folder / f"{self.name}-0").exists())
        client = KafkaAdminClient(bootstrap_servers=self.sandbox.bootstrap)
        try:
            client.alter_replica_log_dirs({(self.name, 0, 1): str(there)})
        finally:
            client.close()
        eventually(lambda: (there / f"{self.name}-0").exists() and not (here / f"{self.name}-0").exists())

    def bases(self, index: int = 0) -> list[int]:
        files = [file for folder in self.log_folders(index) for file in (folder / f"{self.name}-0").glob("*.log")]
        return sorted(int(file.stem) for file in files)


@pytest.mark.slow
def test_a_replica_that_moves_to_another_disk_is_followed(topic_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    disks = f"{folder / 'broker-1' / 'data'},{folder / 'broker-1' / 'more'}"
    with KafkaSandbox(folder=folder, properties={"log.dirs": disks}) as sandbox:
        topic = TwoDisks(sandbox, topic_name[-80:].strip("-"), tmp_path / "store")
        topic.create(**{"local.retention.bytes": "-2"}).append(4_000)
        with topic.agent() as job, running(job):
            eventually(lambda: everything_rolled_is_copied(topic, job))
            topic.moved()
            topic.append(4_000)
            eventually(lambda: everything_rolled_is_copied(topic, job))

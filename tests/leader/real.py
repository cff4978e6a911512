"""Agents on real brokers: a topic of their own, a tier-state topic of their own, a directory as the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.broker.open import Broker, open_broker
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic, open_tier_topic
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.leader.open import Beside, LeaderRole, Parts, open_leader
from tierstate.leader.partition_worker import ArchivedTo
from tierstate.leader.schedule import Schedule
from tierstate.log.local_log import LogDirs
from tierstate.rules.sweep import ArchivedDeletes, no_archived_deletes
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.listener import Event
from tierstate.runtime.settings import Settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import TopicIdPartition
from tierstate.state.keys import tier_partition_of
from tierstate.state.partition_view import PartitionView
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.segment.reader import SegmentReader

RECORD = b"%0120d"
SEGMENT_BYTES = 200_000


@dataclass
class Job:
    """One agent that is open, with its broker and its view."""

    leader: LeaderRole
    broker: Broker
    view: Follower
    events: list[Event] = field(default_factory=list)

    def run_once(self) -> None:
        self.leader.agent.run_once(threading.Event())


@dataclass
class RealTopic:
    """A tiered topic on a sandbox."""

    sandbox: KafkaSandbox
    name: str
    store_folder: Path
    archived_to: ArchivedTo = lambda tier_partition: None
    archived_deletes: ArchivedDeletes = no_archived_deletes
    tier_partitions: int = 2

    @property
    def spec(self) -> TierTopicSpec:
        return TierTopicSpec(f"_tiers-{self.name}", self.tier_partitions, min(3, len(self.sandbox.brokers)))

    def create(self, **config: str) -> RealTopic:
        admin: Any = AdminClient({"bootstrap.servers": self.sandbox.bootstrap, "log_level": 0})
        settings = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", "local.retention.bytes": "0"}
        copies = len(self.sandbox.brokers)
        topic = NewTopic(self.name, 1, copies, config=settings | config)
        admin.create_topics([topic], operation_timeout=30)[self.name].result(30)
        create_tier_topic(self.sandbox.client_config, self.spec, SystemClock().now_ms())
        self.store_folder.mkdir(parents=True, exist_ok=True)
        DirectoryStore(self.store_folder)  # as tierstate init makes it
        return self

    def append(self, records: int) -> None:
        config = {"bootstrap.servers": self.sandbox.bootstrap, "log_level": 0, "acks": "all", "batch.size": 20_000}
        producer: Any = Producer(config)
        for number in range(records):
            producer.produce(self.name, RECORD % number, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0

    def settings(self, **trim: Any) -> Settings:
        return Settings.model_validate(
            {
                "kafka": self.sandbox.client_config,
                "store": {"url": self.store_folder.as_uri()},
                "tiering": {"include": [self.name]},
                "tier_state": {"topic": self.spec.name, "partitions": self.spec.partitions},
                "trim": {"delay": 0, **trim},
            }
        )

    def log_folders(self, index: int) -> list[Path]:
        return [self.sandbox.brokers[index].log_dir]

    @property
    def clock(self) -> Clock:
        return SystemClock()

    @property
    def store(self) -> ObjectStore:
        return DirectoryStore(self.store_folder)

    @contextmanager
    def agent(self, index: int = 0, **trim: Any) -> Iterator[Job]:
        """Open an agent for one broker."""
        clock, events = self.clock, list[Event]()
        with ExitStack() as opened:
            log = opened.enter_context(LogDirs(self.log_folders(index)))
            broker = opened.enter_context(open_broker(self.sandbox.client_config))
            topic: KafkaTierTopic = open_tier_topic(self.sandbox.client_config, self.spec)
            opened.callback(topic.close)
            schedule = Schedule(clock, lambda partition: tier_partition_of(partition, self.spec.partitions))
            view = open_view(topic, self.sandbox.cluster_id, clock, Following(listener=schedule.listen))
            opened.callback(view.close)
            leader = open_leader(
                self.settings(**trim),
                log,
                Parts(broker.control, topic, view, self.store, clock, RandomIds()),
                events.append,
                "127.0.0.1:1",
                Beside(archived_to=self.archived_to, archived_deletes=self.archived_deletes, schedule=schedule),
            )
            yield Job(leader, broker, view, events)

    def partition(self, broker: Broker) -> TopicIdPartition:
        return TopicIdPartition(broker.control.topic(self.name).topic_id, 0)

    def seen(self, job: Job) -> PartitionView:
        job.view.require_fresh(job.view.tier_partition(self.partition(job.broker)), 0)
        return job.view.partition(self.partition(job.broker))

    def bases(self, index: int = 0) -> list[int]:
        return sorted(int(file.stem) for file in (self.sandbox.brokers[index].log_dir / f"{self.name}-0").glob("*.log"))

    def remote_bytes(self, view: PartitionView) -> bytes:
        store = DirectoryStore(self.store_folder)
        readers = [SegmentReader.open(store, segment.object_key) for segment in view.readable]
        return b"".join(piece for reader in readers for piece in reader.read_log())

    def leads(self, broker: Broker) -> int | None:
        """Return the index of the broker that leads; None during an election."""
        leader = broker.control.topic(self.name).partitions[0].leader
        return None if leader is None else leader - 1


def eventually(what: Any, seconds: float = 60.0) -> None:
    """Poll until ``what`` is true: what a broker does in the background has no other sign."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)

"""Agents over a tier-state topic whose cleaner never rests, and everything that is needed to judge such a scenario.

Every command rightly refuses the topic's settings: it is opened here without the checks. Each agent is the production
code over the real broker, its disk and a folder as the store. The archive is written whenever an agent asks how far it
goes, which is before every decision: only archived facts are erased, and so compacted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import orjson
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.beheading import alter
from tests.broker.leaders import topic_id_of
from tests.scenarios.house import House
from tests.scenarios.prompt_archive import PromptArchive
from tierstate.broker.client_config import admin_config
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec
from tierstate.follower.checkpoint import checkpoint
from tierstate.follower.digests import live_set_digest, meaning_digest
from tierstate.follower.follower import Follower
from tierstate.follower.following import EVERYTHING, Following
from tierstate.follower.open import open_view
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.follower.time_travel import archived_entries
from tierstate.follower.view_identity import Shelf
from tierstate.leader.open import Beside, LeaderRole, Parts, open_leader
from tierstate.leader.schedule import Schedule
from tierstate.log.local_log import LogDirs
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.runtime.listener import Event, ViewRebuilt, fan_out
from tierstate.runtime.operation import run
from tierstate.runtime.settings import Settings
from tierstate.schemas.codec import decode_fact, descriptor_to_json, encode_fact
from tierstate.state.errors import TierstateError
from tierstate.state.facts import Fact, TopicMeta
from tierstate.state.ids import TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Position
from tierstate.state.partition_view import PartitionView
from tierstate.state.view import ViewStore
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data, ObjectStore

TIER_PARTITIONS = 2
RESTLESS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "0",
    "segment.ms": "500",
    "internal.segment.bytes": "16384",
    "message.timestamp.type": "LogAppendTime",
    "compression.type": "producer",
}


class Died(BaseException):
    """The process was killed: nothing tidies up after it."""


class DyingStore(DirectoryStore):
    """A store in which a process dies right before it puts a manifest."""

    def put_stream(self, key: str, pieces: Any, *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        if key.endswith(".rsm-manifest"):
            raise Died
        return super().put_stream(key, pieces, part_bytes=part_bytes)

    def put_if_absent(self, key: str, data: Data) -> None:
        self.put_stream(key, (data,))


@dataclass
class Job:
    """One agent that is open."""

    leader: LeaderRole
    view: Follower
    events: list[Event] = field(default_factory=list)

    @property
    def resumed(self) -> bool:
        """Return whether the view of the earlier agent was good enough."""
        return not any(isinstance(event, ViewRebuilt) for event in self.events)

    def run_once(self) -> None:
        self.leader.agent.run_once(threading.Event())

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.leader.agent.run, stop)
            try:
                yield
            finally:
                stop.set()
            done.result()


@dataclass(frozen=True)
class Cleaning:
    """The records that the cleaner took, with and without a value. ``appended``, ``readable``: of all records."""

    appended: int
    readable: int
    values: int
    tombstones: int


class Restless:
    """The tier-state topic of a house, a topic of two partitions, and agents over both. Close it before the house."""

    def __init__(self, house: House) -> None:
        self.house, self.clock = house, SystemClock()
        self.kafka = {"bootstrap.servers": house.kafka.bootstrap}
        self.spec = TierTopicSpec(house.tier_topic, TIER_PARTITIONS, 1)
        self._admin: Any = AdminClient(admin_config(self.kafka))
        new = NewTopic(self.spec.name, TIER_PARTITIONS, 1, config=RESTLESS)
        self._admin.create_topics([new], operation_timeout=30)[self.spec.name].result(30)
        meta = TopicMeta(TIER_PARTITIONS, house.kafka.cluster_id, self.clock.now_ms())  # init refuses this topic
        with closing(self.open_tier_topic()) as named:
            named.append(0, key_of(meta), encode_fact(meta))
        self.topic = house.create("t", partitions=2)
        self._opened = ExitStack()
        self.broker = open_broker(self.kafka)
        self._opened.callback(self.broker.close)
        self.tier_topic = self.open_tier_topic()
        self._opened.callback(self.tier_topic.close)
        topic_id = self.broker.control.topic(self.topic).topic_id
        self.partitions = [TopicIdPartition(topic_id, number) for number in (0, 1)]
        self.identity = ViewIdentity(house.kafka.cluster_id, self.tier_topic.topic_id, TIER_PARTITIONS)
        self.store = DirectoryStore(house.store)
        self._archive = PromptArchive(self.tier_topic, self.store, self.identity, self.clock)
        self.said = [0, 0]

    def close(self) -> None:
        self._opened.close()

    def open_tier_topic(self) -> KafkaTierTopic:
        return KafkaTierTopic(self.kafka, self.spec.name, topic_id_of(self.kafka, self.spec.name), TIER_PARTITIONS)

    def tombstones_stay(self) -> None:
        """Keep tombstones for a day from now on, as `tierstate init` does: a younger checkpoint is complete."""
        alter(self._admin, self.spec.name, "delete.retention.ms", "86400000")

    def append(self, records: int) -> None:
        """Append this many records to each partition."""
        for number in (0, 1):
            self.house.append(self.topic, records, number, first=self.said[number])
            self.said[number] += records

    def say(self, fact: Fact, partition: TopicIdPartition) -> str:
        """Append a fact that no agent decided; return its key."""
        self.tier_topic.append(tier_partition_of(partition, TIER_PARTITIONS), key_of(fact), encode_fact(fact))
        return key_of(fact)

    # --- agents ---------------------------------------------------------------------------------------------------

    @contextmanager
    def agent(self, store: ObjectStore | None = None, keep_bytes: int | None = None) -> Iterator[Job]:
        """Open an agent that resumes the earlier view. ``keep_bytes``: of each partition, in both tiers; None: all."""
        events: list[Event] = []
        with ExitStack() as opened:
            log = opened.enter_context(LogDirs([self.house.log_dir]))
            broker = opened.enter_context(open_broker(self.kafka))
            topic = self.open_tier_topic()
            opened.callback(topic.close)
            schedule = Schedule(self.clock, lambda partition: tier_partition_of(partition, TIER_PARTITIONS))
            view = self.follower("agent", topic, Following(listener=fan_out(events.append, schedule.listen)))
            opened.callback(view.close)
            yield Job(
                open_leader(
                    self._settings(keep_bytes),
                    log,
                    Parts(broker.control, topic, view, store or self.store, self.clock, RandomIds()),
                    events.append,
                    "127.0.0.1:1",
                    Beside(archived_to=self._archive.archived_to, schedule=schedule),
                ),
                view,
                events,
            )

    def _settings(self, keep_bytes: int | None) -> Settings:
        topics = {} if keep_bytes is None else {self.topic: {"retention_bytes": keep_bytes}}
        return Settings.model_validate(
            {
                "kafka": self.kafka,
                "store": {"url": self.house.store.as_uri()},
                "tiering": {"include": [self.topic], "topics": topics},
                "tier_state": {"topic": self.spec.name, "partitions": TIER_PARTITIONS, "replication_factor": 1},
                "copy": {"concurrency": 1},
                "trim": {"delay": 0},
                "expire": {"grace": 0},
                "sweep": {"grace": 6},
            }
        )

    def checkpoint(self) -> list[Position]:
        """Write a checkpoint of each tier-state partition; return their positions."""
        at = []
        for number in range(TIER_PARTITIONS):
            folders = (self.house.folder / f"scratch-{number}-{each}" for each in count())
            new_store = partial(lambda names: RocksView(next(names), self.identity, decode_fact), folders)
            shelf = Shelf(self.store, self.identity, number)
            steps = checkpoint(self.tier_topic, shelf, self.clock, 1, new_store, self.refused)
            at.append(run(steps))
        return at

    @staticmethod
    def refused(key: str, error: TierstateError) -> None:
        raise AssertionError(f"{key} is not used: {error}")

    # --- views, and what is left of the topic -----------------------------------------------------------------------

    def follower(self, name: str, topic: KafkaTierTopic | None = None, following: Following = EVERYTHING) -> Follower:
        """Open a view on disk, under a name; it goes on where the earlier one of that name stopped."""
        folder = self.house.folder / "views" / name
        return open_view(topic or self.tier_topic, self.house.kafka.cluster_id, self.clock, following, state_dir=folder)

    def look(self, view: Follower, partition: TopicIdPartition) -> PartitionView:
        view.require_fresh(view.tier_partition(partition), 0)
        return view.partition(partition)

    def is_copied(self, view: PartitionView) -> bool:
        """Return whether every rolled segment is copied."""
        rolled = [int(file.stem) for file in self.house.logs(self.topic, view.partition.partition)][-1]
        return view.copied_to == rolled - 1

    def ends(self) -> list[Position]:
        return [self.tier_topic.end(number) for number in range(TIER_PARTITIONS)]

    def cleaning(self) -> Cleaning:
        """Count the records that the archive has and the topic no longer has."""
        ends, left, values, tombstones = self.ends(), 0, 0, 0
        for number, end in enumerate(ends):
            self._archive.archived_to(number)
            readable = set(self._readable(number, end))
            left += len(readable)
            for entry in archived_entries(Shelf(self.store, self.identity, number)):
                if entry.position < end and entry.position not in readable:
                    values += entry.value is not None
                    tombstones += entry.value is None
        return Cleaning(sum(ends), left, values, tombstones)

    def _readable(self, number: int, end: Position) -> Iterator[Position]:
        reader, at = self.tier_topic.reader({number: Position(0)}), 0
        try:
            while at < end:
                for batch in reader.poll(0.2):
                    at = batch.following
                    yield from (entry.position for entry in batch.entries if entry.position < end)
        finally:
            reader.close()


def live_sets(store: ViewStore) -> list[tuple[int, int, str]]:
    """Return position, facts and digest of each tier-state partition."""
    digests = [(number, live_set_digest(store.entries(number))) for number in range(TIER_PARTITIONS)]
    return [(store.position(number), digest.count, digest.hexdigest()) for number, digest in digests]


def fresh_live_sets(view: Follower) -> list[tuple[int, int, str]]:
    """Return the live sets of a follower at an end captured now."""
    for number in range(TIER_PARTITIONS):
        view.require_fresh(number, 0)
    return live_sets(view.store)


def meanings(look: Callable[[TopicIdPartition], PartitionView], partitions: list[TopicIdPartition]) -> list[str]:
    return [meaning_digest(look(partition)) for partition in partitions]


def descriptors(view: PartitionView) -> list[bytes]:
    """Return the descriptors of the readable segments, each as it is written but without its term."""
    records = [descriptor_to_json(segment) for segment in view.readable]
    return [orjson.dumps({name: record[name] for name in record if name != "term"}) for record in records]

"""The archive and the checkpoints that a running agent maintains in the bucket, seen from outside.

An archive window is 10,000 positions, and is written when it is full: tombstones of leases that never were fill it.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.scenarios.house import House, eventually
from tierstate.broker.open import Broker, open_broker
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.follower.checkpoint import read_checkpoint
from tierstate.follower.digests import live_set_digest
from tierstate.follower.live_set_object import apply_table, fetch_table
from tierstate.follower.object_names import PositionName, TierPlace
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.time_travel import Target, replay_topic
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import decode_fact
from tierstate.state.errors import UnknownTopic
from tierstate.state.ids import FactId, TopicId, TopicIdPartition
from tierstate.state.keys import tier_partition_of
from tierstate.state.view import MemoryView
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka

WINDOW = 10_000
RECORDS = 1_500
BOTH = (0, 1)


@dataclass
class Kept:
    """A topic of two partitions, copied; then a window's worth of tombstones in each tier-state partition."""

    house: House
    topic: str
    topic_id: TopicId
    tier_topic: KafkaTierTopic
    identity: ViewIdentity

    def fill(self, records: int, seed: int) -> None:
        """Append positions to both tier-state partitions; nothing is live afterwards that was not before."""
        config = {"bootstrap.servers": self.house.kafka.bootstrap, "log_level": 0, "linger.ms": 20}
        producer: Any = Producer(config)
        rnd = random.Random(seed)
        for number in BOTH:
            places = (TopicIdPartition(self.topic_id, each) for each in range(1000))
            partition = next(each for each in places if tier_partition_of(each, 2) == number)
            for _ in range(records):
                key = f"{self.topic_id}/{partition.partition}/lease/{FactId.of(rnd.randbytes(16))}"
                producer.produce(self.house.tier_topic, key=key.encode(), value=None, partition=number)
                producer.poll(0)
        assert producer.flush(60) == 0

    def place(self, number: int) -> TierPlace:
        return TierPlace(self.tier_topic.topic_id, number)

    def pieces(self, number: int) -> list[tuple[int, int]]:
        objects = DirectoryStore(self.house.store)
        return [(name.first, name.last) for name in self.place(number).pieces(objects)]

    def checkpoints(self, number: int) -> list[PositionName]:
        return self.place(number).checkpoints(DirectoryStore(self.house.store))

    def check(self, number: int, name: PositionName) -> None:
        """Require that a checkpoint is whole, and equals the topic at its position."""
        objects, clock = DirectoryStore(self.house.store), SystemClock()
        now, end = clock.now_ms(), self.tier_topic.end(number)
        stored, replayed = MemoryView(decode_fact, 2), MemoryView(decode_fact, 2)
        header, start = read_checkpoint(Shelf(objects, self.identity, number), name, end, now)
        folder = self.house.folder / f"checked-{time.monotonic_ns()}"
        folder.mkdir()
        apply_table(fetch_table(objects, name.key, header, start, folder), stored, folder)
        replay_topic(self.tier_topic, number, replayed, now, Target(name.position))
        assert list(stored.entries()) == list(replayed.entries())
        assert live_set_digest(stored.entries()).hexdigest() == header.live_set_digest

    @property
    def state(self) -> Path:
        return self.house.folder / "state" / "agent"


def known(broker: Broker, name: str) -> TopicId | None:
    try:
        return broker.control.topic(name).topic_id
    except UnknownTopic:
        return None  # the broker does not know it yet


def topic_on_both(house: House, broker: Broker) -> str:
    """Return a topic whose two partitions are in both tier-state partitions: that depends on its id."""
    for attempt in itertools.count():
        name = house.create(f"t{attempt}", partitions=2)
        topic_id = eventually(partial(known, broker, name))
        if {tier_partition_of(TopicIdPartition(topic_id, number), 2) for number in BOTH} == set(BOTH):
            break
    return name


@pytest.fixture(scope="module")
def kept(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    house = House(kafka, tmp_path_factory.mktemp("keeps") / "house", "keeps")
    house.run("init")
    broker = open_broker(kafka.client_config)
    topic = topic_on_both(house, broker)
    for number in BOTH:
        house.append(topic, RECORDS, number)
    tier_topic = open_tier_topic(kafka.client_config, TierTopicSpec(house.tier_topic, 2, 1))
    identity = ViewIdentity(kafka.cluster_id, tier_topic.topic_id, 2)
    try:
        house.run("agent", "--once", "--set", "archive.partial_after=1h")
        made = Kept(house, topic, broker.control.topic(topic).topic_id, tier_topic, identity)
        made.fill(WINDOW, seed=0)
        yield made
    finally:
        tier_topic.close()
        broker.close()
        house.close()


def test_an_agent_that_runs_once_leaves_a_checkpoint_of_each_partition(kept: Kept) -> None:
    for number in BOTH:
        (name,) = kept.checkpoints(number)
        assert name.position < WINDOW
        kept.check(number, name)


def test_a_running_agent_archives_full_windows_and_the_archive_is_the_topic(kept: Kept) -> None:
    house = kept.house
    with house.agent("--set", "archive.partial_after=1h") as agent:
        eventually(lambda: all(kept.pieces(number) for number in BOTH))
        eventually(lambda: all(len(kept.checkpoints(number)) == 2 for number in BOTH))
        failed = [line for line in agent.metrics().splitlines() if line.startswith("tierstate_chore_failures_total{")]
        assert failed
        assert all(line.endswith(" 0.0") for line in failed)
    assert [kept.pieces(number) for number in BOTH] == [[(0, WINDOW - 1)]] * 2
    for number in BOTH:
        place = (f"{kept.topic}:{number}", "--to-position", str(WINDOW))
        one, two = house.json("replay", *place), house.json("replay", *place, "--source", "archive")
        for name in ("live_set_digest", "facts", "partitions"):
            assert one[name] == two[name]
        assert [each["tier_partitions"][0]["position"] for each in (one, two)] == [WINDOW, WINDOW]
        assert one["facts"] > 2
        kept.check(number, kept.checkpoints(number)[-1])
    assert house.json("verify", kept.topic)["findings"] == []


def test_an_agent_whose_state_folder_is_gone_begins_with_the_newest_checkpoint(kept: Kept) -> None:
    kept.house.run("agent", "--once")
    newest = {number: kept.checkpoints(number)[-1].position for number in BOTH}
    assert min(newest.values()) > WINDOW
    shutil.rmtree(kept.state)
    with kept.house.agent() as agent:
        (line,) = agent.events("checkpoint used")
        assert dict(enumerate(line["positions"])) == newest
    assert kept.house.json("diff", str(kept.state), "topic")["equal"] is True
    with kept.house.agent() as again:
        assert not again.events("checkpoint used"), "it resumes where it stopped"


def killed_while_it_writes(kept: Kept, delay_s: float) -> bool:
    """Kill an agent ``delay_s`` after it began to write a checkpoint; return whether it had not finished."""
    deadline = time.monotonic() + 90
    with kept.house.agent() as agent:
        while not any((kept.state / "scratch").glob("*/*")):
            assert time.monotonic() < deadline, "no checkpoint is written"
            time.sleep(0.005)
        time.sleep(delay_s)
        agent.process.kill()
        agent.process.wait()
    return any((kept.state / "scratch").glob("*"))


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_an_agent_that_is_killed_while_it_writes_checkpoints_leaves_whole_ones(kept: Kept, kills: int) -> None:
    rnd, seen = random.Random(kills), set[PositionName]()
    delays = [0.0, *(rnd.uniform(0, 0.6) for _ in range(kills - 1))]
    interrupted = []
    for number, delay_s in enumerate(delays):
        kept.fill(1, seed=number + 1)  # a new position
        interrupted.append(killed_while_it_writes(kept, delay_s))
        for each in BOTH:
            for name in {*kept.checkpoints(each)} - seen:
                kept.check(each, name)
                seen.add(name)
        if rnd.random() < 0.5:
            shutil.rmtree(kept.state)
    assert interrupted[0]
    kept.house.run("agent", "--once")
    assert not any((kept.state / "scratch").glob("*")), "what a killed agent left is removed by the next"
    assert kept.house.json("diff", str(kept.state), "topic")["equal"] is True
    assert kept.house.json("verify", kept.topic, "--level", "1")["findings"] == []

"""`replay` and `diff` into the past, on a real broker: the archive shows the topic's facts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.house import House
from tierstate.broker.open import open_broker
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from tierstate.follower.archive import archive
from tierstate.follower.archives import places
from tierstate.follower.digests import live_set_digest
from tierstate.follower.rocksdb_view import ViewIdentity
from tierstate.follower.time_travel import Target, replay_archive
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import decode_fact, encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import LeaderElected, LogStartAdvanced
from tierstate.state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.segment import Term
from tierstate.state.view import MemoryView
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka

NOBODY = "127.0.0.1:1"


@dataclass
class Archived:
    """Facts appended in two rounds, all archived. ``middle``: ms between them; ``before``: the live-set digest then."""

    house: House
    topic: str
    topic_id: TopicId
    tier_topic: KafkaTierTopic
    middle: int = 0
    before: str = ""

    @property
    def identity(self) -> ViewIdentity:
        meta = next(each for each in self.house.lines("facts") if each["fact"] == "TopicMeta")
        return ViewIdentity(str(meta["cluster_id"]), self.tier_topic.topic_id, 2)

    def say(self, partition: int, epoch: int, *log_starts: int) -> None:
        """Append a term of this epoch, and its log starts; every other one is erased again."""
        place = TopicIdPartition(self.topic_id, partition)
        number = tier_partition_of(place, 2)
        leader = LeaderElected(
            place,
            self.topic,
            LeaderEpoch(epoch),
            FactId.of(bytes([epoch]) * 16),
            BrokerId(1),
            "127.0.0.1:1",
            Lineage.of((epoch, 0)),
            Offset(0),
            TimestampMs(1),
        )
        at = self.tier_topic.append(number, key_of(leader), encode_fact(leader))
        term = Term(leader.epoch, at, leader.id)
        for counter, offset in enumerate(log_starts):
            fact = LogStartAdvanced(place, Offset(offset), term, counter, "test", TimestampMs(2))
            self.tier_topic.append(number, key_of(fact), encode_fact(fact))
            if counter % 2:
                self.tier_topic.append(number, key_of(fact), None)


@pytest.fixture(scope="module")
def archived(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    house = House(kafka, tmp_path_factory.mktemp("time-travel") / "house", "time-travel")
    settings = {"bootstrap.servers": kafka.bootstrap}
    house.run("init")
    topic = house.create("t", partitions=2)
    broker = open_broker(settings)
    tier_topic = open_tier_topic(settings, TierTopicSpec(house.tier_topic, 2, 1))
    made = Archived(house, topic, broker.control.topic(topic).topic_id, tier_topic)
    try:
        made.say(0, 1, 5, 6, 7)
        made.say(1, 1, 3)
        made.before = house.json("replay")["live_set_digest"]
        made.middle = int(time.time() * 1000)
        time.sleep(0.01)
        made.say(1, 2, 8, 9)
        made.say(0, 2, *range(10, 20))
        identity, objects = made.identity, DirectoryStore(house.store)
        for number in range(2):
            for _ in archive(tier_topic, Shelf(objects, identity, number), SystemClock().now_ms(), 0):
                pass
        yield made
    finally:
        tier_topic.close()
        broker.close()
        house.close()


def test_the_archive_alone_is_the_view_of_the_topic(archived: Archived, tmp_path: Path) -> None:
    house = archived.house
    from_topic = house.json("replay")
    assert from_topic["facts"] > 10
    from_archive = house.json("replay", "--source", "archive", "--out", str(tmp_path / "view"))
    for name in ("facts", "live_set_digest", "partitions"):
        assert from_archive[name] == from_topic[name]
    assert [each["position"] for each in from_archive["tier_partitions"]] == [
        each["position"] for each in from_topic["tier_partitions"]
    ]
    assert house.json("diff", str(tmp_path / "view"), "topic")["equal"] is True


def test_the_archive_is_read_without_any_broker(archived: Archived) -> None:
    replayed = archived.house.json("replay", "--source", "archive", "--bootstrap-server", NOBODY)
    assert replayed["live_set_digest"] == archived.house.json("replay")["live_set_digest"]


def test_every_position_of_the_archive_is_the_view_that_stood_there(archived: Archived) -> None:
    objects = DirectoryStore(archived.house.store)
    walked, read = MemoryView(decode_fact, 2), 0
    for number in range(2):
        reader = archived.tier_topic.reader({number: Position(0)})
        end = archived.tier_topic.end(number)
        while walked.position(number) < end:
            for batch in reader.poll(0.2):
                for entry in batch.entries:
                    walked.apply(number, [entry], Position(entry.position + 1))
                    read += 1
                    if entry.position % 7 and entry.position + 1 != end:
                        continue
                    store = MemoryView(decode_fact, 2)
                    target = Target(Position(entry.position + 1))
                    replay_archive(Shelf(objects, archived.identity, number), store, target)
                    assert _digest(store, number) == _digest(walked, number)
        reader.close()
    assert read > 20


def _digest(store: MemoryView, number: int) -> tuple[str, int]:
    return live_set_digest(store.entries(number)).hexdigest(), store.position(number)


def test_a_position_and_a_time_are_the_same_from_both_sources(archived: Archived) -> None:
    house, topic = archived.house, f"{archived.topic}:0"
    positions = sorted(each["position"] for each in house.lines("facts", topic))
    for flags in (("--to-position", str(positions[3])), ("--to-time", f"@{archived.middle}")):
        one = house.json("replay", topic, *flags)
        two = house.json("replay", topic, *flags, "--source", "archive")
        assert (one["live_set_digest"], one["facts"]) == (two["live_set_digest"], two["facts"])
    for source in ("topic", "archive"):
        then = house.json("replay", "--to-time", str(archived.middle), "--source", source)
        assert then["live_set_digest"] == archived.before


def test_diff_names_the_facts_since(archived: Archived) -> None:
    house = archived.house
    difference = house.json("diff", f"@{archived.middle}", "topic", code=1)
    assert difference["digest_one"] == archived.before
    epochs = {each["key"].split("/")[3] for each in difference["differences"]}
    assert epochs == {"2"}
    number = difference["differences"][0]["tier_partition"]
    end = next(each["position"] for each in house.json("replay")["tier_partitions"] if each["tier_partition"] == number)
    assert house.json("diff", f"{number}/{end}", "topic")["equal"] is True
    assert house.json("diff", f"{number}/{end - 1}", f"{number}/{end}", code=1)["differences"]


def test_impossible_questions_are_refused_with_the_reason(archived: Archived) -> None:
    house, topic = archived.house, f"{archived.topic}:0"
    beyond = ("replay", topic, "--to-position", "1000000")
    assert "topic ends before this position" in house.run(*beyond, code=2).stderr
    assert "does not hold this position" in house.run(*beyond, "--source", "archive", code=2).stderr
    both = ("replay", topic, "--to-position", "1", "--to-time", "-1d")
    assert "not both" in house.run(*both, code=2).stderr
    assert "different tier-state partitions" in house.run("diff", "0/1", "1/1", code=2).stderr
    assert "no such tier-state partition" in house.run("diff", "9/1", "topic", code=2).stderr
    assert "no view in this folder" in house.run("diff", "nowhere", "topic", code=2).stderr


def test_a_store_without_an_archive_and_a_damaged_one_are_told_apart(archived: Archived, tmp_path: Path) -> None:
    DirectoryStore(tmp_path / "empty")
    replay = ("replay", "--source", "archive", "--store")
    assert "no archive" in archived.house.run(*replay, (tmp_path / "empty").as_uri(), code=2).stderr
    shutil.copytree(archived.house.store, tmp_path / "damaged")
    objects = DirectoryStore(tmp_path / "damaged")
    name = max(places(objects)[0].pieces(objects), key=lambda each: each.last)
    path = tmp_path / "damaged" / name.key
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refused = archived.house.run(*replay, (tmp_path / "damaged").as_uri(), code=4).stderr
    assert name.key in refused
    assert "does not match its hash" in refused

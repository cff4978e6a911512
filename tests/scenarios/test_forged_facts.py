"""A plain producer with rights on the tier-state topic claims one topic's copies for another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.leader.forger import forged, stolen
from tests.scenarios.house import House, get
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import Fact, LeaderElected, LogStartAdvanced
from tierstate.state.ids import BrokerId, FactId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.segment import RemoteSegment, Term
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.reader import read_manifest

pytestmark = pytest.mark.kafka
RECORDS = 2000
AT = TimestampMs(1_700_000_000_000)


@dataclass
class PlainProducer:
    """Any Kafka client that knows the tier-state topic's name and the form of facts."""

    house: House
    partition: TopicIdPartition
    topic: str

    def __post_init__(self) -> None:
        self._producer: Any = Producer({"bootstrap.servers": self.house.kafka.bootstrap, "log_level": 0})

    def say(self, fact: Fact) -> Position:
        landed: list[Any] = []
        number = tier_partition_of(self.partition, 2)
        self._producer.produce(
            self.house.tier_topic,
            encode_fact(fact),
            key_of(fact),
            number,
            on_delivery=lambda error, message: landed.append(message),
        )
        assert self._producer.flush(30) == 0
        return Position(landed[0].offset())

    def steal(self, segments: list[RemoteSegment]) -> None:
        """Append a term, a log start, and for each segment that it was copied and that it expired."""
        epoch, identity = LeaderEpoch(0), FactId.of(b"a forged term id")
        lineage, begin = Lineage.of((0, 0)), Offset(0)
        elected = LeaderElected(self.partition, self.topic, epoch, identity, BrokerId(1), "", lineage, begin, AT)
        term = Term(epoch, self.say(elected), identity)
        self.say(LogStartAdvanced(self.partition, begin, term, 1, "first term", AT))
        for number, segment in enumerate(segments):
            facts = forged(stolen(segment, self.partition, self.topic, term), AT)
            self.say(facts["copy-started"])
            self.say(facts["copy-finished"])
            if number:  # the first one stays to be read
                self.say(facts["delete-started"])


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(kafka, tmp_path_factory.mktemp("forged") / "house", "forged")
    made.run("init")
    yield made
    made.close()


def copies_of(house: House, topic: str) -> list[RemoteSegment]:
    """Return the topic's copies, by their manifests."""
    keys = [str(path.relative_to(house.store)) for path in house.manifests(topic)]
    blocks = [read_manifest(DirectoryStore(house.store), key).tierstate for key in keys]
    return [block.segment for block in blocks if block is not None]


def id_of(house: House, topic: str) -> TopicIdPartition:
    text = (house.log_dir / f"{topic}-0" / "partition.metadata").read_text()
    return TopicIdPartition(TopicId(text.split("topic_id: ")[1].strip()), 0)


def cut(house: House, topic: str, before: int) -> None:
    """Delete the broker's records below ``before``: a reader from 0 needs another tier."""
    admin: Any = AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})
    place = TopicPartition(topic, 0, before)
    admin.delete_records([place])[place].result(30)


def test_forged_facts_make_nobody_serve_or_delete_anothers_only_copy(house: House) -> None:
    events, evil = house.create("events"), house.create("evil")
    house.append(events, RECORDS)
    house.run("agent", "--once")
    segments, objects = copies_of(house, events)[:2], set(house.objects())
    house.append(evil, RECORDS)
    cut(house, evil, segments[-1].offsets.end + 1)
    PlainProducer(house, id_of(house, evil), evil).steal(segments)

    assert house.run("consume", f"{evil}:0", "--from", "0", code=4).stdout == ""
    running, address = house.gateway()
    status, body = get(f"{address}/v1/topics/{evil}/partitions/0/records?offset=0")
    assert status >= 400, body
    running.stop()

    house.run("agent", "--once")
    output = house.run("describe", f"{evil}:0", code=4).stdout
    for segment in segments:
        assert f"its object key is of another segment: {segment.object_key!r}" in output
    assert "  CONTRADICTION  " in output
    assert objects <= set(house.objects()), "an honest agent deleted what is another's"
    assert house.holds(events, RECORDS)

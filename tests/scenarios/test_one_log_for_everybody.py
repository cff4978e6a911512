"""The same bytes for every reader: all ways of reading both tiers return after the trim the records that Kafka's own
client read before it; the topics have every codec, transactions, some aborted, on both sides of the border, headers,
nulls, times of the broker's, and holes that its cleaner left.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.beheading import alter
from tests.plain_digest import PlainDigest
from tests.scenarios.house import House, eventually
from tests.scenarios.workload import Workload
from tierstate import TieredConsumer, connect
from tierstate.broker.plain_reads import PlainConsumer, PlainRecord
from tierstate.log.batch import CODECS, iter_batches
from tierstate.log.record_digest import RecordDigest
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

NOON = 1_767_268_800_000
TOPICS = ("written", "appended", "cleaned")
"""Topics with their producers' times, with the broker's times, and one that was compacted once."""
SPARK = """
import json, sys
from tierstate.log.record_digest import RecordDigest
from tierstate.spark.sessions import local_session
queries, folder = json.loads(sys.argv[1]), sys.argv[2]
found = {}
with local_session("everybody", 2, memory="512m") as spark:
    for name, (options, limit) in queries.items():
        digests = RecordDigest(), RecordDigest()
        def keep(frame, number):
            digests[1].update(frame.sort("offset").toArrow())
        batch = spark.read.format("tierstate").options(**options).load()
        digests[0].update(batch.sort("offset").toArrow())
        stream = spark.readStream.format("tierstate").options(**options)
        stream = stream.option("maxOffsetsPerTrigger", limit).load()
        query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/{name}")
        assert query.trigger(availableNow=True).start().awaitTermination(300), "the query did not end"
        found[name] = [[digest.count, digest.hexdigest()] for digest in digests]
print(json.dumps(found))
"""

Seen = tuple[int, str]
"""The number of records, and their digest."""
Asked = tuple[str, Isolation]


@dataclass
class Trimmed:
    """Topics of one partition. ``before``: records that Kafka's own client read before anything was copied."""

    house: House
    names: dict[str, str]
    before: dict[Asked, list[PlainRecord]] = field(default_factory=dict)
    raw: dict[Asked, Seen] = field(default_factory=dict)
    """The answer of the broker's raw Fetch at that time."""
    ends: dict[str, int] = field(default_factory=dict)
    codecs: set[str] = field(default_factory=set)

    def seen(self, topic: str, *flags: str) -> Seen:
        """Return the digest of a topic by a command."""
        [(_, records, digest)] = self.house.digests(self.names[topic], *flags)
        return records, digest

    def wanted(self, asked: Asked, below: int = sys.maxsize) -> Seen:
        digest = PlainDigest()
        for each in self.before[asked]:
            if each.offset < below:
                digest.add(each.offset, each.timestamp, each.timestamp_type, each.key, each.value, each.headers)
        return digest.count, digest.hexdigest()

    @property
    def kafka(self) -> dict[str, str]:
        return dict(self.house.kafka.client_config)

    def border(self, topic: str) -> int:
        """Return the start of the local tier."""
        first: int = self.house.json("describe", self.names[topic])[0]["local_log_start_offset"]
        return first

    def is_trimmed(self, topic: str) -> bool:
        return self.border(topic) == int(self.house.logs(self.names[topic])[-1].stem)


@pytest.fixture(scope="module")
def trimmed(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trimmed]:
    house = House(kafka_own, tmp_path_factory.mktemp("everybody"), "everybody")
    names = {
        "written": house.create("written"),
        "appended": house.create("appended", message_timestamp_type="LogAppendTime"),
        "cleaned": house.create("cleaned", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01"),
    }
    made = Trimmed(house, names)
    work = Workload(kafka_own.bootstrap, [names["written"], names["appended"]], seed=17, codecs=CODECS)
    try:
        house.run("init")
        work.plain(40, NOON)
        work.transactions(20, NOON)
        work.plain(40, NOON)
        work.transactions(3, NOON)
        made.ends = dict.fromkeys(TOPICS, work.end) | {"cleaned": compacted_once(house, names["cleaned"])}
        for topic in TOPICS:
            for isolation in Isolation:
                made.before[topic, isolation] = records(made, topic, isolation)
                made.raw[topic, isolation] = made.seen(topic, "--via", "reader", "--isolation", isolation)
        assert not house.manifests()
        for log in house.logs(names["written"]):
            made.codecs |= {CODECS[batch.codec] for batch in iter_batches(log.read_bytes(), source=str(log))}
        with house.agent():
            for topic in TOPICS:
                eventually(partial(made.is_trimmed, topic), 200.0)
            yield made
    finally:
        work.close()
        house.close()


def compacted_once(house: House, topic: str) -> int:
    """Return the topic's end. The cleaner takes records with a newer one of their key; later, records expire."""
    producer: Any = Producer({**house.kafka.client_config, "log_level": 0, "batch.size": 10_000, "acks": "all"})
    for number in range(3_000):
        key = b"only %d" % number if number % 100 == 50 else b"often"
        producer.produce(topic, b"%0120d" % number, key, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    eventually(lambda: sum(file.stat().st_size for file in house.logs(topic)[:-1]) < 20_000)
    admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
    alter(admin, topic, "cleanup.policy", "delete")
    house.append(topic, 2_000, first=3_000)
    return 5_000


def records(made: Trimmed, topic: str, isolation: Isolation) -> list[PlainRecord]:
    with closing(PlainConsumer(made.kafka, isolation, SystemClock())) as client:
        batches = client.records(made.names[topic], 0, Offset(0), Offset(made.ends[topic]))
        return [each for batch in batches for each in batch]


def every(*topics: str) -> pytest.MarkDecorator:
    cases = [(topic, isolation) for topic in topics or TOPICS for isolation in Isolation]
    return pytest.mark.parametrize("asked", cases, ids=[f"{topic}-{isolation}" for topic, isolation in cases])


def test_the_topics_have_all_that_is_to_be_seen_and_the_broker_has_their_last_segments_only(trimmed: Trimmed) -> None:
    for topic in TOPICS:
        committed, uncommitted = (trimmed.before[topic, isolation] for isolation in Isolation)
        assert (len(committed) < len(uncommitted)) == (topic != "cleaned")
        assert trimmed.border(topic) > trimmed.ends[topic] // 2
        left = trimmed.seen(topic, "--via", "broker", "--isolation", "read_uncommitted")[0]
        assert left < len(uncommitted) // 2
    assert trimmed.codecs == set(CODECS)
    [written, appended, cleaned] = (trimmed.before[topic, Isolation.READ_UNCOMMITTED] for topic in TOPICS)
    assert {each.timestamp_type for each in written} == {0}
    assert {each.timestamp_type for each in appended} == {1}
    assert {each.key is None for each in written} == {each.value is None for each in written} == {True, False}
    assert any(None in dict(each.headers).values() for each in written)
    offsets = [each.offset for each in cleaned]
    assert sum(after - before > 50 for before, after in pairwise(offsets)) > 10


@every()
def test_the_brokers_raw_fetch_gave_the_same_before_the_trim(trimmed: Trimmed, asked: Asked) -> None:
    assert trimmed.raw[asked] == trimmed.wanted(asked)


@every()
@pytest.mark.parametrize("via", ["reader", "consumer"])
def test_a_command_reads_the_same_records(trimmed: Trimmed, via: str, asked: Asked) -> None:
    topic, isolation = asked
    assert trimmed.seen(topic, "--via", via, "--isolation", isolation) == trimmed.wanted(asked)


def test_the_gateway_gives_the_same_records(trimmed: Trimmed) -> None:
    running, url = trimmed.house.gateway()
    for topic, isolation in trimmed.before:
        digests = trimmed.seen(topic, "--gateway", url, "--via", "gateway", "--isolation", isolation)
        assert digests == trimmed.wanted((topic, isolation)), (topic, isolation)
    running.stop()


@every()
def test_a_consumer_gets_the_same_records(trimmed: Trimmed, asked: Asked) -> None:
    topic, isolation = asked
    settings = {"store.url": trimmed.house.store.as_uri(), "tier_state.topic": trimmed.house.tier_topic}
    config = {**trimmed.kafka, "group.id": f"everybody-{topic}-{isolation}", "isolation.level": str(isolation)}
    digest, expected = PlainDigest(), trimmed.wanted(asked)
    with TieredConsumer({**config, **{f"tierstate.{name}": value for name, value in settings.items()}}) as consumer:
        consumer.assign([TopicPartition(trimmed.names[topic], 0, 0)])

        def all_here() -> bool:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None
                kind, time = message.timestamp()
                headers = message.headers() or []
                digest.add(message.offset(), time, kind - 1, message.key(), message.value(), headers)
            return digest.count >= expected[0]

        eventually(all_here)
    assert (digest.count, digest.hexdigest()) == expected


@every()
def test_python_reads_the_same_records(trimmed: Trimmed, asked: Asked) -> None:
    topic, isolation = asked
    settings = {"tier_state.topic": trimmed.house.tier_topic}
    digest = RecordDigest()
    with connect(None, trimmed.house.store.as_uri(), kafka=trimmed.kafka, settings=settings) as log:
        digest.update(log.topic(trimmed.names[topic]).read(isolation=isolation).to_table())
    assert (digest.count, digest.hexdigest()) == trimmed.wanted(asked)


@pytest.mark.spark
def test_a_batch_and_a_stream_to_the_end_have_the_same_records(trimmed: Trimmed, tmp_path: Path) -> None:
    common = {f"kafka.{name}": value for name, value in trimmed.kafka.items()} | {
        "tierstate.store": trimmed.house.store.as_uri(),
        "tierstate.tier_state_topic": trimmed.house.tier_topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    queries = {
        f"{topic}-{isolation}": (common | {"subscribe": trimmed.names[topic], "isolation": str(isolation)}, end)
        for topic, isolation in trimmed.before
        for end in [str(trimmed.ends[topic] // 3)]
    }
    command = [sys.executable, "-c", SPARK, json.dumps(queries), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    expected = {f"{topic}-{isolation}": list(trimmed.wanted((topic, isolation))) for topic, isolation in trimmed.before}
    assert json.loads(done.stdout) == {name: [seen, seen] for name, seen in expected.items()}


@every()
def test_the_bucket_alone_has_the_same_records_up_to_its_end(trimmed: Trimmed, asked: Asked) -> None:
    topic, isolation = asked
    [digests] = trimmed.house.json("digest", trimmed.names[topic], "--source", "bucket", "--isolation", isolation)[
        "partitions"
    ]
    assert (digests["records"], digests["digest"]) == trimmed.wanted(asked, below=digests["end_offset"])
    assert digests["end_offset"] == trimmed.border(topic)

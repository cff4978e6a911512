"""The same bytes for everybody: what Kafka's own client read before the trim, every way of reading both tiers reads
after it, with transactions, some of them aborted, on both sides of the border.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import TopicPartition

from tests.scenarios.house import House, eventually
from tests.scenarios.workload import Workload
from tierstate import TieredConsumer, connect
from tierstate.log.record_digest import RecordDigest
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

NOON = 1_767_268_800_000
ISOLATIONS = ("read_committed", "read_uncommitted")
STREAM = """
import json, sys
from tierstate.log.record_digest import RecordDigest
from tierstate.spark.sessions import local_session
options, checkpoint = json.loads(sys.argv[1]), sys.argv[2]
digest = RecordDigest()
def keep(frame, number):
    digest.update(frame.sort("offset").toArrow())
with local_session("stream", 2, memory="512m") as spark:
    frame = spark.readStream.format("tierstate").options(**options).load()
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination(300)
print(json.dumps([digest.count, digest.hexdigest()]))
"""

Seen = tuple[int, str]
"""Records, and their digest."""


@dataclass
class Trimmed:
    """One partition. ``before``: what Kafka's own client read, by isolation, before anything was copied."""

    house: House
    topic: str
    end: int = 0
    before: dict[str, Seen] = field(default_factory=dict)

    def seen(self, *flags: str) -> Seen:
        """As a command digests it."""
        [(_, records, digest)] = self.house.digests(self.topic, *flags)
        return records, digest

    @property
    def kafka(self) -> dict[str, str]:
        return dict(self.house.kafka.client_config)


@pytest.fixture(scope="module")
def trimmed(kafka_own: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trimmed]:
    house = House(kafka_own, tmp_path_factory.mktemp("everybody"), "everybody")
    made = Trimmed(house, house.create("events"))
    work = Workload(kafka_own.bootstrap, [made.topic], seed=17)
    try:
        house.run("init")
        work.plain(20, NOON)
        work.transactions(12, NOON)
        work.plain(4, NOON)
        made.end = work.end
        made.before = {each: made.seen("--via", "broker", "--isolation", each) for each in ISOLATIONS}
        with house.agent():

            def border() -> int:
                first: int = house.json("describe", made.topic)[0]["local_log_start_offset"]
                return first

            last = int(house.logs(made.topic)[-1].stem)
            eventually(lambda: border() == last)
            yield made
    finally:
        work.close()
        house.close()


def test_some_records_are_aborted_and_the_broker_has_the_last_segment_only(trimmed: Trimmed) -> None:
    committed, uncommitted = (trimmed.before[each][0] for each in ISOLATIONS)
    assert 0 < committed < uncommitted < trimmed.end
    assert trimmed.seen("--via", "broker", "--isolation", "read_uncommitted")[0] < uncommitted // 2


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("via", ["reader", "consumer", "spark"])
def test_a_command_reads_what_was_there(trimmed: Trimmed, via: str, isolation: str) -> None:
    assert trimmed.seen("--via", via, "--isolation", isolation) == trimmed.before[isolation]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_gateway_gives_what_was_there(trimmed: Trimmed, isolation: str) -> None:
    running, url = trimmed.house.gateway()
    assert trimmed.seen("--gateway", url, "--via", "gateway", "--isolation", isolation) == trimmed.before[isolation]
    running.stop()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_consumer_is_handed_what_was_there(trimmed: Trimmed, isolation: str) -> None:
    settings = {"store.url": trimmed.house.store.as_uri(), "tier_state.topic": trimmed.house.tier_topic}
    config = {**trimmed.kafka, "group.id": f"everybody-{isolation}", "isolation.level": isolation}
    digest, wanted = RecordDigest(), trimmed.before[isolation][0]
    with TieredConsumer({**config, **{f"tierstate.{name}": value for name, value in settings.items()}}) as consumer:
        consumer.assign([TopicPartition(trimmed.topic, 0, 0)])

        def all_here() -> bool:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None
                kind, time = message.timestamp()
                headers = message.headers() or []
                digest.update_record(message.offset(), time, kind - 1, message.key(), message.value(), headers)
            return digest.count >= wanted

        eventually(all_here)
    assert (digest.count, digest.hexdigest()) == trimmed.before[isolation]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_python_reads_what_was_there(trimmed: Trimmed, isolation: str) -> None:
    settings = {"tier_state.topic": trimmed.house.tier_topic}
    digest = RecordDigest()
    with connect(None, trimmed.house.store.as_uri(), kafka=trimmed.kafka, settings=settings) as log:
        digest.update(log.topic(trimmed.topic).read(isolation=isolation).to_table())
    assert (digest.count, digest.hexdigest()) == trimmed.before[isolation]


@pytest.mark.spark
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_stream_to_the_end_has_what_was_there(trimmed: Trimmed, isolation: str) -> None:
    options = {f"kafka.{name}": value for name, value in trimmed.kafka.items()} | {
        "tierstate.store": trimmed.house.store.as_uri(),
        "tierstate.tier_state_topic": trimmed.house.tier_topic,
        "subscribe": trimmed.topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "isolation": isolation,
        "maxOffsetsPerTrigger": str(trimmed.end // 3),
    }
    checkpoint = str(trimmed.house.folder / f"checkpoint-{isolation}")
    command = [sys.executable, "-c", STREAM, json.dumps(options), checkpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert tuple(json.loads(done.stdout)) == trimmed.before[isolation]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_bucket_alone_has_what_was_there_up_to_where_it_ends(trimmed: Trimmed, isolation: str) -> None:
    [(_, records, digest)] = trimmed.house.digests(trimmed.topic, "--source", "bucket", "--isolation", isolation)
    end = trimmed.house.json("describe", trimmed.topic)[0]["highest_remote_offset"] + 1
    assert (records, digest) == trimmed.seen("--to", str(end), "--isolation", isolation)
    assert records > trimmed.before[isolation][0] // 2

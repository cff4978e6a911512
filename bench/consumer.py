"""`TieredConsumer` compared with Kafka's own consumer: `consume(1000)` of the same records.

Ours reads the remote tier alone, in a directory; CPU is that of the consumer's process, from the 10,000th record on.
The start includes imports; the group has no commit.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.app.opening.connection import FOR_READERS, Connection
from tierstate.app.opening.partitions import find_partition
from tierstate.cli.main import run
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import Fact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.ids import TopicIdPartition
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, OffsetRange, Position
from tierstate.state.segment import Term

from .recorded_topic import facts_of
from .rows import RUNS, Row

FACTS = "_tier-state"
SEGMENT_BYTES = 32 << 20
SIZES = {"120 B zstd": (100, "zstd", 1_500_000), "1 KB lz4": (1000, "lz4", 1_500_000)}
DISTINCT = 50_000
"""The number of different values; then they come again, hundreds of batches later.

Both sizes have as many records: a full garbage collection of Python may or may not fall into a short run."""
SEGMENTS = 10_000
PEER = "confluent_kafka's Consumer, from the broker"


@dataclass(frozen=True, slots=True)
class Consumed:
    """One process: CPU seconds a million records, its peak memory, and seconds to the first record."""

    cpu: float
    peak_bytes: int
    first_s: float


def measure(quick: bool = False) -> list[Row]:
    """Both record sizes, memory, and the start."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder, KafkaSandbox() as kafka:
        place = TieredPlace(kafka, Path(folder))
        for number, (what, (value_bytes, codec, count)) in enumerate(SIZES.items()):
            count = count // 20 if quick else count
            topic = place.fill(f"bench-{number}", value_bytes, codec, count)
            rows += _side_by_side(place, topic, what, count * 3 // 4, 1 if quick else RUNS)
        segments = SEGMENTS // 100 if quick else SEGMENTS
        place.add_segments("bench-0", segments)
        firsts = [place.consumed(True, "bench-0", 1).first_s for _ in range(1 if quick else RUNS)]
        what = f"from nothing to the first record, {segments:,} segments behind"
        rows.append(Row(what, statistics.median(firsts), "s, less is better", goal="≤ 3"))
    return rows


def _side_by_side(place: TieredPlace, topic: str, what: str, count: int, runs: int) -> list[Row]:
    measured: dict[bool, list[Consumed]] = {True: [], False: []}
    for _ in range(runs):
        for tiered in measured:
            measured[tiered].append(place.consumed(tiered, topic, count))
    ours, peer = (1e6 / statistics.median(each.cpu for each in measured[tiered]) for tiered in (True, False))
    memory = [statistics.median(each.peak_bytes for each in measured[tiered]) / 2**20 for tiered in (True, False)]
    return [
        Row(f"consume(1000), {what}", ours, "records a CPU second", peer, PEER, "≥ 1x"),
        Row(f"peak memory, {what}", memory[0], "MiB, less is better", memory[1], PEER),
    ]


class TieredPlace:
    """A broker, an agent that copies everything that rolled, and processes that consume."""

    def __init__(self, kafka: KafkaSandbox, folder: Path, more: str = "", store: str = "") -> None:
        """``more``: settings of the agent. ``store``: the lines of [store]; without them it is a directory."""
        folder.mkdir(exist_ok=True)
        self._kafka, self._store = kafka, (folder / "store").as_uri()
        store = store or f'url = "{self._store}"'
        self.settings = folder / "tierstate.toml"
        self.settings.write_text(
            f'state_dir = "{folder / "state"}"\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
            f"[store]\n{store}\n"
            f"[tier_state]\npartitions = 3\nreplication_factor = 1\n"
            f'[tiering]\ninclude = ["bench-.*"]\n[agent]\nlog_dirs = ["{kafka.brokers[0].log_dir}"]\n'
            f'[management]\nlisten = "127.0.0.1:0"\n{more}'
        )
        self._agent("init")

    def _agent(self, *command: str) -> None:
        if run([*command, "--config", str(self.settings)]) != 0:
            raise SystemExit(f"tierstate {command[0]} failed")

    def fill(self, topic: str, value_bytes: int, codec: str, count: int, **more: str) -> str:
        """``more`` is the topic's configuration."""
        config = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", **more}
        admin = AdminClient({**self._kafka.client_config})
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
        producer = Producer({**self._kafka.client_config, "compression.type": codec, "linger.ms": 50})
        for number, value in enumerate(_values(value_bytes, count)):
            producer.produce(topic, value, b"%08d" % number)
            while number % 1000 == 0 and len(producer) > 20_000:
                producer.poll(0.1)
        # what has not rolled is not copied
        for _ in range(2 * SEGMENT_BYTES // 900_000):
            producer.produce(topic, os.urandom(900_000))
            producer.poll(0.01)
        producer.flush(120)
        self.copy()
        return topic

    def copy(self) -> None:
        """Copy the segments that have rolled."""
        self._agent("agent", "--once")

    def add_segments(self, topic: str, count: int) -> None:
        """Add facts of copied segments past the end of the real ones: readers know them, and never read them."""
        settings = {"kafka.bootstrap.servers": self._kafka.bootstrap, "store.url": self._store, **FOR_READERS}
        with Connection(settings_from(settings)) as connection:
            partition = find_partition(connection.broker.control, topic, 0)
            term = connection.view([partition]).partition(partition).term
            number = tier_partition_of(partition, connection.topic.mapped_partitions)
        assert term is not None
        producer = Producer({**self._kafka.client_config, "linger.ms": 50})
        for fact in _moved(facts_of(0, count, Position(0)), partition, topic, term):
            producer.produce(FACTS, encode_fact(fact), key_of(fact), partition=number)
            producer.poll(0)
        producer.flush(120)

    def consumed(self, tiered: bool, topic: str, count: int) -> Consumed:
        """Consume in a new process."""
        config: dict[str, Any] = {
            **self._kafka.client_config,
            "group.id": f"bench-{tiered}",
            "enable.auto.commit": False,
        }
        config |= {"auto.offset.reset": "earliest", "check.crcs": True}
        if tiered:
            config |= {"tiered.mode": "tiered_storage_only", "tierstate.store.url": self._store}
        request = json.dumps([tiered, topic, count, config])
        command = [sys.executable, str(Path(__file__).with_name("consuming.py")), request]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return Consumed(**json.loads(done.stdout.splitlines()[-1]))


def _values(size: int, count: int) -> Iterator[bytes]:
    chance = random.Random(7)
    words = [chance.randbytes(chance.randint(3, 9)) for _ in range(2000)]
    made = [b"".join(chance.choice(words) for _ in range(size // 5))[:size] for _ in range(min(count, DISTINCT))]
    return islice(cycle(made), count)


def _moved(facts: Iterator[Fact], partition: TopicIdPartition, topic: str, term: Term) -> Iterator[Fact]:
    """Move the segments to an existing partition, far above its end."""
    base = 1 << 40

    def above(offsets: OffsetRange) -> OffsetRange:
        return OffsetRange(Offset(offsets.start + base), Offset(offsets.end + base))

    for fact in facts:
        if isinstance(fact, SegmentCopyStarted):
            of = fact.attempt
            yield replace(
                fact, attempt=replace(of, partition=partition, topic=topic, term=term, offsets=above(of.offsets))
            )
        elif isinstance(fact, SegmentCopyFinished):
            segment = fact.segment
            offsets = above(segment.offsets)
            moved = replace(
                segment, partition=partition, topic=topic, term=term, offsets=offsets, last_record_offset=offsets.end
            )
            yield replace(fact, segment=moved)

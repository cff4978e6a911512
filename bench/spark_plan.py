"""What Spark's driver does before a query begins: replay the tier-state topic, route, and cut into partitions.

Segments of 1 GB, 50 tier-state partitions on a real broker, Spark partitions of 256 MiB. Memory is the peak of the
whole process; "of it the plan" is the part that the JVM keeps as well. One run each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.facts import Fact, LeaderElected, LogStartAdvanced
from tierstate.state.keys import key_of, tier_partition_of
from tierstate.state.offsets import Offset, Position
from tierstate.state.segment import Term

from .recorded_topic import NOW_MS, TIER_PARTITIONS, facts_of, partition_of
from .rows import Row

CASES = ((10_000, 10, "<= 4"), (100_000, 10, "<= 45"), (100_000, 1, "<= 45"))
"""Segments, their user partitions, and the goal."""


def measure(quick: bool = False) -> list[Row]:
    """About 5 minutes, 1 GB of disk."""
    rows: list[Row] = []
    for segments, partitions, goal in CASES:
        segments = segments // 100 if quick else segments
        with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name, KafkaSandbox() as kafka:
            spec = TierTopicSpec("_tiers", TIER_PARTITIONS, 1)
            create_tier_topic(kafka.client_config, spec, NOW_MS)
            for number in range(partitions):
                _say(kafka.client_config, spec.name, _facts(number, segments // partitions))
            topic_id = partition_of(0).topic_id
            options = {
                "kafka.bootstrap.servers": kafka.bootstrap,
                "tierstate.store": Path(name).as_uri(),
                "tierstate.tier_state_topic": spec.name,
                "assign": json.dumps({topic_id: list(range(partitions))}),
            }
            command = [sys.executable, "-m", "bench.spark_plan", json.dumps(options)]
            process = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        figures = json.loads(process.stdout)
        if figures["spark_partitions"] < 3 * segments:
            raise SystemExit(f"{figures['spark_partitions']} Spark partitions of {segments} segments")
        what = f"{segments:,} segments in {partitions} partition{'s' if partitions > 1 else ''}"
        print(f"  {what}: {figures}", file=sys.stderr, flush=True)
        rows += [
            Row(f"plan of {what}, CPU", figures["cpu_s"], "s", goal=goal),
            Row(f"plan of {what}, peak memory", figures["peak_mib"], "MiB"),
            Row(f"plan of {what}, of it the plan", figures["plan_mib"], "MiB"),
        ]
    return rows


def _facts(number: int, segments: int) -> Iterator[Fact]:
    """Yield `facts_of`, and the fact that the log begins at 0."""
    facts = facts_of(number, segments, Position(0))
    elected = next(facts)
    assert isinstance(elected, LeaderElected)
    yield elected
    term = Term(elected.epoch, Position(0), elected.id)
    yield LogStartAdvanced(partition_of(number), Offset(0), term, 0, "first term", NOW_MS)
    yield from facts


def _say(kafka: dict[str, str], topic: str, facts: Iterator[Fact]) -> None:
    """Append the facts of one user partition, from position 0 of its tier-state partition, which has no other facts."""
    producer: Any = Producer({**kafka, "log_level": 0, "linger.ms": 50, "queue.buffering.max.kbytes": 262_144})
    partition = None
    for at, fact in enumerate(facts):
        if partition is None:
            assert isinstance(fact, LeaderElected)
            partition = tier_partition_of(fact.partition, TIER_PARTITIONS)
        while True:
            try:
                producer.produce(topic, encode_fact(fact), key_of(fact), partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        if at % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def main(given: str) -> None:
    from tierstate.spark.batch import BatchReader, SplitGroup
    from tierstate.spark.options import parse_options

    planned = BatchReader(parse_options(json.loads(given))).partitions()
    plan = sum(len(each.value) for each in planned if isinstance(each, SplitGroup))
    figures = {
        "spark_partitions": len(planned),
        "cpu_s": time.process_time(),
        "peak_mib": _peak_mib(),
        "plan_mib": plan / 2**20,
    }
    print(json.dumps(figures))


def _peak_mib() -> float:
    """Return this program's own peak: `getrusage` never reports less than the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(sys.argv[1])

"""Latency of a producer while an agent copies with ``copy.quota = "50MB"`` and the shipped ``CPUWeight=20``.

The producer sends 2,000 records of 1 KB a second with acks=all and linger 0. The agent copies other partitions into a
directory on the same disk. Pairs of runs of 24 s.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.storage.object_store import MIB

from .agent_site import RunningAgent, Site, bytes_below, cpu_s, pid_of, until
from .rows import Row

PARTITIONS, SEGMENT_BYTES, SEGMENTS = 4, 64 * MIB, 6
RATE, VALUE_BYTES = 2000, 1000
SECONDS, PAIRS = 24.0, 5
BACKLOG, LIVE = "backlog", "live"
NICE = 7
"""A fifth of the weight of a process that is not nice."""


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds; CPU in per cent of one core; ``copied``: bytes a second that the agent stored during the run."""

    median_ms: float
    p99_ms: float
    cpu: float
    copied: float


def measure(quick: bool = False) -> list[Row]:
    """About 6 minutes, 4 GiB of disk."""
    pairs, seconds, segment_bytes = (1, 3.0, 16 * MIB) if quick else (PAIRS, SECONDS, SEGMENT_BYTES)
    ours: list[Run] = []
    alone: list[Run] = []
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        site = Site(kafka, folder / "site")
        site.create(BACKLOG, PARTITIONS, segment_bytes)
        site.create(LIVE, 1, 1024 * MIB)
        site.fill(BACKLOG, PARTITIONS, segment_bytes, SEGMENTS)
        _produce(kafka, 3.0)  # the broker's code is warm
        for pair in range(pairs):
            for copying in (False, True) if pair % 2 else (True, False):
                (ours if copying else alone).append(_with_agent(site, seconds) if copying else _run(kafka, seconds))
    worse = statistics.median(with_it.p99_ms / without.p99_ms for with_it, without in zip(ours, alone, strict=True))
    return [
        _row("producer's median latency with a copying agent", ours, alone, "median_ms", "ms, less is better"),
        _row("producer's p99 latency with a copying agent", ours, alone, "p99_ms", "ms, less is better"),
        _row("CPU of producer, broker and agent", ours, alone, "cpu", "% of a core, less is better"),
        Row("what the agent stored", statistics.median(run.copied for run in ours) / 1e6, "MB/s"),
        Row("p99 with the agent to p99 without, median over pairs", worse, "x", goal="<= 1.1"),
    ]


def _row(what: str, ours: list[Run], alone: list[Run], figure: str, unit: str) -> Row:
    def median(runs: list[Run]) -> float:
        return float(statistics.median(getattr(run, figure) for run in runs))

    return Row(what, median(ours), unit, median(alone), "the same without an agent")


def _with_agent(site: Site, seconds: float) -> Run:
    config = site.begin(BACKLOG, copy='quota = "50MB"\nlag = "0s"', format='compression = "none"')
    try:
        with RunningAgent(config, NICE) as agent:
            until(lambda: bytes_below(config.parent / "store") > 60e6)  # the work of its first second is done
            return _run(site.kafka, seconds, agent, config.parent / "store")
    finally:
        site.end(config)


def _run(kafka: KafkaSandbox, seconds: float, agent: RunningAgent | None = None, store: Path | None = None) -> Run:
    broker, stored = pid_of(kafka), bytes_below(store) if store else 0
    before = cpu_s(broker) + (cpu_s(agent.process.pid) if agent else 0)
    began, own = time.perf_counter(), time.process_time()
    took = sorted(_produce(kafka, seconds))
    lasted = time.perf_counter() - began
    cpu = cpu_s(broker) + (cpu_s(agent.process.pid) if agent else 0) - before + time.process_time() - own
    copied = (bytes_below(store) - stored) / lasted if store else 0.0
    run = Run(took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3, 100 * cpu / lasted, copied)
    print(f"  {'with' if agent else 'without'}: {run}", file=sys.stderr, flush=True)
    return run


def _produce(kafka: KafkaSandbox, seconds: float) -> list[float]:
    """Return the seconds that each record took."""
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 0, "acks": "all"})
    value, took = b"v" * VALUE_BYTES, list[float]()
    producer.list_topics(timeout=30)
    began = time.perf_counter()
    for number in range(round(seconds * RATE)):
        while (left := began + number / RATE - time.perf_counter()) > 0:
            producer.poll(min(left, 0.001))
        sent = time.perf_counter()

        def acknowledged(error: Any, message: Any, sent: float = sent) -> None:
            if error is not None:
                raise SystemExit(f"a record was not taken: {error}")
            took.append(time.perf_counter() - sent)

        producer.produce(LIVE, value, partition=0, on_delivery=acknowledged)
        producer.poll(0)
    assert producer.flush(60) == 0
    return took

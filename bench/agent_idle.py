"""CPU and memory of an idle agent, and how soon a rolled segment is readable.

200 topics of 10 empty partitions, a directory as the store. CPU is that of one core, in the second minute after the
start, and settled after 15 minutes. Readable is counted from the acknowledgement of the record that rolls the segment.
One run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.sandbox.kafka import KafkaSandbox

from .rows import Row

TOPICS, PARTITIONS = 200, 10
ROLLS = 20
SEGMENT_BYTES, BATCH_BYTES = 200_000, 50_000
EARLY = (60.0, 60.0)
"""Seconds after it is ready, and the length of the interval."""
SETTLED = (900.0, 300.0)
BETWEEN_ROLLS_S = 2.37
"""No periodic task of whole seconds is met at the same point of its period twice in a row."""
TIMERS = {
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.retention.check.interval.ms": "300000",
    "log.cleaner.backoff.ms": "15000",
}
TIERSTATE = [sys.executable, "-m", "tierstate.cli.main"]


def measure(quick: bool = False) -> list[Row]:
    """About 22 minutes and 1 GB of memory, most of it the broker's."""
    topics, rolls = (5, 3) if quick else (TOPICS, ROLLS)
    early, settled = ((5.0, 5.0), (10.0, 5.0)) if quick else (EARLY, SETTLED)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(properties=TIMERS))
        config = _settings(folder, kafka)
        subprocess.run([*TIERSTATE, "init", "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
        _create(kafka, topics)
        agent = opened.enter_context(_Agent(folder, config))
        began = time.monotonic()
        shown = {}
        for name, (after, window) in (("early", early), ("settled", settled)):
            time.sleep(max(0.0, began + after - time.monotonic()))
            shown[name] = agent.busy(window)
            print(f"  {name}: {shown[name]:.2f} % of a core, {agent.rss_mib():.0f} MiB", file=sys.stderr, flush=True)
        rss = agent.rss_mib()
        took = sorted(_rolls(kafka, agent, rolls))
    number = topics * PARTITIONS
    return [
        Row(f"CPU of an idle agent, {number:,} partitions, settled", shown["settled"], "% of a core", goal="< 1"),
        Row(f"the same, {early[0] / 60:.0f} min after its start", shown["early"], "% of a core"),
        Row("its memory (RSS)", rss, "MiB"),
        Row("from roll to readable, median", statistics.median(took), "s"),
        Row(f"from roll to readable, longest of {rolls}", took[-1], "s"),
    ]


class _Agent:
    """The agent's process and its log events."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._err = folder / "agent.err"
        with self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [*TIERSTATE, "agent", "--json", "--config", str(config)], stdout=subprocess.DEVNULL, stderr=err
            )

    def __enter__(self) -> _Agent:
        try:
            _until(lambda: self.events("agent ready"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self._err.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == name]

    def busy(self, seconds: float) -> float:
        """Return the CPU used over that time, in per cent of a core."""
        before = self._cpu_s()
        began = time.monotonic()
        time.sleep(seconds)
        return 100 * (self._cpu_s() - before) / (time.monotonic() - began)

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def _settings(folder: Path, kafka: KafkaSandbox) -> Path:
    (folder / "store").mkdir()
    config = folder / "tierstate.toml"
    config.write_text(
        f'state_dir = "{folder / "state"}"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[store]\nurl = "{(folder / "store").as_uri()}"\n'
        "[tier_state]\nreplication_factor = 1\n"
        '[tiering]\ninclude = ["idle-.*"]\n'
        f'[agent]\nlog_dirs = ["{kafka.brokers[0].log_dir}"]\n'
        '[management]\nlisten = "127.0.0.1:0"\n'
    )
    return config


def _create(kafka: KafkaSandbox, topics: int) -> None:
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    rolling = {"internal.segment.bytes": str(SEGMENT_BYTES)}
    new_topics = [NewTopic(f"idle-{number}", PARTITIONS, 1) for number in range(topics)]
    new_topics.append(NewTopic("idle-rolls", 1, 1, config=rolling))
    for at in range(0, len(new_topics), 20):
        for created in admin.create_topics(new_topics[at : at + 20], operation_timeout=60).values():
            created.result(90)


def _rolls(kafka: KafkaSandbox, agent: _Agent, rolls: int) -> list[float]:
    """Return the seconds from each roll to its event."""
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 0})
    folder = kafka.brokers[0].log_dir / "idle-rolls-0"
    took = []

    def copied_beyond(count: int) -> bool:
        return len(agent.events("segment copied")) > count

    for _ in range(rolls):
        copied, segments = len(agent.events("segment copied")), len(list(folder.glob("*.log")))
        while len(list(folder.glob("*.log"))) == segments:
            producer.produce("idle-rolls", os.urandom(BATCH_BYTES), partition=0)
            assert producer.flush(30) == 0
            rolled = time.time()
        _until(partial(copied_beyond, copied))
        copied_at = datetime.fromisoformat(agent.events("segment copied")[copied]["timestamp"])
        took.append(copied_at.timestamp() - rolled)
        time.sleep(BETWEEN_ROLLS_S)
    return took


def _until(look: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit("the agent did not get there")
        time.sleep(0.05)

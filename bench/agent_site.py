"""A real broker with something to copy, and the whole ``tierstate agent`` as a process next to it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.sandbox.kafka import KafkaSandbox

TIERSTATE = [sys.executable, "-m", "tierstate.cli.main"]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """The seconds that one process took, and its seconds of CPU."""

    seconds: float
    cpu_s: float


class Site:
    """``store``: the lines of section [store] without its name. Every run begins with an empty tier of its own."""

    def __init__(self, kafka: KafkaSandbox, folder: Path, store: str = "") -> None:
        self.kafka, self._folder, self._store = kafka, folder, store
        self._runs = 0

    @property
    def log_dir(self) -> Path:
        return self.kafka.brokers[0].log_dir

    def logs(self, topic: str) -> list[Path]:
        """Return the rolled segments of all partitions."""
        folders = sorted(self.log_dir.glob(f"{topic}-[0-9]*"))
        return [path for folder in folders for path in sorted(folder.glob("*.log"))[:-1]]

    def create(self, topic: str, partitions: int, segment_bytes: int, **config: str) -> None:
        settings = {"segment.bytes": str(segment_bytes), "retention.ms": "-1"}
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        admin: Any = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        new_topic = NewTopic(topic, partitions, 1, config=settings)
        admin.create_topics([new_topic], operation_timeout=30)[topic].result(60)

    def fill(self, topic: str, partitions: int, segment_bytes: int, segments: int, value_bytes: int = 1000) -> None:
        """Write rolled segments to each partition; values of random words, batches of 16 KiB or one record."""
        chance = random.Random(7)
        words = [chance.randbytes(chance.randint(3, 9)) for _ in range(2000)]
        values = [b"".join(chance.choices(words, k=value_bytes // 6)) for _ in range(500)]
        self.fill_with(values, topic, partitions, segments)

    def fill_with(self, values: Sequence[bytes], topic: str, partitions: int, segments: int) -> None:
        """Write rolled segments to each partition, of these values in turn; batches of 16 KiB or one record."""
        value_bytes = len(values[0])
        quick = {"queue.buffering.max.kbytes": 262_144, "linger.ms": 20, "batch.size": 16_384, "acks": 1}
        producer: Any = Producer({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0, **quick})
        at = 0
        while len(self.logs(topic)) < partitions * segments:
            for _ in range(max(1, 16_000_000 // value_bytes)):
                while True:
                    try:
                        producer.produce(topic, values[at % len(values)], partition=at % partitions)
                        break
                    except BufferError:
                        producer.poll(0.1)
                at += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def begin(self, topic: str, **settings: str) -> Path:
        """Begin a fresh tier for ``topic`` and return its settings file. ``settings``: more TOML of a section each."""
        self._runs += 1
        run = self._folder / f"run-{self._runs}"
        (run / "store").mkdir(parents=True)
        sections = {
            "kafka": f'"bootstrap.servers" = "{self.kafka.bootstrap}"',
            "store": self._store or f'url = "{(run / "store").as_uri()}"',
            "tier_state": f'topic = "_tiers-{self._folder.name}-{self._runs}"\npartitions = 2\nreplication_factor = 1',
            "tiering": f'include = ["{topic}"]',
            "agent": f'log_dirs = ["{self.log_dir}"]',
            "management": 'listen = "127.0.0.1:0"',
            **settings,
        }
        config = run / "tierstate.toml"
        text = "".join(f"[{name}]\n{lines}\n" for name, lines in sections.items())
        config.write_text(f'state_dir = "{run / "state"}"\n' + text)
        subprocess.run([*TIERSTATE, "init", "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
        return config

    def end(self, config: Path) -> None:
        shutil.rmtree(config.parent)

    def once(self, config: Path) -> Spent:
        """Run the agent until it has copied all there is."""
        return spent_by([*TIERSTATE, "agent", "--once", "--config", str(config)])


def spent_by(command: list[str]) -> Spent:
    """Run a command to its end and return what it spent, with its children."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors.decode())
    return Spent(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def pid_of(kafka: KafkaSandbox) -> int:
    pid = kafka.brokers[0].pid
    assert pid is not None
    return pid


class RunningAgent:
    """An agent that runs for as long as a ``with`` block lasts; it is ready when the block begins."""

    def __init__(self, config: Path, nice: int = 0) -> None:
        self._err = config.parent / "agent.err"
        with self._err.open("wb") as err:
            command = ["nice", "-n", str(nice), *TIERSTATE, "agent", "--json", "--config", str(config)]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err)

    def __enter__(self) -> RunningAgent:
        try:
            until(lambda: self.events("agent ready"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self._err.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == name]

    def memory(self) -> Mapping[str, float]:
        """Return MiB by the kernel's names: VmRSS now, VmHWM the peak."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        fields = [line.split() for line in lines if line.startswith(("VmRSS:", "VmHWM:"))]
        return {name.rstrip(":"): int(kib) / 1024 for name, kib, _ in fields}


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files, unfinished ones included."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # an unfinished object that is finished now
            continue
    return total


def until(look: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come about")
        time.sleep(0.05)

"""A plain Kafka consumer through ``tierstate proxy`` beside the same consumer at the broker.

confluent_kafka's `consume(1000)` of one partition, in a process of its own, wall time from its 10,000th record on; the
proxy is a process, its store a directory, all three processes and the broker share the machine, everything is in the
page cache. ``local``: a topic that the broker has wholly, through the proxy and directly. ``remote, warm``: the same
records of a trimmed topic through a proxy that has read them once (its chunk cache holds what fits), the peer is the
untrimmed twin at the broker. ``remote, cold``: by a proxy that has just started. The CPU is the proxy's, the peer's
that of the client in the same run. ``tail``: from `produce` to the record's `poll`, one record at a time, median of
300. ``crowd``: the tail's 99th percentile through a proxy that has 1,000 connections more, a third of them asking for
what they never read, a third sending a byte each second, beside the same proxy without them; and the proxy's memory
with them. Sides take turns, medians of five.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tierstate.sandbox.kafka import KafkaSandbox

from .consumer import SIZES, WARM, TieredPlace
from .rows import RUNS, Row

DIRECT = "the same client, at the broker"
TICKS = os.sysconf("SC_CLK_TCK")
RECORDS_OF_TAIL = 300
CROWD = 1_000


@dataclass(frozen=True, slots=True)
class Read:
    """One run: records a second, CPU seconds of the client and of the proxy."""

    rate: float
    client_cpu: float
    proxy_cpu: float = 0.0


def measure(quick: bool = False) -> list[Row]:
    """Rates, CPU, and the tail."""
    rows: list[Row] = []
    runs = 1 if quick else RUNS
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder, KafkaSandbox() as kafka:
        place = TieredPlace(kafka, Path(folder), '[trim]\ndelay = "0s"\nrespect_groups = false\n')
        for number, (what, (value_bytes, codec, count)) in enumerate(SIZES.items()):
            count = count // 20 if quick else count
            for topic, more in ((f"bench-{number}", {"local.retention.bytes": "1"}), (f"twin-{number}", {})):
                place.fill(topic, value_bytes, codec, count, **more)
            rows += _of_size(place, kafka.bootstrap, number, what, count * 3 // 4, runs)
        with _proxy(place) as (bootstrap, _):
            sides: list[tuple[str, list[float]]] = [(kafka.bootstrap, []), (bootstrap, [])]
            for _ in range(runs):
                for at, found in sides:
                    found.append(statistics.median(_tail(at, RECORDS_OF_TAIL // 20 if quick else RECORDS_OF_TAIL)))
            direct, through = (statistics.median(found) * 1e3 for _, found in sides)
            rows.append(Row("tail, p50 of produce to poll", through, "ms, less is better", direct, DIRECT, "≤ 1.5x"))
        with _proxy(place) as (bootstrap, pid):
            rows += _beside_a_crowd(bootstrap, pid, 30 if quick else CROWD, runs)
    return rows


def _beside_a_crowd(bootstrap: str, pid: int, size: int, runs: int) -> list[Row]:
    quiet: list[float] = []
    crowded: list[float] = []
    before = _resident(pid)
    for _ in range(runs):
        quiet.append(_p99(_tail(bootstrap, RECORDS_OF_TAIL)))
        with _crowd(bootstrap, size):
            crowded.append(_p99(_tail(bootstrap, RECORDS_OF_TAIL)))
            most = _resident(pid)
    beside, alone = statistics.median(crowded) * 1e3, statistics.median(quiet) * 1e3
    return [
        Row(f"tail, p99 beside {size:,} connections", beside, "ms, less is better", alone, "without them", "≤ 2x"),
        Row("the proxy's memory with them", most / 2**20, "MiB, less is better", before / 2**20, "before"),
    ]


@contextmanager
def _crowd(bootstrap: str, size: int) -> Iterator[None]:
    """In a process of its own, until the block ends."""
    command = [sys.executable, "-m", "bench.proxy", "crowd", bootstrap, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()


def _stand_about(bootstrap: str, size: int) -> None:
    """Until somebody closes the standard input."""
    host, _, port = bootstrap.rpartition(":")
    topic = b"twin-0"
    fetch = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiib", -1, 500, 1, 1 << 26, 0)
    fetch += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iiqi", 1, 0, 0, 1 << 26)
    connections = [socket.create_connection((host, int(port))) for _ in range(size)]
    for connection in connections[::3]:
        connection.sendall(struct.pack(">i", len(fetch)) + fetch)
    print("there", flush=True)
    at = 0
    dribbling = struct.pack(">ihhih", 1 << 20, 18, 0, 1, 30_000)
    while not _over(1.0):
        for connection in connections[1::3]:
            connection.sendall(dribbling[at : at + 1] or b"x")
        at += 1


def _over(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def _resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _p99(waited: list[float]) -> float:
    return sorted(waited)[len(waited) * 99 // 100]


def _of_size(place: TieredPlace, broker: str, number: int, what: str, count: int, runs: int) -> list[Row]:
    tiered, twin = f"bench-{number}", f"twin-{number}"
    found: dict[str, list[Read]] = {name: [] for name in ("direct", "local", "warm", "cold")}
    with _proxy(place) as (bootstrap, pid):
        _read(bootstrap, tiered, count, pid)
        for _ in range(runs):
            found["direct"].append(_read(broker, twin, count))
            found["local"].append(_read(bootstrap, twin, count, pid))
            found["warm"].append(_read(bootstrap, tiered, count, pid))
    for _ in range(runs):
        with _proxy(place) as (bootstrap, pid):
            found["cold"].append(_read(bootstrap, tiered, count, pid))
    rate = {name: statistics.median(each.rate for each in reads) for name, reads in found.items()}
    rows = [
        Row(f"{title}, {what}", rate[name], "records/s", rate["direct"], DIRECT, goal)
        for name, title, goal in (
            ("local", "local through the proxy", "≥ 0.9x"),
            ("warm", "remote, warm", "≥ 0.8x"),
            ("cold", "remote, cold", ""),
        )
    ]
    for name in ("local", "warm"):
        ours = statistics.median(each.proxy_cpu for each in found[name]) * 1e6 / count
        peer = statistics.median(each.client_cpu for each in found[name]) * 1e6 / count
        rows.append(Row(f"CPU, {name}, {what}", ours, "µs/record, less is better", peer, "the client", "≤ 0.15x"))
    return rows


@contextmanager
def _proxy(place: TieredPlace) -> Iterator[tuple[str, int]]:
    """Its address and its process id."""
    command = [sys.executable, "-m", "tierstate.cli.main", "proxy", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        [*command, "--config", str(place.settings)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], process.pid
        finally:
            process.terminate()


def _read(bootstrap: str, topic: str, count: int, proxy: int | None = None) -> Read:
    """By a process of its own."""
    before = 0.0 if proxy is None else _cpu(proxy)
    command = [sys.executable, "-m", "bench.proxy", json.dumps([bootstrap, topic, count])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = 0.0 if proxy is None else _cpu(proxy)
    rate, client = json.loads(done.stdout.splitlines()[-1])
    return Read(rate, client, after - before)


def _cpu(pid: int) -> float:
    """Seconds, user and system, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _consume(bootstrap: str, topic: str, count: int) -> tuple[float, float]:
    found, began, cpu = 0, 0.0, time.process_time()
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    with closing(Consumer({**config, "auto.offset.reset": "error"})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while found < count:
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    raise SystemExit(message.error().str())
                message.value()
                found += 1
            if not began and found >= WARM:
                began, at = time.monotonic(), found
        rate = (found - at) / (time.monotonic() - began)
    return rate, time.process_time() - cpu


def _tail(bootstrap: str, count: int) -> list[float]:
    """Seconds of each record."""
    waited: list[float] = []
    config = {"bootstrap.servers": bootstrap, "group.id": "tail", "auto.offset.reset": "latest"}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    with closing(Consumer({**config, "fetch.queue.backoff.ms": 1})) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition("twin-0", 0), 20)[1]
        consumer.assign([TopicPartition("twin-0", 0, end)])
        for number in range(count + 20):
            began = time.monotonic()
            producer.produce("twin-0", b"x" * 100, partition=0)
            producer.poll(0)
            while (message := consumer.poll(5.0)) is None or message.error() is not None:
                pass
            if number >= 20:
                waited.append(time.monotonic() - began)
    return waited


if __name__ == "__main__" and sys.argv[1] == "crowd":
    _stand_about(sys.argv[2], int(sys.argv[3]))
elif __name__ == "__main__":
    print(json.dumps(_consume(*json.loads(sys.argv[1]))))

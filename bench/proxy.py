"""A plain Kafka consumer through ``tierstate proxy``, compared with the other places that it could read from.

The client is confluent_kafka's `consume(1000)` of one partition, by wall time.

- ``local``: the broker has the whole topic. Kroxylicious is version 0.12.0 without filters. The relay
  (`bench/relay/relay.c`) receives and sends every byte, and inspects nothing.
- ``remote, warm``: the proxy has the records in memory; ``remote, cold``: it has just started. The same client at
  the broker reads an untrimmed twin. Kafka's own tiers (KIP-405) use `LocalTieredStorage`.
- ``CPU``: that of the proxy, compared with the client's.
- ``tail``: from `produce` to the record's `poll`, one record at a time; with 1,000 more connections, of which a third
  reads nothing, and a third sends one byte a second.
- ``Fetch, cold, from S3``: 4 MiB, not decoded, compared with boto3 `get_object` of the same ranges. "Far": 30 ms of
  delay, 50 MB/s a connection.
- ``first record``: from `assign` of a remote offset to the first record, through a proxy that has just started.
- ``local with remote``: one local and two remote partitions.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.store_server import toxiproxy
from tierstate.sandbox.kafka import KafkaSandbox

from .agent_site import cpu_s
from .bucket import BUCKET, Bucket, bucket, client_of
from .consumer import SIZES, TieredPlace
from .kroxylicious import kroxylicious
from .native_tiers import kafkas_own_tiers
from .proxy_clients import FETCH_BYTES, Read, crowd, fetched, first, read, resident, tail
from .ranged_reads import far
from .relay import relay
from .rows import RUNS, Row

DIRECT = "the broker"
KROXYLICIOUS = "Kroxylicious"
RELAY = "through a relay in C"
KIP_405 = "Kafka's own tiers"
RECORDS_OF_TAIL = 300
CROWD = 1_000
LATE_MS = 1_000
EAGER = '[trim]\ndelay = "0s"\nrespect_groups = false\n'
WARM = '[cache]\nmemory = "1GiB"\n'
"""Room for the largest topic. A smaller cache would have dropped each chunk before it is read again."""
TRIMMED = {"local.retention.bytes": "1"}


def measure(quick: bool = False) -> list[Row]:
    """The run takes about 12 minutes."""
    runs = 1 if quick else RUNS
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        with KafkaSandbox(properties=kafkas_own_tiers(folder / "kip405")) as kafka:
            rows = _from_a_directory(kafka, folder, runs, quick)
        with KafkaSandbox() as kafka, bucket(folder) as s3:
            return rows + _from_s3(kafka, folder, s3, runs, quick)


def _from_a_directory(kafka: KafkaSandbox, folder: Path, runs: int, quick: bool) -> list[Row]:
    with relay(kafka, folder) as (relayed, _):
        return _beside_peers(kafka, relayed, folder, runs, quick)


def _beside_peers(kafka: KafkaSandbox, relayed: str, folder: Path, runs: int, quick: bool) -> list[Row]:
    rows: list[Row] = []
    place = TieredPlace(kafka, folder, EAGER + WARM)
    for number, (what, (value_bytes, codec, count)) in enumerate(SIZES.items()):
        count = count // 20 if quick else count
        kafkas = {"remote.storage.enable": "true", **TRIMMED}
        for topic, more in ((f"bench-{number}", TRIMMED), (f"twin-{number}", {}), (f"kafka-{number}", kafkas)):
            place.fill(topic, value_bytes, codec, count, **more)
        _wait_for_the_trim(kafka.brokers[0].log_dir / f"kafka-{number}-0", count * 3 // 4)
        rows += _of_size(place, kafka.bootstrap, relayed, folder, number, what, count * 3 // 4, runs)
    records = RECORDS_OF_TAIL // 20 if quick else RECORDS_OF_TAIL
    with _proxy(place.settings) as (bootstrap, _), kroxylicious(kafka.bootstrap, folder) as (other, _):
        sides: dict[str, list[float]] = {at: [] for at in (kafka.bootstrap, bootstrap, other, relayed)}
        for _ in range(runs):
            for at, latencies in sides.items():
                latencies.append(statistics.median(tail(at, "twin-0", records)))
        direct, through, kroxy, bare = (statistics.median(latencies) * 1e3 for latencies in sides.values())
        unit = "ms, less is better"
        rows.append(Row("tail, p50 of produce to poll", through, unit, direct, DIRECT, "≤ 1.5x"))
        rows.append(Row("tail, p50 of produce to poll", through, unit, bare, RELAY, "≤ 1.15x"))
        rows.append(Row("tail, p50 of produce to poll", through, unit, kroxy, KROXYLICIOUS, "≤ 1x"))
    with _proxy(place.settings) as (bootstrap, pid):
        return rows + _beside_a_crowd(bootstrap, pid, 30 if quick else CROWD, runs)


def _of_size(
    place: TieredPlace, broker: str, relayed: str, folder: Path, number: int, what: str, count: int, runs: int
) -> list[Row]:
    tiered, twin = f"bench-{number}", f"twin-{number}"
    sides = ("direct", "local", "relay", "warm", "other", "cold", "kafka")
    measured: dict[str, list[Read]] = {name: [] for name in sides}
    with _proxy(place.settings) as (bootstrap, pid), kroxylicious(broker, folder) as (other, java):
        read(bootstrap, tiered, count, pid)
        read(other, twin, count, java)
        for _ in range(runs):
            measured["direct"].append(read(broker, twin, count))
            measured["local"].append(read(bootstrap, twin, count, pid))
            measured["relay"].append(read(relayed, twin, count))
            measured["other"].append(read(other, twin, count, java))
            measured["warm"].append(read(bootstrap, tiered, count, pid))
    for _ in range(runs):
        measured["kafka"].append(read(broker, f"kafka-{number}", count))
        with _proxy(place.settings) as (bootstrap, pid):
            measured["cold"].append(read(bootstrap, tiered, count, pid))
    rate = {name: statistics.median(each.rate for each in reads) for name, reads in measured.items()}
    rows = [
        Row(f"{title}, {what}", rate[name], "records/s", rate[peer], peer_is, goal)
        for name, title, peer, peer_is, goal in (
            ("local", "local through the proxy", "relay", RELAY, "≥ 0.95x"),
            ("local", "local through the proxy", "direct", DIRECT, ""),
            ("local", "local through the proxy", "other", KROXYLICIOUS, "≥ 1x"),
            ("warm", "remote, warm", "relay", RELAY, "≥ 0.95x"),
            ("warm", "remote, warm", "direct", DIRECT, ""),
            ("cold", "remote, cold", "direct", DIRECT, ""),
            ("cold", "remote, cold", "kafka", KIP_405, "≥ 1.2x"),
        )
    ]
    for name in ("local", "warm", "other"):
        ours = statistics.median(each.proxy_cpu for each in measured[name]) * 1e6 / count
        peer = statistics.median(each.client_cpu for each in measured[name]) * 1e6 / count
        title = "Kroxylicious" if name == "other" else name
        rows.append(Row(f"CPU, {title}, {what}", ours, "µs/record, less is better", peer, "the client"))
    warm, local = (statistics.median(each.proxy_cpu for each in measured[name]) for name in ("warm", "local"))
    unit = "µs/record, less is better"
    rows.append(Row(f"CPU, warm, {what}", warm * 1e6 / count, unit, local * 1e6 / count, "local", "≤ 1x"))
    return rows


def _beside_a_crowd(bootstrap: str, pid: int, size: int, runs: int) -> list[Row]:
    quiet: list[float] = []
    crowded: list[float] = []
    before = resident(pid)
    for _ in range(runs):
        quiet.append(_p99(tail(bootstrap, "twin-0", RECORDS_OF_TAIL)))
        with crowd(bootstrap, "twin-0", size):
            crowded.append(_p99(tail(bootstrap, "twin-0", RECORDS_OF_TAIL)))
            most = resident(pid)
    beside, alone = statistics.median(crowded) * 1e3, statistics.median(quiet) * 1e3
    return [
        Row(f"tail, p99 with {size:,} connections", beside, "ms, less is better", alone, "without them", "≤ 2x"),
        Row("the proxy's memory with them", most / 2**20, "MiB, less is better", before / 2**20, "before"),
    ]


def _p99(sorted_: list[float]) -> float:
    return sorted_[len(sorted_) * 99 // 100]


def _from_s3(kafka: KafkaSandbox, folder: Path, s3: Bucket, runs: int, quick: bool) -> list[Row]:
    place = TieredPlace(kafka, folder / "s3", EAGER, s3.section)
    value_bytes, codec, count = SIZES["1 KB lz4"]
    count = count // 20 if quick else count
    for topic, more in (("bench-0", TRIMMED), ("bench-1", TRIMMED), ("twin-0", {})):
        place.fill(topic, value_bytes, codec, count, **more)
    count = count * 3 // 4
    rows = _cold(place.settings, s3, s3.server.url, "from S3", count, runs)
    rows.append(_first_record(place.settings, s3, s3.server.url, "near", runs))
    rows += _cold(place.settings, s3, s3.server.url, "from S3, after others", count, runs, before="bench-1")
    with toxiproxy(folder) as slow:
        away = far(slow.url, s3.server.address)
        settings = by_way_of(place.settings, s3, away)
        rows += _cold(settings, s3, away, "from S3, far", count, min(runs, 3))[:1]
        rows.append(_first_record(settings, s3, away, "far", runs))
    with toxiproxy(folder) as slow:
        late = by_way_of(place.settings, s3, far(slow.url, s3.server.address, LATE_MS, None))
        hot: list[float] = []
        alone: list[float] = []
        for _ in range(runs):
            with _proxy(late) as (bootstrap, _):
                alone.append(read(bootstrap, "twin-0", count, beside=()).rate)
                hot.append(read(bootstrap, "twin-0", count, beside=("bench-0", "bench-1")).rate)
    beside, peer = statistics.median(hot), statistics.median(alone)
    rows.append(Row("local with remote, store 1 s late", beside, "records/s", peer, "alone", "≥ 0.9x"))
    return rows


def by_way_of(settings: Path, s3: Bucket, endpoint: str) -> Path:
    """Return the same settings with another endpoint of the store."""
    made = settings.with_name(f"{endpoint.rpartition(':')[2]}.toml")
    made.write_text(settings.read_text().replace(s3.server.url, endpoint))
    return made


def _cold(
    settings: Path, s3: Bucket, endpoint: str, where: str, count: int, runs: int, before: str | None = None
) -> list[Row]:
    """``before`` is the topic that each proxy reads first. Then the cache is full of records that are not asked for."""
    bare, ours = list[_Cold](), list[_Cold]()
    for _ in range(runs):
        bare.append(_bare_gets(s3, endpoint))
        with _proxy(settings) as (bootstrap, pid):
            if before is not None:
                fetched(bootstrap, before, count)
            cpu = cpu_s(pid)
            size, rate = fetched(bootstrap, "bench-0", count)
            ours.append(_Cold(rate, (cpu_s(pid) - cpu) / size))
    rates = [statistics.median(each.rate for each in measured) / 1e6 for measured in (ours, bare)]
    costs = [statistics.median(each.cpu for each in measured) * 1e9 for measured in (ours, bare)]
    return [
        Row(f"Fetch, cold, {where}", rates[0], "MB/s", rates[1], "bare GETs", "≥ 0.75x"),
        Row(
            f"CPU, Fetch, cold, {where}",
            costs[0],
            "ms/MB, less is better",
            costs[1],
            "bare GETs",
            "≤ 1.3x",
        ),
    ]


def _first_record(settings: Path, s3: Bucket, endpoint: str, where: str, runs: int) -> Row:
    client, key = client_of(endpoint), _objects(s3)[0]
    ours, bare = list[float](), list[float]()
    for _ in range(runs):
        began = time.monotonic()
        client.get_object(Bucket=BUCKET, Key=key, Range="bytes=0-0")["Body"].read()
        bare.append(time.monotonic() - began)
        with _proxy(settings) as (bootstrap, _):
            ours.append(first(bootstrap, "bench-0"))
    peer = statistics.median(bare[1:] or bare) * 1e3
    what, unit = f"first record, cold, from S3, {where}", "ms, less is better"
    return Row(what, statistics.median(ours) * 1e3, unit, peer, "a GET of one byte", f"≤ {peer + 50:.0f} ms")


def _objects(s3: Bucket) -> list[str]:
    return [str(path.relative_to(s3.folder)) for path in s3.folder.rglob("*.log") if "/bench-0-" in str(path)]


@dataclass(frozen=True, slots=True)
class _Cold:
    """Bytes a second, and CPU seconds a byte."""

    rate: float
    cpu: float


def _bare_gets(s3: Bucket, endpoint: str) -> _Cold:
    client = client_of(endpoint)
    began, cpu, total = time.monotonic(), time.process_time(), 0
    for key in _objects(s3):
        size = (s3.folder / key).stat().st_size
        for at in range(0, size, FETCH_BYTES):
            byte_range = f"bytes={at}-{min(size, at + FETCH_BYTES) - 1}"
            total += len(client.get_object(Bucket=BUCKET, Key=key, Range=byte_range)["Body"].read())
    return _Cold(total / (time.monotonic() - began), (time.process_time() - cpu) / total)


def _wait_for_the_trim(folder: Path, past: int) -> None:
    """Wait until Kafka itself has copied and dropped the records before ``past``."""
    deadline = time.monotonic() + 300
    while min(int(path.stem) for path in folder.glob("*.log")) < past:
        if time.monotonic() > deadline:
            raise SystemExit(f"Kafka's own tiers still have segments below {past:,} in {folder}")
        time.sleep(1)


@contextmanager
def _proxy(settings: Path) -> Iterator[tuple[str, int]]:
    """Start a proxy and yield its address and its process id."""
    command = [sys.executable, "-m", "tierstate.cli.main", "proxy", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        [*command, "--config", str(settings)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], process.pid
        finally:
            process.terminate()

"""How fast ``tierstate agent --once`` copies a backlog of 1 GiB: 8 partitions of a real broker, segments of 64 MiB.

A run with nothing left to copy is subtracted. The store is a directory on the broker's disk, or S3 (a versitygw on this
machine, without its CPU). Peers: `shutil.copyfile` and fsync; boto3's `upload_file`, four files at a time; and Kafka's
own remote log manager with `LocalTieredStorage`. Medians of three runs.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.storage.object_store import MIB

from .agent_site import Site, Spent, cpu_s, pid_of, spent_by, until
from .bucket import BUCKET, KEYS, REGION, Bucket, bucket
from .native_tiers import kafkas_own_tiers
from .rows import Row

PARTITIONS, SEGMENT_BYTES, SEGMENTS = 8, 64 * MIB, 2
QUICK_BYTES = 4 * MIB
RUNS = 3
TOPIC = "copied"
BARE = """
import os, shutil, sys
into = sys.argv[1]
for number, path in enumerate(sys.argv[2:]):
    target = os.path.join(into, f"{number}.log")
    shutil.copyfile(path, target)
    for each in (target, into):
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
"""
"""An object that is not fsynced, and its folder, would be lost in a power loss."""
BARE_S3 = """
import sys
from concurrent.futures import ThreadPoolExecutor
import boto3
endpoint, bucket, access, secret, region = sys.argv[1:6]
client = boto3.Session(access, secret, region_name=region).client("s3", endpoint_url=endpoint)
def upload(each):
    client.upload_file(each[1], bucket, f"bare/{each[0]}.log")
with ThreadPoolExecutor(4) as pool:
    list(pool.map(upload, enumerate(sys.argv[6:])))
"""


def measure(quick: bool = False) -> list[Row]:
    """About 5 minutes, 7 GiB of disk."""
    segment_bytes, runs = (QUICK_BYTES, 1) if quick else (SEGMENT_BYTES, RUNS)
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        ours: list[Spent] = []
        bare: list[Spent] = []
        ours_s3: list[Spent] = []
        bare_s3: list[Spent] = []
        with KafkaSandbox(folder=folder / "kafka") as kafka, bucket(folder) as s3:
            site = Site(kafka, folder / "ours")
            site.create(TOPIC, PARTITIONS, segment_bytes)
            site.fill(TOPIC, PARTITIONS, segment_bytes, SEGMENTS)
            logs = site.logs(TOPIC)
            size = sum(path.stat().st_size for path in logs)
            for _ in range(runs):
                bare.append(_bare(folder / "bare", logs))
                ours.append(_ours(site, size))
            site = Site(kafka, folder / "ours-s3", s3.section)
            for _ in range(runs):
                bare_s3.append(_bare_s3(s3, logs))
                ours_s3.append(_ours(site, size, s3.folder))
        kafkas = [_kafkas(folder / f"kafkas-{run}", segment_bytes) for run in range(runs)]
    return [
        *_rows("a directory", size, ours, bare, "shutil.copyfile and fsync"),
        *_rows("a directory", size, ours, kafkas, "Kafka's own remote log manager"),
        *_rows("S3", size, ours_s3, bare_s3, "boto3 upload_file, 4 files at a time"),
    ]


def _rows(where: str, size: int, ours: list[Spent], theirs: list[Spent], peer: str) -> list[Row]:
    def rate(all: list[Spent]) -> float:
        return statistics.median(size / 1e6 / each.seconds for each in all)

    def cpu(all: list[Spent]) -> float:
        return statistics.median(each.cpu_s / (size / 1e9) for each in all)

    return [
        Row(f"agent copies to {where}", rate(ours), "MB/s", rate(theirs), peer),
        Row(f"agent copies to {where}, CPU", cpu(ours), "s/GB, less is better", cpu(theirs), peer),
    ]


def _ours(site: Site, size: int, server: Path | None = None) -> Spent:
    """``server`` is the folder that the store writes into, emptied at the end; None means the site's own."""
    config = site.begin(TOPIC, format='compression = "none"')
    try:
        _in_cache(site.logs(TOPIC))
        whole, idle = site.once(config), site.once(config)
        stored = sum(path.stat().st_size for path in (server or config.parent / "store").rglob("*.log"))
        if stored != size:
            raise SystemExit(f"{stored} bytes copied of {size}")
        return _shown("ours", Spent(whole.seconds - idle.seconds, whole.cpu_s - idle.cpu_s))
    finally:
        site.end(config)
        _empty(server)


def _bare_s3(s3: Bucket, logs: list[Path]) -> Spent:
    try:
        _in_cache(logs)
        arguments = (s3.server.url, BUCKET, *KEYS, REGION, *map(str, logs))
        return _shown("bare S3", spent_by([sys.executable, "-c", BARE_S3, *arguments]))
    finally:
        _empty(s3.folder)


def _empty(server: Path | None) -> None:
    """Remove the objects; the bucket stays."""
    for path in server.iterdir() if server else ():
        shutil.rmtree(path)


def _bare(into: Path, logs: list[Path]) -> Spent:
    into.mkdir()
    try:
        _in_cache(logs)
        return _shown("bare", spent_by([sys.executable, "-c", BARE, str(into), *map(str, logs)]))
    finally:
        for path in into.iterdir():
            path.unlink()
        into.rmdir()


def _kafkas(folder: Path, segment_bytes: int) -> Spent:
    """Use a new broker each time: it never copies again what it once copied."""
    (remote := folder / "tier").mkdir(parents=True)
    with ExitStack() as opened:
        sandbox = KafkaSandbox(folder=folder / "kafka", properties=kafkas_own_tiers(remote))
        site = Site(opened.enter_context(sandbox), folder / "site")
        site.create(TOPIC, PARTITIONS, segment_bytes)
        site.fill(TOPIC, PARTITIONS, segment_bytes, SEGMENTS)
        logs, pid = site.logs(TOPIC), pid_of(sandbox)
        expected = sum(path.stat().st_size for path in logs)
        time.sleep(5)  # the rest of the producer's work
        began, before = time.perf_counter(), cpu_s(pid)
        time.sleep(5)
        idle = (cpu_s(pid) - before) / (time.perf_counter() - began)
        _in_cache(logs)
        began, before = time.perf_counter(), cpu_s(pid)
        _switch_on(sandbox)
        until(lambda: sum(path.stat().st_size for path in remote.rglob("*.log")) >= expected, 300)
        seconds = time.perf_counter() - began
        return _shown("kafka's", Spent(seconds, cpu_s(pid) - before - idle * seconds))


def _switch_on(kafka: KafkaSandbox) -> None:
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    entry = ConfigEntry("remote.storage.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def _in_cache(logs: list[Path]) -> None:
    for path in logs:
        with path.open("rb") as file:
            while file.read(MIB):
                pass


def _shown(who: str, spent: Spent) -> Spent:
    print(f"  {who}: {spent.seconds:.2f} s, {spent.cpu_s:.2f} s of CPU", file=sys.stderr, flush=True)
    return spent

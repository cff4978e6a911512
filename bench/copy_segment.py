"""Copy one log segment into a store: read, check every batch, SHA-256 and CRC-32C, upload.

MB/s count the plain log. Peers are boto3's `upload_file` with its defaults to the same versitygw, and
`shutil.copyfile` with fsync to a directory. Ours uploads parts of 8 MiB, four at a time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from Crypto.PublicKey import RSA
from kafka.record import MemoryRecordsBuilder

from tierstate.leader.checked_log import CheckedLog
from tierstate.log.batch import iter_batches
from tierstate.log.indexes import OffsetIndexBuilder
from tierstate.log.local_log import LogDirs
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store
from tierstate.storage.segment.encryption import KeyWrapper, SegmentCipher
from tierstate.storage.segment.keyring import KeyPair, KeyRing
from tierstate.storage.segment.writer import DEFAULT_CHUNK_BYTES, SegmentSource, put_indexes, put_log

from .bucket import BUCKET, KEYS, REGION, bucket, client_of
from .rows import RUNS, Row

if TYPE_CHECKING:
    pass

LOG_BYTES = 1024 * MIB
QUICK_BYTES = 64 * MIB
BATCH_BYTES = 16 * 1024
VALUE_BYTES = 1000
DISTINCT_BYTES = 16 * MIB
"""Then the batches come again under new offsets: farther back than zstd looks."""
PART_BYTES = 8 * MIB
IN_FLIGHT = 4
TOPIC_ID = TopicId("MWJ6FHTfRYy67jzwZdeqSQ")

SIDES: dict[str, tuple[str, str]] = {
    "boto3": ("", ""),
    "s3": ("to S3", "boto3"),
    "s3+aes": ("to S3, AES-GCM", "boto3"),
    "s3+zstd": ("to S3, zstd", "boto3"),
    "s3+zstd+aes": ("to S3, zstd and AES-GCM", "boto3"),
    "copyfile": ("", ""),
    "directory": ("to a directory", "copyfile"),
}
"""The name of each side in the table, and its peer; peers have no rows of their own."""
PEERS = {"boto3": "boto3 upload_file, its defaults", "copyfile": "shutil.copyfile and fsync"}


@dataclass(frozen=True, slots=True)
class Run:
    """One copy. ``cpu_seconds`` of the copying process alone; ``extra_bytes``: its peak memory above what it had."""

    seconds: float
    cpu_seconds: float
    extra_bytes: int
    log_bytes: int


def write_log_dir(folder: Path, log_bytes: int) -> None:
    """Write a broker's log folder with one rolled segment of about ``log_bytes`` and an empty active one."""
    partition = folder / "orders-0"
    partition.mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\ncluster.id=bench\nnode.id=1\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    distinct, offset, written, index = _batches(min(log_bytes, DISTINCT_BYTES)), 0, 0, OffsetIndexBuilder(0)
    with (partition / f"{0:020d}.log").open("wb") as log:
        while written < log_bytes:
            for batch, records in distinct:
                moved = offset.to_bytes(8, "big") + batch[8:]  # no checksum is over the base offset
                header = next(iter_batches(moved, source="bench"))
                index.add(replace(header, position=written))
                written += log.write(moved)
                offset += records
    (partition / f"{0:020d}.index").write_bytes(index.bytes())
    (partition / f"{offset:020d}.log").touch()
    (partition / f"{offset:020d}.snapshot").write_bytes(b"")


def _batches(size: int) -> list[tuple[bytes, int]]:
    """Return batches of leader epoch 0 and how many records each has."""
    chance = random.Random(7)
    words = [chance.randbytes(chance.randint(3, 9)) for _ in range(2000)]
    batches, done = [], 0
    while done < size:
        builder, records = MemoryRecordsBuilder(2, 0, BATCH_BYTES), 0
        while True:
            value = b"".join(chance.choices(words, k=VALUE_BYTES // 6))
            if builder.append(1_767_225_600_000 + records, b"%08d" % records, value) is None:
                break
            records += 1
        builder.close()
        batch = bytearray(builder.buffer())
        batch[12:16] = bytes(4)  # the leader epoch: the broker fills it in, outside the checksum too
        batches.append((bytes(batch), records))
        done += len(batch)
    return batches


def measure(quick: bool = False) -> list[Row]:
    """S3 plain, with zstd and with AES-GCM, then a directory; speed, CPU and memory of each against a bare upload."""
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        write_log_dir(folder / "logs", QUICK_BYTES if quick else LOG_BYTES)
        with bucket(folder) as s3:
            client = client_of(s3.server.url)
            runs: dict[str, list[Run]] = {side: [] for side in SIDES}
            for _ in range(1 if quick else RUNS):
                for side, taken in runs.items():
                    taken.append(_run(side, folder, s3.server.url))
                    for listed in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
                        client.delete_object(Bucket=BUCKET, Key=listed["Key"])
    return [row for side, (what, peer) in SIDES.items() if peer for row in _rows(what, runs[side], runs[peer], peer)]


def _rows(what: str, ours: list[Run], theirs: list[Run], peer: str) -> list[Row]:
    def median(runs: list[Run], figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, runs))

    def rate(run: Run) -> float:
        return run.log_bytes / 1e6 / run.seconds

    def cpu(run: Run) -> float:
        return run.cpu_seconds / (run.log_bytes / 1e9)

    def memory(run: Run) -> float:
        return run.extra_bytes / MIB

    plain = what == "to S3"
    return [
        Row(f"copy {what}", median(ours, rate), "MB/s", median(theirs, rate), PEERS[peer], ">= 0.9x" if plain else ""),
        Row(f"copy {what}, CPU", median(ours, cpu), "s/GB, less is better", median(theirs, cpu), PEERS[peer]),
        Row(
            f"copy {what}, peak memory above idle",
            median(ours, memory),
            "MiB, less is better",
            median(theirs, memory),
            PEERS[peer],
            "<= 64 MiB" if what.startswith("to S3") else "",
        ),
    ]


def _run(side: str, folder: Path, endpoint: str) -> Run:
    """Run one side in a process of its own, so that its memory can be measured."""
    into = folder / "into"
    into.mkdir()
    where = endpoint if side.startswith(("boto3", "s3")) else str(into)
    command = [sys.executable, "-m", "bench.copy_segment", side, str(folder / "logs"), where]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{side}: {done.stderr}")
        return Run(**json.loads(done.stdout))
    finally:
        shutil.rmtree(into)


def copy(folder: Path, store: ObjectStore, compression: Compression, keys: KeyWrapper | None) -> None:
    """Do what an agent does between its copy-started and its manifest."""
    cipher = None if keys is None else SegmentCipher.new(keys, os.urandom)[0]
    with LogDirs([folder]) as dirs:
        partition = TopicIdPartition(TOPIC_ID, 0)
        base, end = (segment.base_offset for segment in dirs.snapshot(partition, "orders").segments)
        with dirs.open_segment(partition, "orders", base, end) as files:
            log = CheckedLog(files, OffsetRange(base, Offset(end - 1)), DEFAULT_CHUNK_BYTES)
            source = SegmentSource(log.pieces(), files.log_bytes, b"", b"", b"", b"0\n1\n0 0\n", None)
            put_log(store, "copied", source, compression, cipher=cipher, part_bytes=PART_BYTES)
            source = replace(source, offset_index=log.offset_index(), time_index=log.time_index())
            put_indexes(store, "copied", source, cipher=cipher)


def _copy_file(folder: Path, into: Path) -> None:
    shutil.copyfile(_log_of(folder), into / "copied.log")
    for path in (into / "copied.log", into):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _work(side: str, folder: Path, where: str) -> Callable[[], None]:
    """Return work that is ready to run: an agent has its client, connected, and its key ring long before."""
    if side == "boto3":
        client = client_of(where)
        client.head_bucket(Bucket=BUCKET)
        return partial(client.upload_file, str(_log_of(folder)), BUCKET, "copied.log")
    if side == "copyfile":
        return partial(_copy_file, folder, Path(where))
    options = StoreOptions(where, REGION, credentials=KEYS, concurrency=IN_FLIGHT)
    store: ObjectStore = S3Store(BUCKET, "", options) if side.startswith("s3") else DirectoryStore(Path(where))
    list(store.list())
    keys = KeyRing("bench", {"bench": KeyPair(RSA.generate(2048).public_key())}) if "+aes" in side else None
    return partial(copy, folder, store, Compression.ZSTD if "+zstd" in side else Compression.NONE, keys)


def _log_of(folder: Path) -> Path:
    return folder / "orders-0" / f"{0:020d}.log"


def main(side: str, folder: Path, where: str) -> Run:
    work = _work(side, folder, where)
    with _log_of(folder).open("rb") as log:  # into the page cache, even what the run before dropped from it
        while log.read(MIB):
            pass
    idle, cpu, began = _resident("VmRSS"), time.process_time(), time.perf_counter()
    work()
    took = time.perf_counter() - began
    return Run(took, time.process_time() - cpu, _resident("VmHWM") - idle, _log_of(folder).stat().st_size)


def _resident(field: str) -> int:
    """Return bytes. Not `ru_maxrss`: a child begins with its parent's."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))))

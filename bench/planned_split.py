"""A task of a Spark read without Spark: a planned split of one segment of a directory store that is in the page cache.

CPU time, not wall, and page faults, each run in a process of its own, sides in turns. The peer is a bare read of the
same bytes of the object into one buffer of 1 MiB. "Decoded" is to Arrow, all columns. Batches of 64 KiB unpacked, as
Kafka's producers compressed them: such a log is stored as it is; "zstd chunks" is a log of plain batches that we
compressed.
"""

from __future__ import annotations

import json
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fetch.two_tiers import Folder, FolderTier, TwoTiers
from tierstate.fetch.plan import PlannedSplit, plan
from tierstate.fetch.reader import records
from tierstate.fetch.split import read_split
from tierstate.log.batch import iter_batches
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.segment.writer import DEFAULT_CHUNK_BYTES

from .decode import log_of
from .rows import RUNS, Row

LOG_BYTES = 192 * MIB
QUICK_BYTES = 6 * MIB
DISTINCT_BYTES = 16 * MIB
"""Unpacked bytes; then the batches come again under new offsets."""
LOGS = (("1 KB, lz4", "lz4", 1000), ("120 B, zstd", "zstd", 120), ("1 KB, zstd chunks", "none", 1000))
SIDES = ("bare", "fetch", "decode")


@dataclass(frozen=True, slots=True)
class Run:
    """One read of all splits."""

    cpu_seconds: float
    page_faults: int
    records: int


def measure(quick: bool = False) -> list[Row]:
    """CPU and page faults a record, of fetching alone and with decoding."""
    rows: list[Row] = []
    for what, codec, record_bytes in LOGS:
        with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
            write(Path(name), codec, record_bytes, QUICK_BYTES if quick else LOG_BYTES)
            runs: dict[str, list[Run]] = {side: [] for side in SIDES}
            for _ in range(1 if quick else RUNS):
                for side, taken in runs.items():
                    taken.append(_run(side, Path(name)))
        rows += [row for side in ("fetch", "decode") for row in _rows(f"{what}: {side}", runs[side], runs["bare"])]
    return rows


def _rows(what: str, ours: list[Run], bare: list[Run]) -> list[Row]:
    count = ours[0].records

    def median(runs: list[Run], figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, runs)) / count

    cpu = [median(runs, lambda run: run.cpu_seconds * 1e6) for runs in (ours, bare)]
    faults = [median(runs, lambda run: run.page_faults * 1e3) for runs in (ours, bare)]
    return [
        Row(f"{what}, CPU", cpu[0], "µs a record, less is better", cpu[1], "a bare read"),
        Row(f"{what}, page faults", faults[0], "in 1,000 records, less is better", faults[1], "a bare read"),
    ]


def write(folder: Path, codec: str, record_bytes: int, log_bytes: int) -> None:
    """A store with one segment of about ``log_bytes``, as stored on a broker, and the splits of its plan."""
    path = folder / "t-0"
    path.mkdir()
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    log, _, _ = log_of(codec, record_bytes, min(log_bytes, DISTINCT_BYTES), text=True)
    batches = [log[each.position : each.position + each.size_bytes] for each in iter_batches(log, source="bench")]
    counts = [each.record_count for each in iter_batches(log, source="bench")]
    end = written = 0
    with (path / f"{0:020d}.log").open("wb") as file:
        while written < log_bytes:
            for batch, count in zip(batches, counts, strict=True):
                written += file.write(end.to_bytes(8, "big") + batch[8:])  # no checksum is over the base offset
                end += count
    (path / f"{end:020d}.log").write_bytes(end.to_bytes(8, "big") + batches[0][8:])
    store = DirectoryStore(folder / "store", make=True)
    place = TopicIdPartition(TopicId.of(b"topic-that-is-re"), 0)
    tiers, source = TwoTiers(place, "t", store), Folder(path)
    tiers.compression = Compression.ZSTD if codec == "none" else Compression.NONE
    tiers.copy_all(source, chunk_bytes=DEFAULT_CHUNK_BYTES)
    splits = plan(tiers.reader(FolderTier(source, place, "t")), {("t", 0): (Offset(0), Offset(end))})
    tiers.view.close()
    (folder / "splits").write_bytes(pickle.dumps(splits))


def _run(side: str, folder: Path) -> Run:
    command = [sys.executable, "-m", "bench.planned_split", side, str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr}")
    return Run(**json.loads(done.stdout))


def _read(side: str, folder: Path, splits: Sequence[PlannedSplit]) -> int:
    """Return how many records were read; for a side that decodes nothing, how many are planned."""
    if side == "bare":
        buffer = bytearray(MIB)
        (log,) = folder.glob("store/**/*.log")
        with log.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    store = DirectoryStore(folder / "store")
    count = 0
    for split in splits if side != "bare" else ():
        for piece in read_split(split, store, None):
            if side == "decode":
                count += sum(batch.num_rows for batch in records(piece, "t", 0))
    return count or sum(split.end - split.start for split in splits)


def main(side: str, folder: Path) -> Run:
    splits: list[PlannedSplit] = pickle.loads((folder / "splits").read_bytes())
    _read(side, folder, splits[-1:])  # imports and kernels
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.process_time()
    count = _read(side, folder, splits)
    cpu = time.process_time() - began
    return Run(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt, count)


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1], Path(sys.argv[2])))))

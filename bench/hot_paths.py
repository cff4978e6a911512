"""Where the time of a hot path goes: ``python -m bench.hot_paths NAME``; docs/profiling.md says how to read it.

    python -m bench.hot_paths decode                    the functions that took most, by cProfile
    python -m bench.hot_paths decode --into decode.prof  and all of them in a file, for pstats and its viewers
    python -m bench.hot_paths decode --bare              runs without a profiler, for py-spy and perf

The input of the work is made before the profiler starts, and one run warms up. No Kafka, no network.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.fetch.two_tiers import Folder, FolderTier, TwoTiers
from tierstate.api.app import create_app
from tierstate.api.service import FetchService
from tierstate.fetch.piece import Fetched
from tierstate.fetch.plan import plan
from tierstate.fetch.reader import LogReader, records
from tierstate.fetch.split import read_split
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView
from tierstate.log.batch import iter_batches
from tierstate.log.decode import decode_batches
from tierstate.rules.decide import Policy, decide
from tierstate.rules.observed import NO_GROUPS, Observed
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.schemas.codec import decode_fact
from tierstate.state.apply import PartitionState
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import LiveFact, LogStartAdvanced
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.retention import TopicConfig
from tierstate.state.routing import LocalBounds, Tier
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.writer import DEFAULT_CHUNK_BYTES

from .copy_segment import copy, write_log_dir
from .decode import log_of
from .recorded_topic import NOW_MS, RecordedTopic, facts_of, generate, partition_of
from .tier_state import IDENTITY

SMALL, LARGE = 1, 16
"""Sizes of the work: each stands for 1 MiB of log, the facts of 1,000 segments, 50 decisions."""
Work = Callable[[], object]


def _copy(folder: Path, size: int) -> Work:
    """A rolled segment of 16 MiB: read, checked, compressed with zstd, into a directory."""
    logs = folder / "logs"
    write_log_dir(logs, size << 20)

    def work() -> None:
        store = DirectoryStore(Path(tempfile.mkdtemp(dir=folder)))
        copy(logs, store, Compression.ZSTD, None)

    return work


def _decode(folder: Path, size: int) -> Work:
    """16 MiB of batches, zstd, records of 1 KB, to Arrow."""
    log, _, _ = log_of("zstd", 1000, size << 20)
    return lambda: sum(batch.num_rows for batch in decode_batches(log, source="log", topic="t", partition=0))


def _fetch(folder: Path, size: int) -> Work:
    """A copied segment from its first offset to its last, whole batches, nothing cached, nothing loaded ahead."""
    log = _log(folder, size)

    def work() -> None:
        reader, offset = log.reader(), 0
        while offset < log.end:
            offset = reader.fetch("t", 0, offset, tier=Tier.REMOTE).next_offset

    return work


def _gateway(folder: Path, size: int) -> Work:
    """A page of 1 MiB of a copied segment as JSON lines, from the call to the last byte; its pools in this thread."""
    log = _log(folder, size)
    service = FetchService(log.reader(), Gateway(), SystemClock())
    pools: Any = service.pools
    for pool in (pools.local, pools.remote, pools.metadata):
        pool._executor = _Inline()
    app = create_app(service)
    return lambda: asyncio.run(_get(app, "/v1/topics/t/partitions/0/records", b"offset=0"))


def _spark(folder: Path, size: int) -> Work:
    """The work of a task of a Spark read, without Spark: a planned split of a copied segment, to Arrow."""
    log = _log(folder, size)
    splits = plan(log.reader(), {("t", 0): (Offset(0), Offset(log.end))})

    def pieces() -> Iterator[Fetched]:
        return (piece for split in splits for piece in read_split(split, log.store, None))

    return lambda: sum(batch.num_rows for piece in pieces() for batch in records(piece, "t", 0))


def _replay_facts(folder: Path, size: int) -> Work:
    """The facts of 16,000 segments, as the tier-state topic has them, into an empty view on disk."""
    facts = folder / "facts"
    facts.mkdir()
    generate(facts, size * 1000)
    topic = RecordedTopic(facts)

    def work() -> None:
        view = RocksView(Path(tempfile.mkdtemp(dir=folder)), IDENTITY, decode_fact)
        catch_up(topic, view, {number: Position(end) for number, end in topic.counts.items()})
        view.close()

    return work


def _decide(folder: Path, size: int) -> Work:
    """800 decisions about a partition with 1,000 remote segments and 10 local ones, of which one is to be copied."""
    state, epoch = PartitionState(partition_of(0)), LeaderEpoch(3)
    for at, fact in enumerate(facts_of(0, 1000, Position(0))):
        state.insert(LiveFact(key_of(fact), Position(at), fact))
    term = state.view().term
    assert term is not None
    start = LogStartAdvanced(partition_of(0), Offset(0), term, 0, "first term", NOW_MS)
    state.insert(LiveFact(key_of(start), Position(3000), start))
    view = state.view()
    copied = [LocalSegment(s.offsets.start, Offset(s.offsets.end + 1), s.log_bytes, NOW_MS) for s in view.readable]
    end = copied[-1].next_base
    rolled = LocalSegment(end, Offset(end + 1000), 10**9, NOW_MS)
    active = LocalSegment(rolled.next_base, Offset(end + 2000), 10**6, NOW_MS)
    local = (*copied[-8:], rolled, active)
    bounds = LocalBounds(local[0].base_offset, active.next_base, active.next_base, epoch)
    epochs = Lineage.of((3, 0))
    seen = Observed(local, epochs, epochs, bounds, TopicConfig(), NO_GROUPS)
    policy, now = Policy(0, 900_000, False), TimestampMs(NOW_MS + 3_600_000)

    def work() -> None:
        for _ in range(50 * size):
            decide(view, seen, policy, now)

    return work


HOT: dict[str, Callable[[Path, int], Work]] = {
    "copy": _copy,
    "decode": _decode,
    "fetch": _fetch,
    "gateway": _gateway,
    "spark": _spark,
    "replay": _replay_facts,
    "decide": _decide,
}


@dataclass(frozen=True, slots=True)
class _Log:
    """Topic ``t``, one partition, on the broker; all but its last batch copied too."""

    tiers: TwoTiers
    local: FolderTier
    store: DirectoryStore
    end: int

    def reader(self) -> LogReader:
        """Return a reader with an empty cache."""
        return self.tiers.reader(self.local, 64 << 20)


def _log(folder: Path, size: int) -> _Log:
    log, _, end = log_of("zstd", 1000, size << 20, text=True)
    first = next(iter_batches(log, source="log")).size_bytes
    path = folder / "t-0"
    path.mkdir()
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (path / f"{0:020d}.log").write_bytes(log)
    (path / f"{end:020d}.log").write_bytes(end.to_bytes(8, "big") + log[8:first])
    store = DirectoryStore(folder / "store", make=True)
    place = TopicIdPartition(TopicId.of(b"topic-to-profile"), 0)
    tiers, source = TwoTiers(place, "t", store), Folder(path)
    tiers.copy_all(source, chunk_bytes=DEFAULT_CHUNK_BYTES)
    return _Log(tiers, FolderTier(source, place, "t"), store, end)


class _Inline(Executor):
    """An executor that runs a call where it is submitted: cProfile sees only the thread in which it was started."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # the caller that waits raises it
            future.set_exception(error)
        return future


async def _get(app: Any, path: str, query: bytes) -> int:
    """Return the bytes of the body, as a client that takes all of it at once and stays."""
    size, messages = 0, iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError("nobody leaves")

    async def send(message: dict[str, Any]) -> None:
        nonlocal size
        if message.get("status", 200) != 200:
            raise SystemExit(f"{path}: {message}")
        size += len(message.get("body", b""))

    asgi = {"version": "3.0", "spec_version": "2.4"}
    scope = {"type": "http", "asgi": asgi, "http_version": "1.1", "method": "GET", "scheme": "http"}
    headers = [(b"host", b"localhost")]
    await app(
        {**scope, "headers": headers, "path": path, "raw_path": path.encode(), "query_string": query}, receive, send
    )
    return size


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_paths")
    parser.add_argument("name", choices=HOT, metavar="NAME", help=", ".join(HOT))
    parser.add_argument("--seconds", type=float, default=5.0, help="as long as this, and one run at least (5)")
    parser.add_argument("--lines", type=int, default=10, help="functions shown (10)")
    parser.add_argument("--into", type=Path, help="file for the whole profile")
    parser.add_argument("--bare", action="store_true", help="no profiler: another one looks at this process")
    parser.add_argument("--quick", action="store_true", help="smaller: whether it runs, not where the time goes")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as folder:
        work = HOT[parsed.name](Path(folder), SMALL if parsed.quick else LARGE)
        work()
        if parsed.bare:
            print(f"process {os.getpid()}", file=sys.stderr, flush=True)
            _repeat(work, parsed.seconds)
            return 0
        profile = cProfile.Profile()
        runs = profile.runcall(partial(_repeat, work, parsed.seconds))
    print(f"{parsed.name}: {(HOT[parsed.name].__doc__ or '').strip()} Runs: {runs}.")
    profile_stats = pstats.Stats(profile).strip_dirs().sort_stats("tottime")
    if parsed.into:
        profile_stats.dump_stats(parsed.into)
    profile_stats.print_stats(parsed.lines)
    return 0


def _repeat(work: Work, seconds: float) -> int:
    began, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - began < seconds:
        work()
        runs += 1
    return runs


if __name__ == "__main__":
    sys.exit(main())

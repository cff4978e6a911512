"""The view of the tier state: replay, memory, routing, checkpoints and archive, without Kafka.

1,000 segments a partition, 50 tier-state partitions, two facts a segment. "Worked out" means that the view of every
partition was asked for, which decodes its facts. Medians of three runs; one for checkpoints and archive.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import fastavro

from tierstate.follower.archive import archive
from tierstate.follower.archive_chain import verify_archive
from tierstate.follower.checkpoint import CheckpointSeed, checkpoint
from tierstate.follower.replay import catch_up
from tierstate.follower.rocksdb_view import RocksView, ViewIdentity
from tierstate.follower.view_identity import Shelf
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact
from tierstate.schemas.registry import fingerprint_of, schemas
from tierstate.state.apply import PartitionState
from tierstate.state.errors import TierstateError
from tierstate.state.facts import LiveFact
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, Position
from tierstate.state.routing import LocalBounds, route
from tierstate.storage.directory import DirectoryStore

from .follow import Followed, follow
from .recorded_topic import TIER_PARTITIONS, RecordedTopic, facts_of, generate, partition_of
from .rows import Row

SIZES = (1_000_000,)
QUICK_SIZES = (2_000,)
RUNS = 3
ROUTES = 200_000
IDENTITY = ViewIdentity("cluster", RecordedTopic.topic_id, TIER_PARTITIONS)
FASTAVRO = "fastavro decode"


def measure(quick: bool = False) -> list[Row]:
    """Every size in a folder of its own that is removed afterwards: about 3 GB of disk for a million segments."""
    rows: list[Row] = []
    for segments in QUICK_SIZES if quick else SIZES:
        folder = Path(tempfile.mkdtemp(prefix="tierstate-bench-"))
        try:
            rows += _of_size(folder, segments, 1 if quick else RUNS)
        finally:
            shutil.rmtree(folder)
    for segments in QUICK_SIZES if quick else (1_000, 10_000):
        rows += _routing(segments, ROUTES // 100 if quick else ROUTES)
    return rows


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# --- replay ----------------------------------------------------------------------------------------------------


def _of_size(folder: Path, segments: int, runs: int) -> list[Row]:
    of, facts_folder = f"{segments:,} segments", folder / "facts"
    _say(f"{of}: generate")
    facts_folder.mkdir()
    generate(facts_folder, segments)
    topic = RecordedTopic(facts_folder)
    facts, halves = sum(topic.counts.values()), topic.halves()
    peer, one, two, size = [], list[Followed](), list[Followed](), 0
    for run in range(runs):
        _say(f"{of}: replay, run {run + 1} of {runs}")
        peer.append(_timed(partial(_fastavro, topic, facts)))
        followed, size = _followed(folder, facts_folder, [[*halves[0], *halves[1]]], segments)
        one.append(followed)
        two.append(_followed(folder, facts_folder, halves, segments)[0])
    decode = statistics.median(peer)
    each = 1e6 / facts

    def row(what: str, seconds: list[float], goal: str = "") -> Row:
        ours = statistics.median(seconds) * each
        return Row(f"{what}, {of}", ours, "µs a fact", decode * each, FASTAVRO, goal)

    replay = [each.replay_s for each in one]
    return [
        row("replay into a view", replay, "<= 3x"),
        row("the same and every partition's view worked out", [each.views_s for each in one], "<= 3x"),
        row("the same in two processes", [each.views_s for each in two], "<= 2x"),
        Row(f"view on disk, {of}", size / 2**20, "MiB", topic.size / 2**20, "keys and values"),
        Row(
            f"follower's peak memory, {of}",
            statistics.median(each.peak_mib for each in one),
            "MiB",
            goal="<= 512" if segments == SIZES[-1] else "",
        ),
        *_objects(folder, topic, of),
    ]


def _fastavro(topic: RecordedTopic, facts: int) -> None:
    parsed = {b"\xc3\x01" + fingerprint_of(name): schema for name, schema in schemas().items()}
    count = 0
    for number in topic.counts:
        for _, value in topic.raw(number):
            fastavro.schemaless_reader(BytesIO(value[10:]), parsed[value[:10]], None)
            count += 1
    _check(count, facts, "facts decoded")


def _followed(folder: Path, facts: Path, shares: Sequence[Sequence[int]], segments: int) -> tuple[Followed, int]:
    """Follow the facts and return the follower's figures, and the bytes of its folder once it is closed."""
    state = folder / "state"
    state.mkdir()
    try:
        followed = follow(facts, state, shares)
        _check(followed.readable, segments, "segments readable")
        return followed, sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(state)


def _check(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise SystemExit(f"{what}: {found} of {wanted}")


# --- checkpoints and archive -----------------------------------------------------------------------------------


def _objects(folder: Path, topic: RecordedTopic, of: str) -> list[Row]:
    facts = sum(topic.counts.values())
    (folder / "objects").mkdir()
    objects = DirectoryStore(folder / "objects")
    _say(f"{of}: write and verify the archive")
    written = _timed(partial(_for_each, topic, partial(_archive, topic, objects)))
    verified = _timed(partial(_verify, topic, objects))
    _say(f"{of}: write checkpoints, start from them")
    checkpoints = _timed(partial(_for_each, topic, partial(_checkpoint, folder, topic, objects)))
    replayed = _into_view(folder, topic, partial(_replay, topic))
    started = _into_view(folder, topic, partial(_start, topic, objects))
    return [
        Row(f"start from checkpoints, {of}", facts / started, "facts/s", facts / replayed, "replay", ">= 5x"),
        Row(f"write checkpoints, {of}", facts / checkpoints, "facts/s", facts / replayed, "replay"),
        Row(f"write the archive, {of}", facts / written, "facts/s"),
        Row(f"verify the archive, {of}", facts / verified, "facts/s"),
    ]


def _archive(topic: RecordedTopic, objects: DirectoryStore, number: int) -> Generator[str, None, Position]:
    return archive(topic, Shelf(objects, IDENTITY, number), SystemClock().now_ms(), 0)


def _checkpoint(
    folder: Path, topic: RecordedTopic, objects: DirectoryStore, number: int
) -> Generator[str, None, Position]:
    def scratch() -> RocksView:
        return RocksView(Path(tempfile.mkdtemp(dir=folder)), IDENTITY, decode_fact)

    return checkpoint(topic, Shelf(objects, IDENTITY, number), SystemClock(), 1, scratch, _refused)


def _verify(topic: RecordedTopic, objects: DirectoryStore) -> None:
    for number in topic.counts:
        _check(len(list(verify_archive(objects, IDENTITY.place(number)))), 0, "findings")


def _into_view(folder: Path, topic: RecordedTopic, fill: Callable[[RocksView], None]) -> float:
    path = Path(tempfile.mkdtemp(dir=folder))
    view = RocksView(path, IDENTITY, decode_fact)
    try:
        seconds = _timed(partial(fill, view))
        for number, end in topic.counts.items():
            _check(view.position(number), end, "position")
        return seconds
    finally:
        view.close()
        shutil.rmtree(path)


def _replay(topic: RecordedTopic, view: RocksView) -> None:
    catch_up(topic, view, {number: Position(end) for number, end in topic.counts.items()})


def _start(topic: RecordedTopic, objects: DirectoryStore, view: RocksView) -> None:
    seed = CheckpointSeed(topic, objects, IDENTITY, SystemClock(), _refused)
    for number in topic.counts:
        seed(view, number, topic.end(number))


def _refused(key: str, error: TierstateError) -> None:
    raise SystemExit(f"{key}: {error}")


def _for_each(topic: RecordedTopic, act: Callable[[int], Generator[str, None, Position]]) -> None:
    for number in topic.counts:
        for _ in act(number):
            pass


# --- one partition ---------------------------------------------------------------------------------------------


def _routing(segments: int, routes: int) -> list[Row]:
    """Each call between two looks at the clock, the dict's too."""
    of = f"{segments:,} segments in one partition"
    _say(f"{of}: route")
    facts = [LiveFact(key_of(fact), Position(at), fact) for at, fact in enumerate(facts_of(0, segments, Position(0)))]
    *before, last = facts
    state = PartitionState(partition_of(0))
    for live in before:
        state.insert(live)
    state.view()
    more = []
    for _ in range(100):
        began = time.perf_counter()
        state.insert(last)
        state.view()
        more.append(time.perf_counter() - began)
        state.erase(last.key)
        state.view()
    view = replace(state.view(), log_start=Offset(0))
    end = Offset(view.copied_to + 1)
    bounds = LocalBounds(end, end, end, None if view.leader is None else view.leader.epoch)
    chance = random.Random(1)
    offsets = [chance.randrange(end) for _ in range(routes)]
    table = {offset: view for offset in offsets}
    ours = _quantiles(lambda offset: route(view, bounds, offset), offsets)
    peer = _quantiles(table.__getitem__, offsets)
    return [
        Row(f"route() p50, {of}", ours[0], "µs", peer[0], "a dict"),
        Row(f"route() p99, {of}", ours[1], "µs", peer[1], "a dict", "<= 50 µs"),
        Row(f"view after one more fact, {of}", statistics.median(more) * 1e3, "ms", goal="<= 5 ms"),
    ]


def _quantiles(ask: Callable[[int], object], offsets: list[int]) -> tuple[float, float]:
    """Return the median and the 99th percentile in µs."""
    took = []
    for offset in offsets:
        began = time.perf_counter_ns()
        ask(offset)
        took.append(time.perf_counter_ns() - began)
    took.sort()
    return took[len(took) // 2] / 1e3, took[len(took) * 99 // 100] / 1e3

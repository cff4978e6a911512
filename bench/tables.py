"""A topic as an Iceberg table in a directory, with an SQLite catalog: filled, checked, followed and planned.

- Fill: 2 GiB in four partitions, JSON of 120 B, by `tierstate table follow --once`; one run each.
- Follow: the broker gets a segment of 1 MiB every half second, ``table.commit_interval`` is 0. The time runs from the
  segment's manifest in the store to the snapshot with its rows. With 100 tables, segments come to one after another.
- Plan: pyiceberg names the files of a scan of a table of 3,000 commits. A commit rewrites the list of all snapshots:
  a follower keeps 500 of them at most.
"""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from tierstate.lake.columns import Columns
from tierstate.lake.table import Change, LakeTable
from tierstate.lake.table_catalog import LakeCatalog
from tierstate.lake.table_facts import TableFacts
from tierstate.lake.table_place import OFFSETS, Reach, TablePlace
from tierstate.lake.table_snapshots import Retention, expire_some
from tierstate.lake.table_upkeep import compact
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.id_source import RandomIds
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.epochs import Lineage
from tierstate.state.ids import FactId, TopicId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation
from tierstate.storage.object_store import MIB

from .agent_site import TIERSTATE, RunningAgent, Site, spent_by, until
from .rows import Row

RUNS = 1
PARTITIONS, SEGMENT_BYTES, SEGMENTS = 4, 8 * MIB, 64
DDL = "id int, name string, price double, tags array<string>, city string"
FOLLOWED = 120
FOLLOWERS = (1, 100)
"""So many tables, of a topic each, that one process follows."""
URL_SAFE = str.maketrans("+/", "-_")
"""confluent_kafka prints topic ids by the other alphabet of base64."""
COMMITS = 3_000
NUMBERS = (300, 3_000)
BESIDE = (500, 10_080)
KEPT = Retention(200, 86_400_000)
"""The settings' own."""
NAME = "kafka.t"


def measure(quick: bool = False) -> list[Row]:
    """About 30 minutes, 8 GB of disk."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        rows = _planned(folder / "planned", COMMITS // 50 if quick else COMMITS)
        rows += [_beside(folder / str(count), count // 50 if quick else count) for count in BESIDE]
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        site = Site(kafka, folder / "site", "")
        rows += _filled(site, 2 if quick else SEGMENTS, 1 if quick else RUNS)
        return rows + [row for count in FOLLOWERS for row in _followed(site, 12 if quick else FOLLOWED, count)]


# --- filled and checked -----------------------------------------------------------------------------------------------


def _filled(site: Site, segments: int, runs: int) -> list[Row]:
    topic = "filled"
    site.create(topic, PARTITIONS, SEGMENT_BYTES)
    site.fill_with([_value(number) for number in range(500)], topic, PARTITIONS, segments)
    tables = site.log_dir.parent / "filled-tables"
    config = site.begin(topic, table=f'folder = "{tables}"\nfile_bytes = "32MiB"')
    site.once(config)
    megabytes = sum(each.stat().st_size for each in site.logs(topic)) / 1e6
    seconds: dict[str, list[float]] = {}
    for _ in range(runs):
        for kind, typed in (("bytes", []), ("typed", ["--value-format", "json", "--value-schema", DDL])):
            for count in ("2", "1"):
                shutil.rmtree(tables, ignore_errors=True)
                _run(config, "create", topic, *typed)
                spent = _run(config, "follow", "--once", "--processes", count)
                seconds.setdefault(kind + count, []).append(spent)
            seconds.setdefault(f"check of {kind}", []).append(_run(config, "check", f"kafka.{topic}"))
    rate = {side: megabytes / statistics.median(all_) for side, all_ in seconds.items()}
    unit, peer = "MB of log a second", "one process"
    return [
        Row(f"fill, bytes, {megabytes:,.0f} MB, two processes", rate["bytes2"], unit, rate["bytes1"], peer),
        Row("fill, values typed of JSON, two processes", rate["typed2"], unit, rate["typed1"], peer),
        Row("check, bytes", rate["check of bytes"], unit),
        Row("check, values typed of JSON", rate["check of typed"], unit),
    ]


def _value(number: int) -> bytes:
    """Return a value of about 120 B."""
    value = {"id": number, "name": f"customer {number}", "price": number / 7, "tags": ["a", "b"], "city": "x" * 30}
    return json.dumps(value).encode()


def _run(config: Path, *arguments: str) -> float:
    return spent_by([*TIERSTATE, "table", *arguments, "--config", str(config)]).seconds


# --- followed ---------------------------------------------------------------------------------------------------------


def _followed(site: Site, segments: int, count: int) -> list[Row]:
    """Measure a follower of ``count`` tables, of a topic each. Segments come to one topic after another."""
    topics = [f"followed_{count}_{number}" for number in range(count)]
    for topic in topics:
        site.create(topic, 1, MIB)
    tables = site.log_dir.parent / f"followed-{count}"
    config = site.begin(f"followed_{count}_.*", table=f'folder = "{tables}"\ncommit_interval = "0s"')
    producer: Any = Producer({"bootstrap.servers": site.kafka.bootstrap, "log_level": 0})
    _run(config, "create", topics[0])
    _alike(site, tables, topics)
    for topic in topics:
        _produced(producer, topic)
    store, seen = config.parent / "store", dict[tuple[str, int], float]()
    with RunningAgent(config), (config.parent / "follow.err").open("wb") as err:
        follower = subprocess.Popen(
            [*TIERSTATE, "table", "follow", "--config", str(config), "--set", f"state_dir={config.parent / 'other'}"],
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        try:
            places = _Places(tables / "catalog.db")

            def look() -> bool:
                """Note when each copied segment is first visible. Return whether all are."""
                ends, copied = places.ends(), _copied(store)
                for topic, base in copied:
                    if base < ends.get(topic, 0):
                        seen.setdefault((topic, base), time.time())
                return seen.keys() >= copied.keys()

            # what was copied before waited for the follower to start
            until(lambda: follower.poll() is None and len(_copied(store)) >= count and look(), 600)
            first = _copied(store).keys()
            for number in range(segments):
                ends = time.monotonic() + 0.5
                _produced(producer, topics[number % count])
                while time.monotonic() < ends:
                    look()
                    time.sleep(0.01)
            until(look)
        finally:
            follower.terminate()
            follower.wait(20)
    at = _copied(store)
    late = sorted(seen[segment] - at[segment] for segment in at.keys() - first)
    what, unit = "follow" if count == 1 else f"follow {count} tables", "s from copied to visible"
    return [
        Row(f"{what}, p50 of {len(late)} segments", statistics.median(late), unit),
        Row(f"{what}, p99", late[min(len(late) - 1, int(len(late) * 0.99))], unit),
    ]


def _alike(site: Site, tables: Path, topics: list[str]) -> None:
    """Make the tables of the other topics as that of the first: a command for each would take minutes."""
    admin: Any = AdminClient({"bootstrap.servers": site.kafka.bootstrap, "log_level": 0})
    ids = admin.describe_topics(TopicCollection(topics))
    with closing(LakeCatalog(_catalog(tables))) as catalog:
        facts = catalog.table(f"kafka.{topics[0]}").facts
        for topic in topics[1:]:
            topic_id = TopicId(str(ids[topic].result().topic_id).translate(URL_SAFE))
            catalog.create(f"kafka.{topic}", replace(facts, topic=topic, topic_id=topic_id))


def _produced(producer: Any, topic: str) -> None:
    """Produce a little more than a segment."""
    for _ in range(1100):
        producer.produce(topic, bytes(1000))
    assert producer.flush(30) == 0


def _copied(store: Path) -> dict[tuple[str, int], float]:
    """Return when each segment's manifest was written, by its topic (without the id) and first offset."""
    manifests = store.rglob("*.rsm-manifest")
    return {(path.parts[-3][:-23], int(path.name.split("-")[0])): path.stat().st_mtime for path in manifests}


class _Places:
    """The progress of each table, as its catalog has it now."""

    def __init__(self, catalog: Path) -> None:
        self._catalog = sqlite3.connect(f"file:{catalog}?mode=ro", uri=True)
        self._urls, self._ends = dict[str, str](), dict[str, int]()

    def ends(self) -> dict[str, int]:
        for table, url in self._catalog.execute("SELECT table_name, metadata_location FROM iceberg_tables"):
            if self._urls.get(table) != url:
                self._urls[table] = url
                meta = json.loads(Path(url.removeprefix("file://")).read_bytes())
                heads = [each for each in meta["snapshots"] if each["snapshot-id"] == meta.get("current-snapshot-id")]
                self._ends[table] = max((json.loads(each["summary"][OFFSETS])["0"] for each in heads), default=0)
        return self._ends


# --- planned ----------------------------------------------------------------------------------------------------------


def _planned(folder: Path, commits: int) -> list[Row]:
    catalog, table = _empty(folder)
    took = []
    for number in range(commits):
        began = time.perf_counter()
        _commit(table, number)
        expire_some(table, KEPT, SystemClock().now_ms())
        took.append(time.perf_counter() - began)
    table = catalog.table(NAME)
    before = [_seconds(lambda: _files(table)), _seconds(lambda: _files(table, commits // 2))]
    compact(table, lambda: FactId.of(RandomIds().uuid()), execute=True)
    table = catalog.table(NAME)
    after = [_seconds(lambda: _files(table)), _seconds(lambda: _files(table, commits // 2))]
    catalog.close()
    first = statistics.median(took[:10])
    what, unit = f"of {commits:,} commits", "ms, less is better"
    later = [Row(f"commit number {at:,}", _middle(took, at), unit, first * 1000, "the first ten") for at in NUMBERS]
    return [
        Row(f"plan a scan {what}, compacted", after[0] * 1000, unit, before[0] * 1000, "not compacted"),
        Row(f"plan a scan of one offset {what}, compacted", after[1] * 1000, unit, before[1] * 1000, "not compacted"),
        *later,
    ]


def _middle(took: list[float], at: int) -> float:
    """Return the median milliseconds of the ten commits up to this one."""
    return statistics.median(took[max(0, at - 10) : at] or took[-10:]) * 1000


def _beside(folder: Path, count: int) -> Row:
    """Measure a commit to a table that has ``count`` snapshots: copies of one real snapshot under other numbers."""
    catalog, table = _empty(folder)
    _commit(table, 0)
    location = Path(table.iceberg.metadata_location.removeprefix("file://"))
    metadata = json.loads(location.read_bytes())
    [one] = metadata["snapshots"]
    numbers = range(1, count + 1)
    metadata["snapshots"] = [{**one, "snapshot-id": each, "sequence-number": each} for each in numbers]
    metadata["snapshot-log"] = [{"snapshot-id": each, "timestamp-ms": one["timestamp-ms"]} for each in numbers]
    metadata |= {"current-snapshot-id": count, "last-sequence-number": count}
    metadata["refs"]["main"]["snapshot-id"] = count
    many = location.with_name("99999-many.metadata.json")
    many.write_text(json.dumps(metadata))
    catalog.drop(NAME)
    catalog._catalog.register_table(tuple(NAME.split(".")), many.as_uri())
    seconds = _seconds(lambda: _commit(catalog.table(NAME), int(time.time_ns())), runs=3)
    catalog.close()
    return Row(f"a commit with {count:,} snapshots", seconds * 1000, "ms, less is better")


def _empty(folder: Path) -> tuple[LakeCatalog, LakeTable]:
    (folder / "warehouse").mkdir(parents=True)
    catalog = LakeCatalog(_catalog(folder))
    columns = Columns(("partition", "offset", "timestamp"))
    facts = TableFacts("t", TopicId.of(b"topic-of-a-bench"), Isolation.READ_COMMITTED, (columns,), False)
    return catalog, catalog.create(NAME, facts)


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}


def _commit(table: LakeTable, number: int) -> None:
    """Commit a file of one row."""
    time_ = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number % 525_600)
    columns = {"partition": [0], "offset": [number], "timestamp": [time_]}
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pydict(columns, schema=table.schema), file)
    added = table.put(table.url(f"{number}.parquet"), [file.getvalue()], ())
    place = TablePlace({0: Reach(Offset(0), Offset(number + 1), Lineage.of((0, 0)))})
    assert table.commit(table.prepared(Change(place, [added]), str(number)), str(number))


def _files(table: LakeTable, offset: int | None = None) -> int:
    return len(table.data_files(None if offset is None else f"offset == {offset}"))


def _seconds(work: Callable[[], object], runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)

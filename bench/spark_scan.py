"""Spark reads a whole copied topic through tierstate, and through its own Kafka source.

4 partitions, segments of 8 MiB, copied into a directory; `local[2]`; planning is included. Spark's Kafka source is
``spark-sql-kafka-0-10`` 4.2.0 on Spark 4.3. A source of prebuilt Arrow batches is the most that a Python source can
reach. CPU is that of Spark's JVM and its Python workers. Medians of three runs.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.servers.kafka_source import kafka_source_jars
from tierstate.app.opening.connection import Connection
from tierstate.consumer.connect import read_records
from tierstate.log.record_columns import record_schema
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.batch import sliced
from tierstate.spark.options import options_of
from tierstate.spark.sessions import local_session
from tierstate.state.ids import TopicIdPartition
from tierstate.state.routing import Isolation, Tier
from tierstate.storage.object_store import MIB

from .agent_copy import _in_cache
from .agent_site import Site
from .prebuilt_source import PrebuiltSource
from .rows import Row

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS, RUNS, CORES = 4, 3, 2
SEGMENT_BYTES, QUICK_BYTES = 8 * MIB, MIB
TICKS = os.sysconf("SC_CLK_TCK")
KAFKA, CEILING = "Spark's Kafka source", "a source of prebuilt batches"


@dataclass(frozen=True, slots=True)
class Load:
    """The content of the topic, and the goals: to Kafka's source and to the ceiling, for all columns."""

    name: str
    value_bytes: int
    codec: str
    records: int
    goals: tuple[str, str]


LOADS = (
    Load("120 B zstd", 112, "zstd", 4_800_000, (">= 2x", ">= 0.6x")),
    Load("1 KB lz4", 1000, "lz4", 1_000_000, (">= 1.2x", ">= 0.55x")),
)


@dataclass(frozen=True, slots=True)
class Query:
    """``columns`` None: all. ``goal``: to Kafka's source; None: the load's."""

    name: str
    columns: str | None
    run: Callable[[DataFrame], object]
    goal: str | None = None


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregates(frame: DataFrame) -> None:
    frame.agg(
        F.sum(F.length("key")), F.sum(F.length("value")), F.max("topic"), F.sum("partition"), F.sum("offset"),
        F.max("timestamp"), F.sum("timestampType"),
    ).collect()  # fmt: skip


QUERIES = (
    Query("noop of all columns", None, _noop),
    Query("aggregates over all columns", None, _aggregates),
    Query("noop of value", "value", _noop, ">= 2.8x"),
    Query("noop of offset and timestamp", "offset,timestamp", _noop, ">= 3x"),
)


@dataclass(frozen=True, slots=True)
class Spent:
    """The seconds and the seconds of CPU of a query."""

    seconds: float
    cpu_s: float


def measure(quick: bool = False) -> list[Row]:
    """About 8 minutes, 4 GB of disk."""
    rows: list[Row] = []
    for load in LOADS:
        with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
            folder = Path(name)
            with KafkaSandbox(folder=folder / "kafka") as kafka:
                topic = Topic(Site(kafka, folder / "site"), load, quick)
                with session_of(CORES) as spark:
                    for query in QUERIES:
                        rows += compared(spark, topic, query, 1 if quick else RUNS)
    return rows


class Topic:
    """Filled and copied. ``filled``: records in both tiers; ``records``: in the remote one, which ends at ``ends`` by
    partition. ``values``: None: as the load says.
    """

    def __init__(self, site: Site, load: Load, quick: bool, values: Sequence[bytes] | None = None) -> None:
        self.site, self.load, self.name = site, load, "scanned"
        self.filled = load.records // 10 if quick else load.records
        site.create(self.name, PARTITIONS, QUICK_BYTES if quick else SEGMENT_BYTES)
        fill(site, self.name, load, self.filled, values or values_of(load))
        self.config = site.begin(self.name)
        site.once(self.config)
        settings = load_settings(self.config, (), os.environ, None, None)
        self.options = options_of(settings) | {"subscribe": self.name}
        with Connection(settings) as connection:
            topic = connection.broker.control.topic(self.name)
            places = [TopicIdPartition(topic.topic_id, each.partition) for each in topic.partitions]
            reader = connection.reader(connection.view(places))
            self.ends = [
                reader.extent(self.name, number, isolation=Isolation.READ_UNCOMMITTED, tier=Tier.REMOTE)[1]
                for number in range(PARTITIONS)
            ]
        self.records = sum(self.ends)
        client = {key: value for key, value in settings.kafka.items()}
        more = {key.removeprefix("tierstate."): value for key, value in self.options.items() if "tierstate." in key}
        more = {{"endpoint": "store.endpoint", "region": "store.region"}.get(k, k): v for k, v in more.items()}
        store, topic_name = more.pop("store"), more.pop("tier_state_topic")
        flags = more | {"tier_state.topic": topic_name}
        sample = read_records(client, store, self.name, 0, 0, min(self.ends[0], 20_000), settings=flags)
        self.batches = site.log_dir.parent / "batches.pickle"
        columns = [name for name in PrebuiltSource({}).schema().names]
        schema = record_schema(columns=columns)  # Spark's microseconds
        record_batches = [each for batch in sample for each in sliced(batch.select(columns).cast(schema))]
        self.batches.write_bytes(pickle.dumps(record_batches))
        _in_cache([path for folder in (site.log_dir, self.config.parent) for path in folder.rglob("*.log")])

    @property
    def range(self) -> dict[str, str]:
        return range_of(self.name, self.ends)


def range_of(topic: str, ends: Sequence[int]) -> dict[str, str]:
    """Return options for a read from the beginning; the same for both sources."""
    starts = json.dumps({topic: {str(number): 0 for number in range(len(ends))}})
    return {
        "subscribe": topic,
        "startingOffsets": starts,
        "endingOffsets": json.dumps({topic: {str(number): end for number, end in enumerate(ends)}}),
    }


def values_of(load: Load) -> list[bytes]:
    """Return values that compress about as well as real events do."""
    chance = random.Random(7)
    words = [b"%x" % chance.getrandbits(chance.randint(12, 36)) for _ in range(2000)]
    return [b" ".join(chance.choices(words, k=load.value_bytes // 4))[: load.value_bytes] for _ in range(20_000)]


def fill(site: Site, topic: str, load: Load, records: int, values: Sequence[bytes]) -> None:
    """Fill the topic; keys have 8 bytes."""
    quick = {"queue.buffering.max.kbytes": 262_144, "linger.ms": 50, "batch.size": 65_536, "acks": 1}
    config = {"bootstrap.servers": site.kafka.bootstrap, "log_level": 0, "compression.type": load.codec, **quick}
    producer: Any = Producer(config)
    for at in range(records):
        while True:
            try:
                producer.produce(topic, values[at * 7919 % len(values)], b"%08d" % at, partition=at // 500 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if at % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


@contextmanager
def session_of(cores: int) -> Iterator[SparkSession]:
    """Yield a session whose workers find this folder."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "src"), before)))
    try:
        config = {"spark.jars": ",".join(map(str, kafka_source_jars()))}
        with local_session("tierstate-bench", cores, memory="2g", config=config) as spark:
            spark.dataSource.register(PrebuiltSource)
            yield spark
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def compared(spark: SparkSession, topic: Topic, query: Query, runs: int, where: str = "") -> list[Row]:
    """Return the rows of one query. ``where``: what differs from this benchmark; such rows have no ceiling."""
    sides = {
        KAFKA: partial(from_kafka, spark, topic.site.kafka.bootstrap, query, topic.range),
        "ours": partial(from_ours, spark, topic.options, query, topic.range),
    }
    if not where:
        sides[CEILING] = partial(_prebuilt, spark, topic, query)
    what, spent = f"{topic.load.name}, {query.name}{where}", in_turns(spark, sides, query, runs)
    return _rows(what, topic, spent, None if where else query)  # goals hold for one place only


def from_kafka(spark: SparkSession, bootstrap: str, query: Query, range: dict[str, str]) -> DataFrame:
    frame = spark.read.format("kafka").options(**range | {"kafka.bootstrap.servers": bootstrap}).load()
    return frame if query.columns is None else frame.select(*query.columns.split(","))


def from_ours(spark: SparkSession, options: dict[str, str], query: Query, range: dict[str, str]) -> DataFrame:
    columns = {} if query.columns is None else {"columns": query.columns}
    return spark.read.format("tierstate").options(**options | range | columns).load()


def _prebuilt(spark: SparkSession, topic: Topic, query: Query) -> DataFrame:
    columns = {} if query.columns is None else {"columns": query.columns}
    options = {"batches": str(topic.batches), "rows": str(topic.records), "tasks": str(2 * CORES), **columns}
    return spark.read.format("prebuilt").options(**options).load()


def in_turns(
    spark: SparkSession, sides: Mapping[str, Callable[[], DataFrame]], query: Query, runs: int
) -> dict[str, tuple[float, float]]:
    """Return medians of seconds and of CPU, by side."""
    context: Any = spark.sparkContext
    pid = context._gateway.proc.pid
    spent: dict[str, list[Spent]] = {side: [] for side in sides}
    for turn in range(runs + 1):
        for side, frame in sides.items():
            began, before = time.perf_counter(), cpu_of_tree(pid)
            query.run(frame())
            if turn:
                spent[side].append(Spent(time.perf_counter() - began, cpu_of_tree(pid) - before))
    for side, all in spent.items():
        shown = ", ".join(f"{each.seconds:.2f} s ({each.cpu_s:.2f} CPU)" for each in all)
        print(f"  {query.name}: {side}: {shown}", file=sys.stderr, flush=True)
    return {
        side: (statistics.median(each.seconds for each in all), statistics.median(each.cpu_s for each in all))
        for side, all in spent.items()
    }


def cpu_of_tree(root: int) -> float:
    """Return the seconds of CPU of a process and all below it, with those that it waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    total, pids = 0, [root]
    while pids:
        pid = pids.pop()
        total += ticks.get(pid, 0)
        pids += [child for child, parent in parents.items() if parent == pid]
    return total / TICKS


def _rows(what: str, topic: Topic, spent: dict[str, tuple[float, float]], query: Query | None) -> list[Row]:
    rows: list[Row] = []
    ours = spent["ours"]
    for number, peer in enumerate((KAFKA, CEILING)):
        if peer not in spent:
            continue
        whole = query is not None and query.columns is None
        few = query is not None and peer == KAFKA and topic.load is LOADS[0]
        goal = topic.load.goals[number] if whole else query.goal or "" if query and few else ""
        seconds, cpu = spent[peer]
        rows.append(Row(what, topic.records / ours[0], "records/s", topic.records / seconds, peer, goal))
        each = 1e6 / topic.records
        rows.append(Row(f"{what}, CPU", ours[1] * each, "µs a record, less is better", cpu * each, peer))
    return rows

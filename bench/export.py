"""A copied topic as Parquet: `tierstate export` with two processes, and Spark's Kafka source that writes the same rows.

The topics of `spark-scan` (4 partitions, segments of 8 MiB, a directory, all in the page cache), three times as long,
whole: what is not copied yet is read from the broker. Ours is the command as a process, from its start to its end,
manifest and all, and the same with ``--check``; the CPU is that of all its processes. The peer is Spark 4.3,
`local[2]`, its session warm, zstd, partitioned by date as ours; its broker's CPU is not counted. Sides take turns,
three times after one warm-up. The limit is one process that encodes the same decoded batches from memory with pyarrow,
and nothing else. Typed: the orders of `typed-values`, JSON, their values as a struct; the peer does `from_json`.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tierstate.lake.parquet import DELTAS, REPEATED
from tierstate.sandbox.kafka import KafkaSandbox

from .agent_site import TIERSTATE, Site, Spent
from .rows import Row
from .spark_scan import KAFKA, LOADS, RUNS, Load, Topic, cpu_of_tree, session_of
from .typed_values import LOAD, SCHEMA, orders

GOALS = {LOADS[0].name: ">= 4x", LOADS[1].name: ">= 2.5x"}
LONGER = 3
JSON = replace(LOAD, name="120 B JSON, typed", records=LOAD.records * LONGER)
LIMIT = "encoding from memory alone"
SUBREAPER = 36
"""Of `prctl`: what a process leaves behind is ours to wait for, and so its CPU is counted."""


def measure(quick: bool = False) -> list[Row]:
    """About 15 minutes, 12 GB of disk."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    bytes_alone = [_measured(replace(each, records=each.records * LONGER), quick) for each in LOADS]
    return [*itertools.chain(*bytes_alone), *_measured(JSON, quick, SCHEMA)]


def _measured(load: Load, quick: bool, schema: str | None = None) -> list[Row]:
    """``schema``: of JSON values; None: they are bytes."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        topic = Topic(Site(kafka, folder / "site", ""), load, quick, orders(20_000) if schema else None)
        spark = opened.enter_context(session_of(2))
        return _compared(spark, topic, folder, 1 if quick else RUNS, schema)


def _compared(spark: SparkSession, topic: Topic, folder: Path, runs: int, schema: str | None) -> list[Row]:
    typed = ["--value-format", "json", "--value-schema", schema] if schema else []
    numbers = itertools.count()
    spent: dict[str, list[Spent]] = {"ours": [], "check": [], KAFKA: []}
    for turn in range(runs + 1):
        place = folder / f"export-{next(numbers)}"
        sides = {
            "ours": partial(_command, topic, place, *typed),
            "check": partial(_command, topic, place, "--check"),
            KAFKA: partial(_spark, spark, topic, folder / f"spark-{next(numbers)}", schema),
        }
        for side, run in sides.items():
            one = run()
            if turn:
                spent[side].append(one)
        for made in folder.glob("*-[0-9]*"):
            shutil.rmtree(made)
    seconds = {side: statistics.median(each.seconds for each in all) for side, all in spent.items()}
    cpu = {side: statistics.median(each.cpu_s for each in all) * 1e6 / topic.filled for side, all in spent.items()}
    name, unit = topic.load.name, "µs a record, less is better"
    peer = f"{KAFKA} and from_json" if schema else KAFKA
    limit = [] if schema else [Row(f"{name}, CPU", cpu["ours"], unit, _encoding(topic, folder), LIMIT)]
    rates = {side: topic.filled / took for side, took in seconds.items()}
    return [
        Row(name, rates["ours"], "records/s", rates[KAFKA], peer, GOALS.get(name, "")),
        Row(f"{name}, CPU", cpu["ours"], unit, cpu[KAFKA], peer),
        *limit,
        Row(f"{name}, check", _log_bytes(topic) / seconds["check"] / 1e6, "MB of log a second"),
    ]


def _command(topic: Topic, place: Path, *flags: str) -> Spent:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    into = ["--into", place.as_uri(), "--processes", "2", "--isolation", "read_uncommitted"]
    command = [*TIERSTATE, "export", topic.name, *into, *flags, "--config", str(topic.config), "--json"]
    subprocess.run(command, check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    _wait_for_its_processes()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Spent(seconds, cpu)


def _wait_for_its_processes() -> None:
    """What its tasks were forked from: it has waited for them, and ends when the command has."""
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"multiprocessing" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.waitpid(int(child), 0)


def _spark(spark: SparkSession, topic: Topic, place: Path, schema: str | None) -> Spent:
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before, began = cpu_of_tree(pid), time.perf_counter()
    options = {"kafka.bootstrap.servers": topic.site.kafka.bootstrap, "subscribe": topic.name, "includeHeaders": "true"}
    frame = spark.read.format("kafka").options(**options).load().withColumn("date", F.to_date("timestamp"))
    if schema:
        frame = frame.withColumn("value", F.from_json(F.col("value").cast("string"), schema))
    frame.write.option("compression", "zstd").partitionBy("date").parquet(str(place))
    return Spent(time.perf_counter() - began, cpu_of_tree(pid) - before)


def _encoding(topic: Topic, folder: Path) -> float:
    """µs of CPU a record."""
    batches: list[pa.RecordBatch] = pickle.loads(topic.batches.read_bytes())
    group = pa.Table.from_batches(batches).combine_chunks()
    spent = []
    for number in range(RUNS + 1):
        began = time.process_time()
        with pq.ParquetWriter(
            folder / f"memory-{number}.parquet",
            group.schema,
            compression="zstd",
            use_dictionary=list(REPEATED),
            column_encoding=DELTAS,
        ) as writer:
            writer.write_table(group)
        spent.append(time.process_time() - began)
    per_record: float = statistics.median(spent[1:]) * 1e6 / group.num_rows
    return per_record


def _log_bytes(topic: Topic) -> int:
    return sum(path.stat().st_size for path in topic.site.log_dir.glob(f"{topic.name}-*/*.log"))

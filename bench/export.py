"""Export a copied topic as Parquet: `tierstate export` with two processes, and Spark's Kafka source with the same rows.

4 partitions, segments of 8 MiB; `check` is a run with ``--check``. The peer is Spark 4.3, `local[2]`, warm, with the
same zstd level. A partition of the first load has 5,000 different values. "Encoding from memory alone" is the lower
bound: one process encodes decoded batches. Typed values are JSON orders as a struct. Medians of three runs.
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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tierstate.lake.parquet import LEVEL, writer_of
from tierstate.sandbox.kafka import KafkaSandbox

from .agent_site import TIERSTATE, Site, Spent
from .rows import Row
from .spark_scan import KAFKA, LOADS, RUNS, Load, Topic, cpu_of_tree, session_of, values_of
from .typed_values import LOAD, SCHEMA, orders

GOALS = {LOADS[0].name: ">= 4x", LOADS[1].name: ">= 2.5x"}
LONG = [replace(each, records=each.records * 3) for each in LOADS]
DISTINCT = replace(LOADS[0], name="120 B zstd, no value twice", records=LOADS[0].records * 2)
JSON = replace(LOAD, name="120 B JSON, typed", records=LOAD.records * 2)
LIMIT = "encoding from memory alone"
NOISE = 0x9E3779B97F4A7C15
"""Odd: a number of its own for each record, without a pattern."""
SUBREAPER = 36
"""An option of `prctl`: orphaned processes are ours to wait for, and so their CPU is counted."""


def measure(quick: bool = False) -> list[Row]:
    """About 11 minutes, 12 GB of disk."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    loads = [(LONG[0], None, None), (DISTINCT, Distinct(DISTINCT), None), (LONG[1], None, None)]
    rows = [_measured(load, quick, values, schema) for load, values, schema in loads]
    return [*itertools.chain(*rows), *_measured(JSON, quick, orders(20_000), SCHEMA)]


class Distinct(Sequence[bytes]):
    """Distinct values of a load's kind, one for each record: each begins with its number."""

    def __init__(self, load: Load) -> None:
        self._values, self._count = values_of(load), load.records

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        return b"%016x" % (at * NOISE % 2**64) + self._values[at % len(self._values)][16:]


def _measured(load: Load, quick: bool, values: Sequence[bytes] | None, schema: str | None = None) -> list[Row]:
    """``values`` None: the load's own. ``schema`` is that of JSON values; None means that they are bytes."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        topic = Topic(Site(kafka, folder / "site", ""), load, quick, values)
        spark = opened.enter_context(session_of(2))
        return _compared(spark, topic, folder, 1 if quick else RUNS, schema)


def _compared(spark: SparkSession, topic: Topic, folder: Path, runs: int, schema: str | None) -> list[Row]:
    typed = ["--value-format", "json", "--value-schema", schema] if schema else []
    numbers = itertools.count()
    spent: dict[str, list[Spent]] = {"ours": [], KAFKA: []}
    for turn in range(runs + 1):
        place = folder / f"export-{next(numbers)}"
        sides = {
            "ours": partial(_command, topic, place, *typed),
            KAFKA: partial(_spark, spark, topic, folder / f"spark-{next(numbers)}", schema),
        }
        for side, run in sides.items():
            one = run()
            if turn:
                spent[side].append(one)
        if turn == runs:
            check = _command(topic, place, "--check")
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
        Row(f"{name}, check", _log_bytes(topic) / check.seconds / 1e6, "MB of log a second"),
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
    """Wait for the process that the tasks were forked from: it waited for them, and ends when the command has."""
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
    same = {"compression": "zstd", "parquet.compression.codec.zstd.level": str(LEVEL)}
    frame.write.options(**same).partitionBy("date").parquet(str(place))
    return Spent(time.perf_counter() - began, cpu_of_tree(pid) - before)


def _encoding(topic: Topic, folder: Path) -> float:
    """Return µs of CPU a record."""
    batches: list[pa.RecordBatch] = pickle.loads(topic.batches.read_bytes())
    group = pa.Table.from_batches(batches * 10).combine_chunks()
    spent = []
    for number in range(RUNS + 1):
        began = time.process_time()
        with (folder / f"memory-{number}.parquet").open("wb") as file, writer_of(file, group.schema) as writer:
            writer.write_table(group)
        spent.append(time.process_time() - began)
    per_record: float = statistics.median(spent[1:]) * 1e6 / group.num_rows
    return per_record


def _log_bytes(topic: Topic) -> int:
    return sum(path.stat().st_size for path in topic.site.log_dir.glob(f"{topic.name}-*/*.log"))

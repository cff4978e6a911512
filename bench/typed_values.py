"""Values as typed columns, made in the executor (``value.format=json``, ``avro``) or by `from_json` in the JVM.

The first rows are without Spark, on one core, of orders with five fields, as 120 B of JSON, or with seven as 40 B of
Avro (200,000, the least of five runs in turns); "resolved" to a schema with one more field and a wider one. The others
are queries as in `spark-scan`, with ``columns=value``. Medians of three runs.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader, schemaless_writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.servers.schema_registry import registry
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.values.avro_schemas import parsed
from tierstate.values.form import Form
from tierstate.values.open import Reader, open_reader
from tierstate.values.schema_registry import RegistryAccess

from .agent_site import Site
from .rows import Row
from .spark_scan import KAFKA, RUNS, Load, Query, Topic, in_turns, session_of

SCHEMA = "user bigint, item string, price double, at timestamp, tags array<string>"
LOAD = Load("120 B JSON", 120, "zstd", 3_000_000, ("", ""))
AVRO: dict[str, Any] = {
    "user": "long",
    "item": "string",
    "price": "double",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "tags": {"type": "array", "items": "string"},
    "note": ["null", "string"],
    "count": "int",
}
BATCH, BATCHES = 8192, 12
LEAST_OF = 5
OURS, FASTAVRO = "our value and from_json", "fastavro, dictionaries alone"


def orders(count: int, broken: int = 0) -> list[bytes]:
    """``broken``: this many of each thousand end early."""
    made = []
    for number in range(count):
        order = {
            "user": number * 7919 % 1_000_003,
            "item": f"item-{number % 977}",
            "price": number % 5000 / 100,
            "at": f"2026-01-{number % 28 + 1:02}T10:{number % 60:02}:00Z",
            "tags": ["new", "paid"][: number % 3],
        }
        text = json.dumps(order).encode()
        made.append(text[:-9] if number % 1000 < broken else text)
    return made


def measure(quick: bool = False) -> list[Row]:
    """About 4 minutes, 2 GB of disk."""
    rows = [
        _json("orders", SCHEMA, 0, quick),
        _json("orders, one field", "user bigint", 0, quick),
        _json("orders, one in a thousand broken", SCHEMA, 1, quick),
        _json("orders, a hundred in a row of a thousand broken", SCHEMA, 100, quick),
        _json("orders, all broken", SCHEMA, 1000, quick),
        *_avro(quick),
    ]
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tierstate-bench-")))
        kafka = opened.enter_context(KafkaSandbox(folder=folder / "kafka"))
        topic = Topic(Site(kafka, folder / "site", ""), LOAD, quick, orders(20_000))
        with session_of(2) as spark:
            for query, schema in ((ONE, "user bigint"), (ALL, SCHEMA)):
                rows += _compared(spark, topic, query, schema, 1 if quick else RUNS)
    return rows


def _json(what: str, schema: str, broken: int, quick: bool) -> Row:
    return _alone(what, open_reader(Form("json", schema), None), orders(BATCH * BATCHES, broken), quick)


def _avro(quick: bool) -> list[Row]:
    """Measure orders of seven fields, bare; and with ids, resolved to a schema of one more field and a wider one."""
    old: dict[str, Any] = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in AVRO.items()],
    }
    wider = {"name": "count", "type": "long"}, {"name": "more", "type": ["null", "string"], "default": None}
    new = old | {"fields": [*old["fields"][:-1], *wider]}
    bare = []
    for number, text in enumerate(orders(2 * BATCH if quick else 200_000)):
        order, value = json.loads(text), BytesIO()
        more = {"note": None if number % 2 else f"note {number}", "count": number % 100}
        schemaless_writer(value, old, order | more | {"at": datetime.fromisoformat(order["at"])})
        bare.append(value.getvalue())
    with registry({7: (200, {"schema": json.dumps(old)})}) as server:
        named = [b"\0\0\0\0\x07" + value for value in bare]
        ours = open_reader(Form("avro", json.dumps(old)), None)
        resolving = open_reader(Form("avro", json.dumps(new), True), RegistryAccess(server.url))
        return [
            _beside("Avro orders", ours, bare, bare, parsed(json.dumps(old), ""), None, "<= 0.8"),
            _beside(
                "Avro orders, resolved",
                *(resolving, named, bare, parsed(json.dumps(old), ""), parsed(json.dumps(new), ""), "<= 1.2"),
            ),
        ]


def _beside(
    what: str, values: Reader, texts: Sequence[bytes], bare: Sequence[bytes], writer: Any, reader: Any, goal: str
) -> Row:
    """Measure the CPU of this process, compared with that of fastavro, which makes only dictionaries."""
    batches = [pa.array(texts[at : at + BATCH], pa.binary()) for at in range(0, len(texts), BATCH)]
    sides: tuple[Callable[[], object], ...] = (
        lambda: [values.of(batch) for batch in batches],
        lambda: [schemaless_reader(BytesIO(value), writer, reader) for value in bare],
    )
    spent: list[list[float]] = [[], []]
    for _ in range(LEAST_OF + 1):
        for side, measured in zip(sides, spent, strict=True):
            began = time.process_time()
            side()
            measured.append((time.process_time() - began) / len(texts) * 1e6)
    unit = "µs a record, less is better"
    return Row(f"{what}, without Spark, CPU", min(spent[0][1:]), unit, min(spent[1][1:]), FASTAVRO, goal)


def _alone(what: str, values: Reader, texts: Sequence[bytes], quick: bool) -> Row:
    """Measure the CPU of this process, which has one thread."""
    batches = [pa.array(texts[at : at + BATCH], pa.binary()) for at in range(0, len(texts), BATCH)][
        : 1 if quick else None
    ]
    spent = []
    for _ in range(1 if quick else RUNS + 1):
        began = time.process_time()
        for batch in batches:
            values.of(batch)
        spent.append(time.process_time() - began)
    cpu = statistics.median(spent[-RUNS:]) / sum(map(len, batches))
    return Row(f"{what}, without Spark, CPU", cpu * 1e6, "µs a record, less is better")


def _sum(frame: DataFrame) -> object:
    return frame.agg(F.sum("value.user")).collect()


def _aggregates(frame: DataFrame) -> object:
    return frame.agg(
        F.sum("value.user"), F.sum(F.length("value.item")), F.max("value.price"), F.max("value.at"),
        F.sum(F.size("value.tags")),
    ).collect()  # fmt: skip


ONE = Query("sum of the one field of the schema", "value", _sum)
ALL = Query("aggregates over five fields", "value", _aggregates)


def _compared(spark: SparkSession, topic: Topic, query: Query, schema: str, runs: int) -> list[Row]:
    typed = {"value.format": "json", "value.schema": schema}
    sides: dict[str, Callable[[], DataFrame]] = {
        "ours": partial(_ours, spark, topic, typed),
        OURS: lambda: _by_from_json(_ours(spark, topic, {}), schema),
        KAFKA: lambda: _by_from_json(_kafka(spark, topic), schema),
    }
    answers = {side: str(query.run(frame())) for side, frame in sides.items()}
    assert len(set(answers.values())) == 1, answers
    spent = in_turns(spark, sides, query, runs)
    rows, what, each = [], f"{topic.load.name}, {query.name}", 1e6 / topic.records
    for peer, name in ((OURS, OURS), (KAFKA, f"{KAFKA} and from_json")):
        rows.append(Row(what, topic.records / spent["ours"][0], "records/s", topic.records / spent[peer][0], name))
        unit = "µs a record, less is better"
        rows.append(Row(f"{what}, CPU", spent["ours"][1] * each, unit, spent[peer][1] * each, name))
    return rows


def _ours(spark: SparkSession, topic: Topic, more: dict[str, str]) -> DataFrame:
    options = topic.options | topic.range | {"columns": "value"} | more
    return spark.read.format("tierstate").options(**options).load()


def _kafka(spark: SparkSession, topic: Topic) -> DataFrame:
    options = {"kafka.bootstrap.servers": topic.site.kafka.bootstrap, "subscribe": topic.name, **topic.range}
    return spark.read.format("kafka").options(**options).load()


def _by_from_json(frame: DataFrame, schema: str) -> DataFrame:
    theirs = F.from_json(F.col("value").cast("string"), schema, {"timeZone": "UTC"})
    return frame.select(theirs.alias("value"))

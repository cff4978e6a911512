"""Print records as ``tierstate consume`` does, from decoded batches to bytes, on one core.

The values are JSON of 120 B, of which an eighth are quotes. The peer of a line of JSON is orjson, a row at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import orjson
import pyarrow as pa

from tierstate.log.json_lines import json_lines
from tierstate.log.record_columns import RECORD_SCHEMA
from tierstate.log.text_columns import FIELDS, printed, slices

from .rows import Row, rate

RECORDS = 400_000
BATCH_RECORDS = 8192
TEMPLATES = {
    "%s\\n": (FIELDS["s"], b"\n"),
    "%o %k %s\\n": (FIELDS["o"], b" ", FIELDS["k"], b" ", FIELDS["s"], b"\n"),
}

Part = bytes | Callable[[pa.RecordBatch], pa.Array]


def decoded(first: int, count: int) -> pa.RecordBatch:
    """Return records whose offsets start at ``first``."""
    text = "lorem ipsum dolor sit amet consectetur adipisci"
    columns = {
        "key": [b"customer-%d" % number for number in range(count)],
        "value": [
            json.dumps({"user": number, "rows": [1, 2], "text": text, "a": "b"}).encode() for number in range(count)
        ],
        "topic": ["orders"] * count,
        "partition": [0] * count,
        "offset": range(first, first + count),
        "timestamp": [1_767_225_600_000_000] * count,
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)


def measure(quick: bool = False) -> list[Row]:
    """Both templates of the goal, and JSON."""
    count = RECORDS >> 5 if quick else RECORDS
    batches = [decoded(first, BATCH_RECORDS) for first in range(0, count, BATCH_RECORDS)]
    rows = [
        Row(f"--format '{name}'", rate(partial(_templated, parts, batches)) / 1e6, "M records/s", goal=">= 1 M/s")
        for name, parts in TEMPLATES.items()
    ]
    peer = rate(partial(_row_by_row, batches)) / 1e6
    ours = rate(partial(_json, batches)) / 1e6
    return [*rows, Row("--json", ours, "M records/s", peer, "orjson.dumps of each record", ">= 1 M/s")]


def _templated(parts: tuple[Part, ...], batches: list[pa.RecordBatch]) -> float:
    for batch in batches:
        for rows in slices(batch):
            printed([part if isinstance(part, bytes) else part(rows) for part in parts])
    return _records(batches)


def _json(batches: list[pa.RecordBatch]) -> float:
    for batch in batches:
        for _ in json_lines(batch, tier="remote"):
            pass
    return _records(batches)


def _row_by_row(batches: list[pa.RecordBatch]) -> float:
    for batch in batches:
        dump_each(batch)
    return _records(batches)


def dump_each(batch: pa.RecordBatch) -> None:
    """Make a line of JSON of each record by orjson. Bytes that are not UTF-8 become U+FFFD, as in ours."""
    names = [*RECORD_SCHEMA.names, "tier"]
    times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    columns = {name: batch.column(name).to_pylist() for name in names[:-1] if name != "timestamp"}
    columns |= {name: [data.decode(errors="replace") for data in columns[name]] for name in ("key", "value")}
    columns |= {"timestamp": times, "tier": ["remote"] * batch.num_rows}
    for row in zip(*(columns[name] for name in names), strict=True):
        orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE)


def _records(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)

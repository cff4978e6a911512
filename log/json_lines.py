"""Write records as JSON, in the same form everywhere (`docs/formats.md`). Field names are Kafka's camelCase.

A layout defines the text around the fields of a record, their order and how bytes are shown. All records of a block
are measured first, then written `CHUNK_BYTES` at a time. Memory: one chunk, or one larger record (escaped text is up to
six times as long as the bytes), and two bytes for each record and each header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa

from ..state.errors import InvalidRequest
from . import json_kernels as k
from .record_block import RecordBlock
from .record_columns import FIELDS
from .record_lines import Encoding as Encoding
from .record_parts import RecordParts, parts_of

CHUNK_BYTES = 256 * 1024
"""Maximum size of a chunk of JSON. A larger record is a chunk of its own."""


_FORMS = {Encoding.UTF8: k.TEXT, Encoding.BASE64: k.BASE64}


@dataclass(frozen=True, slots=True)
class Layout:
    """The text around a record's ``fields``. ``around``: the bytes before, between and after them, one entry more than
    ``fields``. The forms are `json_kernels.TEXT`, `BASE64` or `VERBATIM`: ``form`` is that of keys and values."""

    around: tuple[bytes, ...]
    fields: tuple[int, ...]
    form: int
    header_form: int


def line_layout(
    topic: str, partition: int, encoding: Encoding = Encoding.UTF8, tier: str | None = None, *, ends_line: bool = True
) -> Layout:
    """Return the layout of the JSON lines that `consume` and the gateway write."""
    form, end = _FORMS[encoding], b"" if tier is None else b',"tier":' + orjson.dumps(tier)
    around = (
        b'{"topic":%b,"partition":%d,"offset":' % (orjson.dumps(topic), partition),
        *(b',"timestamp":', b',"timestampType":', b',"key":', b',"value":', b',"headers":['),
        b"]" + end + (b"}\n" if ends_line else b"}"),
    )
    return Layout(around, (k.OFFSET, k.TIMESTAMP, k.TYPE, k.KEY, k.VALUE, k.HEADERS), form, form)


def rest_layout(topic: str, partition: int, *, binary: bool) -> Layout:
    """Return the layout of Kafka's REST Proxy, v2. Keys and values are base64 if ``binary``, else raw JSON."""
    form = k.BASE64 if binary else k.VERBATIM
    between = b',"partition":%d,"offset":' % partition
    around = (
        *(b'{"topic":%b,"key":' % orjson.dumps(topic), b',"value":', between),
        *(b',"timestamp":', b',"timestampType":', b',"headers":[', b"]}"),
    )
    return Layout(around, (k.KEY, k.VALUE, k.OFFSET, k.TIMESTAMP, k.TYPE, k.HEADERS), form, k.BASE64)


def json_records(records: RecordBlock | pa.RecordBatch, layout: Layout, between: bytes = b"") -> Iterator[memoryview]:
    """Yield the JSON of all records in chunks, with ``between`` before each record."""
    parts = parts_of(records)
    columns = _columns(parts)
    around = (between + layout.around[0], *layout.around[1:])
    marks, header_marks = np.empty((len(parts.offsets), 2), np.uint8), np.empty((len(parts.headers.size), 2), np.uint8)
    ends = np.empty(len(parts.offsets) + 1, np.int64)
    fixed = sum(map(len, around))
    k.measure(*columns, layout.form, layout.header_form, fixed, marks, header_marks, ends)
    literals = np.frombuffer(b"".join(around), np.uint8)
    literal_ends = np.cumsum([0, *map(len, around)], dtype=np.int64)
    fields = np.array(layout.fields, np.int64)
    first = 0
    while first < len(parts.offsets):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + CHUNK_BYTES, "right")) - 1)
        target = np.empty(int(ends[last] - ends[first]), np.uint8)
        k.fill(*columns, first, last, literals, literal_ends, fields, marks, header_marks, target)
        yield target.data
        first = last


def block_lines(
    block: RecordBlock, topic: str, partition: int, encoding: Encoding = Encoding.UTF8, tier: str | None = None
) -> Iterator[memoryview]:
    """Yield lines with newlines, many at a time. Times are milliseconds, also if microseconds cannot hold them."""
    return json_records(block, line_layout(topic, partition, encoding, tier))


def json_lines(
    batch: pa.RecordBatch, encoding: Encoding = Encoding.UTF8, tier: str | None = None
) -> Iterator[memoryview]:
    """Yield the lines of Arrow rows of one partition, in the schema of `decode.record_schema`, like `block_lines`.

    Raises InvalidRequest for rows of several partitions.
    """
    if not batch.num_rows:
        return
    if "headers" not in batch.schema.names:
        batch = batch.append_column("headers", pa.nulls(batch.num_rows, FIELDS["headers"]))
    topics, partitions = (batch.column(name).unique().to_pylist() for name in ("topic", "partition"))
    if len(topics) != 1 or len(partitions) != 1:
        raise InvalidRequest("rows of one partition at a time", topics=topics, partitions=partitions)
    yield from json_records(batch, line_layout(topics[0], partitions[0], encoding, tier))


def _columns(parts: RecordParts) -> tuple[object, ...]:
    """Return the columns in the order of the kernels' arguments."""
    table = parts.headers
    return (
        *(parts.offsets, parts.timestamps, parts.types, parts.keys, parts.values, parts.at, parts.size),
        *(table.lists, table.names, table.contents, table.at, table.size),
    )

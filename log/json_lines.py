"""Records as JSON lines, the same wherever records are printed (`docs/formats.md`). Names are Kafka's camelCase."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import orjson
import pyarrow as pa

from .json_kernels import quote, quoted_size
from .kernels import KEY_AT, VALUE_AT
from .record_block import FIELDS, RecordBlock
from .text_columns import SLICE_BYTES, TEXT, decimal, joined, listed, milliseconds, printed, slices


class Encoding(StrEnum):
    """How bytes are shown: ``utf8`` is text where it is valid UTF-8, else ``{"base64": …}``."""

    UTF8 = "utf8"
    BASE64 = "base64"


def block_lines(
    block: RecordBlock,
    topic: str,
    partition: int,
    encoding: Encoding = Encoding.UTF8,
    tier: str | None = None,
    slice_bytes: int = SLICE_BYTES,
) -> Iterator[bytes]:
    """One line a record, each with its newline, many at a time; times as Kafka has them, whatever microseconds hold.

    ``slice_bytes``: of records before they are encoded, about, at a time; one at least.
    """
    count = len(block)
    columns = {
        "topic": pa.repeat(topic, count),
        "partition": pa.repeat(partition, count),
        "offset": block.offsets,
        "timestamp": block.timestamps,
        "timestampType": block.types,
        "key": block.binary(KEY_AT),
        "value": block.binary(VALUE_AT),
        "headers": block.headers(),
    }
    return _lines(pa.RecordBatch.from_pydict(columns), encoding, tier, slice_bytes)


def json_lines(batch: pa.RecordBatch, encoding: Encoding = Encoding.UTF8, tier: str | None = None) -> Iterator[bytes]:
    """As `block_lines`, from Arrow in the schema of `decode.record_schema`."""
    names = batch.schema.names
    columns = {name: batch.column(name) for name in names}
    columns["timestamp"] = milliseconds(batch.column("timestamp"))
    columns.setdefault("headers", pa.nulls(batch.num_rows, FIELDS["headers"]))
    return _lines(pa.RecordBatch.from_pydict(columns), encoding, tier)


def _lines(
    batch: pa.RecordBatch, encoding: Encoding, tier: str | None, slice_bytes: int = SLICE_BYTES
) -> Iterator[bytes]:
    """``timestamp`` in milliseconds."""
    end = b"]}\n" if tier is None else b'],"tier":' + orjson.dumps(tier) + b"}\n"
    for rows in slices(batch, slice_bytes):
        parts = [
            *(b'{"topic":', _names(rows.column("topic"))),
            *(b',"partition":', decimal(rows.column("partition"))),
            *(b',"offset":', decimal(rows.column("offset"))),
            *(b',"timestamp":', decimal(rows.column("timestamp"))),
            *(b',"timestampType":', decimal(rows.column("timestampType"))),
            *(b',"key":', _shown(rows.column("key"), encoding)),
            *(b',"value":', _shown(rows.column("value"), encoding)),
            *(b',"headers":[', _headers(rows.column("headers"), encoding), end),
        ]
        yield printed(parts)


def _headers(headers: pa.Array, encoding: Encoding) -> pa.Array:
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), TEXT)
    name, value = headers.flatten().flatten()
    each = joined([b'{"key":', _names(name), b',"value":', _shown(value, encoding), b"}"])
    return listed(headers, each)


def _shown(data: pa.Array, encoding: Encoding) -> pa.Array:
    """Bytes as JSON. Null stays null."""
    if encoding is Encoding.UTF8:
        try:
            text = data.cast(pa.large_string())
        except pa.ArrowInvalid:  # not all of it is text
            return pa.array([_json(each) for each in data.to_pylist()], TEXT)
        return _strings(text)
    return pa.array([b"null" if each is None else b'"%b"' % base64.b64encode(each) for each in data.to_pylist()], TEXT)


def _names(text: pa.Array) -> pa.Array:
    """As `_strings`, of few different ones."""
    known = text.dictionary_encode()
    return _strings(known.dictionary.cast(pa.large_string())).take(known.indices)


def _strings(text: pa.Array) -> pa.Array:
    """Text as JSON strings, byte for byte as orjson writes them; ``null`` for null."""
    count = len(text)
    _, ends, data = text.buffers()
    valid = text.is_valid().cast(pa.uint8()).to_numpy()
    starts = np.frombuffer(ends, np.int64)[text.offset : text.offset + count + 1] if count else np.zeros(1, np.int64)
    raw = np.frombuffer(data or b"", np.uint8)
    target, reached = np.empty(quoted_size(raw, starts, valid), np.uint8), np.empty(count + 1, np.int64)
    quote(raw, starts, valid, target, reached)
    return pa.Array.from_buffers(TEXT, count, [None, pa.py_buffer(reached), pa.py_buffer(target)], 0)


def _json(data: bytes | None) -> bytes:
    try:
        return orjson.dumps(None if data is None else data.decode())
    except UnicodeDecodeError:
        return orjson.dumps({"base64": base64.b64encode(data or b"").decode()})

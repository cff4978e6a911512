"""Decode every media type to rows: offset, milliseconds, key, value, headers."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from typing import Any

import httpx
import pyarrow as pa
from pyarrow import parquet

from tests.fetch.two_tiers import Row, rows
from tierstate.api.media import ARROW, BATCHES, KAFKA_BINARY, NDJSON, PARQUET
from tierstate.log.decode import decode_batches
from tierstate.state.offsets import Offset
from tierstate.state.segment import AbortedRange

Plain = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def plain(row: Row) -> Plain:
    """Return the row without the timestamp's type, for which the REST Proxy's form has no field."""
    return row[0], row[1], row[3], row[4], row[5]


def decoded(answer: httpx.Response, offset: int, *, committed: bool) -> list[Plain]:
    """Return the records of an answer that was requested from ``offset``."""
    assert answer.status_code == 200, answer.text
    match answer.headers["content-type"]:
        case media if media == ARROW:
            with pa.ipc.open_stream(answer.content) as stream:
                return [plain(row) for row in rows(stream)]
        case media if media == PARQUET:
            return [plain(row) for row in rows(parquet.read_table(pa.BufferReader(answer.content)).to_batches())]
        case media if media == NDJSON:
            return [_plain(json.loads(line), _text) for line in answer.content.splitlines()]
        case media if media == KAFKA_BINARY:
            return [_plain(record, _binary) for record in answer.json()]
        case media if media == BATCHES:
            data, aborted = split_batches(answer.content)
            batches = decode_batches(
                data,
                source="answer",
                topic="t",
                partition=0,
                aborted=aborted if committed else None,
                start=offset,
                end=int(answer.headers["x-next-offset"]),
            )
            return [plain(row) for row in rows(batches)]
        case other:
            raise AssertionError(other)


def split_batches(body: bytes) -> tuple[bytes, list[AbortedRange]]:
    """Split the body into batches and aborted ranges, by the documented trailer."""
    (count,) = struct.unpack(">i", body[-4:])
    at = len(body) - 4 - 24 * count
    ranges = struct.iter_unpack(">qqq", body[at:-4])
    return body[:at], [AbortedRange(producer, Offset(first), Offset(last)) for producer, first, last in ranges]


def _plain(record: dict[str, Any], raw: Any) -> Plain:
    headers = tuple((header["key"], raw(header["value"])) for header in record["headers"])
    return record["offset"], record["timestamp"], raw(record["key"]), raw(record["value"]), headers


def _text(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()


def _binary(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)

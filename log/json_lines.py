"""Records as JSON lines, the same wherever records are printed (`docs/formats.md`). Names are Kafka's camelCase."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import orjson
import pyarrow as pa

from .record_block import RecordBlock

Json = bytes | str | dict[str, str] | None


class Encoding(StrEnum):
    """How bytes are shown: ``utf8`` is text where it is valid UTF-8, else ``{"base64": …}``."""

    UTF8 = "utf8"
    BASE64 = "base64"


def shown(data: bytes | None, encoding: Encoding) -> Json:
    """Null stays null."""
    if data is None:
        return None
    if encoding is Encoding.UTF8:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    return base64.b64encode(data).decode()


def block_lines(
    block: RecordBlock, topic: str, partition: int, encoding: Encoding = Encoding.UTF8, tier: str | None = None
) -> Iterator[bytes]:
    """One line a record, with its newline; times as Kafka has them, whatever microseconds can hold."""
    for row in block.rows():
        yield _line(topic, partition, row, encoding, tier)


def json_lines(batch: pa.RecordBatch, encoding: Encoding = Encoding.UTF8, tier: str | None = None) -> Iterator[bytes]:
    """As `block_lines`, from Arrow in the schema of `decode.record_schema`."""
    names = batch.schema.names
    columns = (
        batch.column("offset").to_pylist(),
        [micros // 1000 for micros in batch.column("timestamp").cast(pa.int64()).to_pylist()],
        batch.column("timestampType").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("headers").to_pylist() if "headers" in names else [None] * batch.num_rows,
    )
    topics, partitions = batch.column("topic").to_pylist(), batch.column("partition").to_pylist()
    for topic, partition, *row in zip(topics, partitions, *columns, strict=True):
        yield _line(topic, partition, tuple(row), encoding, tier)


def _line(topic: str, partition: int, row: tuple[Any, ...], encoding: Encoding, tier: str | None) -> bytes:
    offset, timestamp, kind, key, value, headers = row
    record: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "timestampType": kind,
        "key": shown(key, encoding),
        "value": shown(value, encoding),
        "headers": [{"key": each["key"], "value": shown(each["value"], encoding)} for each in headers or []],
    }
    if tier is not None:
        record["tier"] = tier
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)

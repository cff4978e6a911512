"""The form of records in each media type: blocks of records become chunks of a body. Only one block is in memory.

The Kafka forms are the REST Proxy's v2 (``topic key value partition offset``) with ``timestamp``, ``timestampType`` and
``headers`` added.
`application/vnd.tierstate.batches` is

    whole record batches, as stored                         the body up to the trailer
    (int64 producer id, int64 first, int64 last) * count    aborted ranges, both offsets included
    int32 count                                             the last four bytes of the body

big-endian. Control batches and records outside [offset, X-Next-Offset) are included; a reader must drop them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from ..fetch.piece import Fetched
from ..log.json_lines import Encoding, Layout, json_records, line_layout, rest_layout
from ..log.kernels import KEY_AT, VALUE_AT
from ..log.record_block import RecordBlock
from ..log.record_columns import RECORD_SCHEMA
from ..state.routing import Tier
from ..values.registered_values import AnswerValues
from . import media
from .problems import NotJson

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ABORTED = struct.Struct(">qqq")
_COUNT = struct.Struct(">i")


def form_of(media_type: str, topic: str, partition: int, encoding: Encoding, values: AnswerValues | None) -> RecordForm:
    """Return the form of one answer, whose body is `begin`, the chunks of each block, and `end`.

    ``values`` adds decoded values to lines and JSON. Stored batches have no form.
    """
    if values is not None:
        around = (b"[", b",\n", b"]") if media_type == media.JSON else (b"", b"\n", b"\n")
        return _Decoded(partial(line_layout, topic, partition, encoding, ends_line=False), values, *around)
    match media_type:
        case media.ARROW:
            return _Arrow(topic, partition)
        case media.PARQUET:
            return _Parquet(topic, partition)
        case media.NDJSON:
            return _Json(partial(line_layout, topic, partition, encoding), b"", b"", b"")
        case media.JSON:
            layout = partial(line_layout, topic, partition, encoding, ends_line=False)
            return _Json(layout, b"[", b",\n", b"]")
    rest = rest_layout(topic, partition, binary=media_type == media.KAFKA_BINARY)
    return _Json(lambda tier: rest, b"[", b",", b"]")


class _Arrow:
    """An Arrow IPC stream. It has the schema even if there are no records."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def begin(self) -> bytes:
        return bytes(RECORD_SCHEMA.serialize())

    def chunks(self, block: RecordBlock, tier: Tier) -> Iterator[memoryview]:
        yield memoryview(block.to_arrow(self._topic, self._partition, RECORD_SCHEMA).serialize())

    def end(self) -> bytes:
        return END_OF_STREAM


class _Parquet:
    """A Parquet file whose row groups are the blocks. The footer, which lists the row groups, comes last."""

    def __init__(self, topic: str, partition: int) -> None:
        # imported here, because it takes 40 ms and few answers are Parquet
        from pyarrow.parquet import ParquetWriter

        self._topic, self._partition = topic, partition
        self._into = _Written()
        self._writer = ParquetWriter(pa.PythonFile(self._into, "w"), RECORD_SCHEMA, compression="zstd")

    def begin(self) -> bytes:
        return self._into.taken()

    def chunks(self, block: RecordBlock, tier: Tier) -> Iterator[bytes]:
        self._writer.write_batch(block.to_arrow(self._topic, self._partition, RECORD_SCHEMA))
        yield self._into.taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._into.taken()


class _Written(io.RawIOBase):
    """A file that is written sequentially. `taken` returns and removes the bytes written so far."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        data, self._pieces = b"".join(self._pieces), []
        return data


class _Json:
    def __init__(self, layout: Callable[[str], Layout], begin: bytes, between: bytes, end: bytes) -> None:
        self._layout, self._begin, self._between, self._end = layout, begin, between, end
        self._skip = len(between)
        """Bytes to drop from the first chunk: there is no separator before the first record."""

    def begin(self) -> bytes:
        return self._begin

    def chunks(self, block: RecordBlock, tier: Tier) -> Iterator[bytes | memoryview]:
        for chunk in self._records(block, tier):
            yield chunk[self._skip :]
            self._skip = 0

    def end(self) -> bytes:
        return b"" if self._skip and not self._begin else self._end

    def _records(self, block: RecordBlock, tier: Tier) -> Iterator[bytes | memoryview]:
        yield from json_records(block, self._layout(tier.value), self._between)


class _Decoded(_Json):
    """Records as JSON, each with its key and value also decoded by their schemas."""

    def __init__(
        self, layout: Callable[[str], Layout], values: AnswerValues, begin: bytes, between: bytes, end: bytes
    ) -> None:
        super().__init__(layout, begin, between, end)
        self._values = values

    def _records(self, block: RecordBlock, tier: Tier) -> Iterator[bytes]:
        keys, values = iter(block.binary(KEY_AT)), iter(block.binary(VALUE_AT))
        for chunk in json_records(block, self._layout(tier.value), b"\n"):
            for line in bytes(chunk[1:]).split(b"\n"):
                key, value = (self._values.json(next(each).as_py()) for each in (keys, values))
                yield self._between + line[:-1] + b',"keyDecoded":' + key + b',"valueDecoded":' + value + b"}"


RecordForm = _Arrow | _Parquet | _Json


def require_json(block: RecordBlock) -> None:
    """Raises NotJson with the offset of the first record whose key or value is not JSON."""
    columns = block.offsets.tolist(), block.binary(KEY_AT).to_pylist(), block.binary(VALUE_AT).to_pylist()
    for offset, key, value in zip(*columns, strict=True):
        for name, data in (("key", key), ("value", value)):
            try:
                if data is not None:
                    orjson.loads(data)
            except orjson.JSONDecodeError:
                raise NotJson(
                    f"the {name} of a record is not JSON: ask for application/vnd.kafka.binary.v2+json", offset=offset
                ) from None


def batches_trailer(piece: Fetched) -> bytes:
    """Return the bytes after the batches: the aborted ranges and their count."""
    ranges = [_ABORTED.pack(each.producer_id, each.first, each.last) for each in piece.aborted]
    return b"".join(ranges) + _COUNT.pack(len(ranges))

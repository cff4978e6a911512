"""Records as each media type has them: blocks of records in, chunks of a body out. One block at a time is in memory.

The Kafka forms are the REST Proxy's v2 (``topic key value partition offset``) with ``timestamp``, ``timestampType`` and
``headers`` added.
`application/vnd.tierstate.batches` is

    whole record batches, as stored                         the body up to the trailer
    (int64 producer id, int64 first, int64 last) * count    aborted ranges, both offsets included
    int32 count                                             the last four bytes of the body

big-endian. Control batches and records outside [offset, X-Next-Offset) are included: a reader drops them.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator

import orjson

from ..fetch.piece import Fetched
from ..log.batch import iter_batches
from ..log.decode import RecordBlock, record_schema
from ..log.json_lines import Encoding, block_lines
from ..log.kernels import KEY_AT, VALUE_AT
from ..state.routing import Tier
from .problems import NotJson

CHUNK_BYTES = 256 * 1024
"""Of an encoded body, at a time."""
SLICE_BYTES = 256 * 1024
"""Of records that are encoded at a time, before they are; one record at least."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ABORTED = struct.Struct(">qqq")
_COUNT = struct.Struct(">i")


def arrow_stream(blocks: Iterable[RecordBlock], topic: str, partition: int) -> Iterator[bytes]:
    """An Arrow IPC stream; the schema is there even when no record is."""
    schema = record_schema()
    yield schema.serialize().to_pybytes()
    for block in blocks:
        yield block.to_arrow(topic, partition, schema).serialize().to_pybytes()
    yield END_OF_STREAM


def ndjson(
    blocks: Iterable[RecordBlock], topic: str, partition: int, encoding: Encoding, tier: Tier
) -> Iterator[bytes]:
    """Records as JSON lines."""
    for block in blocks:
        for lines in block_lines(block, topic, partition, encoding, tier.value, SLICE_BYTES):
            yield from (lines[at : at + CHUNK_BYTES] for at in range(0, len(lines), CHUNK_BYTES))


def json_array(lines: Iterable[bytes]) -> Iterator[bytes]:
    """JSON lines, which may be cut anywhere, as one array: a newline stands at the end of a record and nowhere else."""
    before = b"["
    for chunk in lines:
        # the newline that ends a chunk becomes a comma as soon as something follows it
        last = chunk.endswith(b"\n")
        yield before + (chunk[:-1] if last else chunk).replace(b"\n", b",\n")
        before = b",\n" if last else b""
    yield b"[]" if before == b"[" else b"]"


def kafka_records(blocks: Iterable[RecordBlock], topic: str, partition: int, *, binary: bool) -> Iterator[bytes]:
    """The REST Proxy's v2 array: keys and values as base64, or as the JSON they are."""
    comma = b""
    yield b"["
    for block in blocks:
        for chunk in _joined(_kafka_records(block, topic, partition, _base64 if binary else _fragment), b","):
            yield comma + chunk
            comma = b","
    yield b"]"


def _kafka_records(
    block: RecordBlock, topic: str, partition: int, embed: Callable[[bytes | None], object]
) -> Iterator[bytes]:
    for offset, timestamp, kind, key, value, headers in block.rows():
        yield orjson.dumps(
            {
                "topic": topic,
                "key": embed(key),
                "value": embed(value),
                "partition": partition,
                "offset": offset,
                "timestamp": timestamp,
                "timestampType": kind,
                "headers": [{"key": each["key"], "value": _base64(each["value"])} for each in headers or ()],
            }
        )


def require_json(block: RecordBlock, below: int) -> None:
    """Raises NotJson naming the first record below this offset whose key or value is not JSON."""
    columns = block.offsets.tolist(), block.binary(KEY_AT).to_pylist(), block.binary(VALUE_AT).to_pylist()
    for offset, key, value in zip(*columns, strict=True):
        if offset >= below:
            return
        for name, data in (("key", key), ("value", value)):
            try:
                if data is not None:
                    orjson.loads(data)
            except orjson.JSONDecodeError:
                raise NotJson(
                    f"the {name} of a record is not JSON: ask for application/vnd.kafka.binary.v2+json", offset=offset
                ) from None


def batches_trailer(piece: Fetched) -> bytes:
    """The aborted ranges behind the batches."""
    ranges = [_ABORTED.pack(each.producer_id, each.first, each.last) for each in piece.aborted]
    return b"".join(ranges) + _COUNT.pack(len(ranges))


def stored_bytes(piece: Fetched, source: str) -> int:
    """Bytes of the batches that begin below the limit; every CRC is checked. Raises CorruptData."""
    size = 0
    for header in iter_batches(piece.data, source=source):
        if header.base_offset >= piece.limit:
            break
        size = header.position + header.size_bytes
    return size


def _joined(records: Iterator[bytes], between: bytes) -> Iterator[bytes]:
    """In chunks of about `CHUNK_BYTES`."""
    chunk: list[bytes] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record)
        if size >= CHUNK_BYTES:
            yield between.join(chunk)
            chunk, size = [], 0
    if chunk:
        yield between.join(chunk)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b2a_base64(data, newline=False).decode()


def _fragment(data: bytes | None) -> orjson.Fragment | None:
    return None if data is None else orjson.Fragment(data)

"""Record batches built from the format's description, and golden folders, for the tests of this package."""

from __future__ import annotations

import gzip
import json
import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import pyarrow as pa
import zstandard

from tierstate.fetch.copied_segment import CopiedSegment
from tierstate.log.batch import CONTROL, TRANSACTIONAL
from tierstate.log.decode import RecordBlock
from tierstate.log.folder import LogFiles
from tierstate.log.kernels import KEY_AT, VALUE_AT
from tierstate.log.partition import PartitionFolder, open_partition

GOLDEN = Path(__file__).parents[1] / "data" / "kafka-logs"
OFFSET_DELTAS = GOLDEN.with_name("offset-deltas")
"""Batches that a broker of 4.3.0 appended, whose records' offsets do not count up."""
CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

TIME = 1_767_225_600_000
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, milliseconds, timestamp type (0 create, 1 append), key, value, headers."""


def golden_folder(case: str) -> PartitionFolder:
    return open_partition(next(path for path in (GOLDEN / case).iterdir() if path.is_dir()))


def golden_rows(case: str, isolation: str) -> list[Row]:
    """Return what a real consumer returned. librdkafka's timestamp types are one higher than Kafka's."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text)

    with gzip.open(GOLDEN / case / f"{isolation}.jsonl.gz", "rt") as lines:
        said = [json.loads(line) for line in lines]
    return [
        (o, t, k - 1, raw(key), raw(value), tuple((name, raw(content)) for name, content in headers))
        for o, t, k, key, value, headers in said
    ]


def blocks_of(log: LogFiles | CopiedSegment, *, committed: bool) -> Iterator[RecordBlock]:
    """Yield all visible records in blocks, decoded by the kernels."""
    return (block for piece in log.pieces(committed=committed) for block in piece.blocks())


def block_rows(block: RecordBlock) -> list[Row]:
    columns: list[Any] = [
        block.offsets.tolist(),
        block.timestamps.tolist(),
        block.types.tolist(),
        block.binary(KEY_AT).to_pylist(),
        block.binary(VALUE_AT).to_pylist(),
        [tuple((each["key"], each["value"]) for each in headers or ()) for headers in block.headers().to_pylist()],
    ]
    return list(zip(*columns, strict=True))


def arrow_rows(batch: pa.RecordBatch) -> list[Row]:
    times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    headers = [tuple((each["key"], each["value"]) for each in row or ()) for row in batch.column("headers").to_pylist()]
    plain: list[Any] = [batch.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value")]
    return list(zip(plain[0], times, *plain[1:], headers, strict=True))


def varint(number: int) -> bytes:
    number = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


Headers = Sequence[tuple[bytes, bytes | None]]


def record(delta: int, key: bytes | None, value: bytes | None, headers: Headers = (), time: int = 0) -> bytes:
    body = b"\0" + varint(time) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body)) + body


def pack(codec: int, raw: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(raw)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(raw))
    if codec == LZ4:
        return lz4_frame(raw)
    if codec == ZSTD:
        return zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    return raw


def lz4_frame(raw: bytes, stored: bool = False) -> bytes:
    """Return a frame as Kafka's clients write it: independent blocks of 64 KiB, no checksums.

    ``stored``: the blocks are not compressed, which their high bit marks.
    """
    out = bytes.fromhex("04224d18604082")
    for at in range(0, len(raw), 65536):
        part = raw[at : at + 65536]
        block = part if stored else bytes(cramjam.lz4.compress_block(part, store_size=False))
        out += struct.pack("<I", len(block) | (1 << 31 if stored else 0)) + block
    return out + bytes(4)


def xerial(raw: bytes, block: int = 32 * 1024) -> bytes:
    """Return Snappy blocks, framed as the Java client frames them."""
    blocks = [bytes(cramjam.snappy.compress_raw(raw[at : at + block])) for at in range(0, len(raw), block)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


@dataclass
class Batch:
    """The fields of one batch. ``payload`` replaces the bytes of its records."""

    base: int
    records: Sequence[bytes]
    codec: int = NONE
    attributes: int = 0
    producer: int = -1
    time: int = TIME
    max_time: int | None = None
    count: int | None = None
    delta: int | None = None
    payload: bytes | None = None
    epoch: int = 0

    @property
    def bytes(self) -> bytes:
        count = len(self.records) if self.count is None else self.count
        body = pack(self.codec, b"".join(self.records)) if self.payload is None else self.payload
        tail = struct.pack(
            ">hiqqqhii",
            self.codec | self.attributes,
            max(0, count - 1) if self.delta is None else self.delta,
            self.time,
            self.time if self.max_time is None else self.max_time,
            self.producer,
            0,
            0,
            count,
        )
        head = struct.pack(">qiib", self.base, 9 + len(tail) + len(body), self.epoch, 2)
        return head + struct.pack(">I", google_crc32c.value(tail + body)) + tail + body


def plain_batch(base: int, count: int = 3, codec: int = NONE, **fields: Any) -> bytes:
    """Return a batch of ``count`` small records: key ``k<offset>``, value ``v<offset>``."""
    records = [record(i, b"k%d" % (base + i), b"v%d" % (base + i), time=i) for i in range(count)]
    return Batch(base, records, codec, **fields).bytes


def header_batch(*counts: int) -> bytes:
    """Return records with so many empty headers each (no name, no content), compressed to a few thousand bytes."""
    records = []
    for delta, count in enumerate(counts):
        body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(-1) + varint(count) + bytes(2 * count)
        records.append(varint(len(body)) + body)
    return Batch(0, records, ZSTD).bytes


def marker(base: int, producer: int, kind: int, **fields: Any) -> bytes:
    """Return the batch that ends a producer's transaction. ``kind``: 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, kind)
    value = struct.pack(">hi", 0, 0)
    return Batch(base, [record(0, key, value)], attributes=TRANSACTIONAL | CONTROL, producer=producer, **fields).bytes

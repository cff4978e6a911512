"""Decode Kafka record batches of 64 KiB to Arrow columns on one core, with the CRC check.

MB/s are unpacked bytes in a second of CPU. The peer is aiokafka's record reader, written in C, which makes the same
columns record by record.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import cramjam
import google_crc32c
import pyarrow as pa
import zstandard
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from aiokafka.util import NO_EXTENSIONS

from tierstate.log.batch import CODECS
from tierstate.log.decode import decode_batches, record_schema

from .rows import Row, rate

BATCH_BYTES = 64 * 1024
LOG_BYTES = 16 << 20
ROUNDS = 7

GOALS = {(False, False): ">= 8x", (False, True): ">= 4x", (True, False): ">= 3x", (True, True): ">= 1.7x"}
"""Goals against aiokafka, by whether records are large, and packed."""

Packer = Callable[[bytes], bytes]
PACKERS: dict[str, Packer] = {
    "none": lambda raw: raw,
    "gzip": lambda raw: gzip.compress(raw, 6),
    "snappy": lambda raw: bytes(cramjam.snappy.compress_raw(raw)),
    "lz4": lambda raw: _lz4_frame(raw),
    "zstd": lambda raw: zstandard.ZstdCompressor(write_content_size=False).compress(raw),
}


def _lz4_frame(raw: bytes) -> bytes:
    """Frame ``raw`` as Kafka's clients do: independent blocks of 64 KiB, no checksums."""
    blocks = [
        bytes(cramjam.lz4.compress_block(raw[at : at + 65536], store_size=False)) for at in range(0, len(raw), 65536)
    ]
    return bytes.fromhex("04224d18604082") + b"".join(struct.pack("<I", len(b)) + b for b in blocks) + bytes(4)


def log_of(codec: str, record_bytes: int, size: int = LOG_BYTES, *, text: bool = False) -> tuple[bytes, int, int]:
    """Return a log, its unpacked record bytes, its records. ``text``: values are ASCII."""
    chance = random.Random(7)
    words = [chance.randbytes(chance.randint(3, 9)) for _ in range(2000)]
    if text:
        words = [word.hex().encode() for word in words]
    log, unpacked, count = [], 0, 0
    while unpacked < size:
        records = []
        for delta in range(BATCH_BYTES // record_bytes):
            value = b"".join(chance.choice(words) for _ in range(record_bytes // 5))[: record_bytes - 20]
            records.append(_record(delta, b"%08d" % (count + delta), value))
        raw = b"".join(records)
        log.append(_batch(count, len(records), CODECS.index(codec), PACKERS[codec](raw)))
        unpacked += len(raw)
        count += len(records)
    return b"".join(log), unpacked, count


def _varint(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def _record(delta: int, key: bytes, value: bytes) -> bytes:
    body = b"\0" + _varint(delta) * 2 + _varint(len(key)) + key + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _batch(base: int, count: int, codec: int, payload: bytes) -> bytes:
    tail = struct.pack(">hiqqqhii", codec, count - 1, 0, count - 1, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base, len(tail) + 9, 0, 2, google_crc32c.value(tail)) + tail


def measure(quick: bool = False) -> list[Row]:
    """Return a row for both record sizes and every codec. The peer decodes a sixteenth: its rate is the same."""
    if NO_EXTENSIONS:
        raise SystemExit("aiokafka has no compiled reader here")
    runs, whole = (1, LOG_BYTES >> 4) if quick else (ROUNDS, LOG_BYTES)
    rows = []
    for record_bytes in (100, 1000):
        for codec in CODECS:
            log, unpacked, count = log_of(codec, record_bytes, whole)
            part, part_unpacked, part_count = log_of(codec, record_bytes, unpacked // 16)
            ours = rate(partial(_decode, log, unpacked, count), runs, process_time) / 1e6
            theirs = rate(partial(_aiokafka, part, part_unpacked, part_count), runs, process_time) / 1e6
            goal = GOALS[record_bytes > 100, codec != "none"]
            rows.append(Row(f"decode {codec}, {record_bytes} B records", ours, "MB/s", theirs, "aiokafka", goal))
    return rows


def _decode(log: bytes, unpacked: int, count: int) -> float:
    total = sum(batch.num_rows for batch in decode_batches(log, source="log", topic="topic", partition=0))
    return _whole(unpacked, total, count)


def _aiokafka(log: bytes, unpacked: int, count: int) -> float:
    """Make the columns of `record_schema`; those that are the same in all records cost the peer nothing here."""
    batches: Any = AiokafkaRecords(log)
    offsets, times, types, keys, values, headers = [], [], [], [], [], []
    while (batch := batches.next_batch()) is not None:
        if not batch.validate_crc():
            raise SystemExit("a batch is damaged")
        for record in batch:
            offsets.append(record.offset)
            times.append(record.timestamp * 1000)
            types.append(record.timestamp_type)
            keys.append(record.key)
            values.append(record.value)
            headers.append(record.headers or None)
    columns = [keys, values, pa.repeat("topic", len(keys)), pa.repeat(pa.scalar(0, pa.int32()), len(keys))]
    table = pa.Table.from_arrays([*columns, offsets, times, types, headers], schema=record_schema())
    return _whole(unpacked, table.num_rows, count)


def _whole(unpacked: int, found: int, count: int) -> float:
    if found != count:
        raise SystemExit(f"decoded {found} of {count} records")
    return unpacked

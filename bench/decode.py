"""Decode batches to Arrow on one core, CRC on; MB/s of unpacked records.

Batches of 64 KiB, records of 100 B and 1 KB that compress about as well as real events do.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from functools import partial

import cramjam
import google_crc32c
import pyarrow as pa
import zstandard
from kafka.errors import UnsupportedCodecError
from kafka.record import MemoryRecords

from tierstate.log.batch import CODECS
from tierstate.log.decode import decode_batches

from .rows import RUNS, Row, rate

BATCH_BYTES = 64 * 1024
LOG_BYTES = 16 << 20
ROUNDS = 7

Packer = Callable[[bytes], bytes]
PACKERS: dict[str, Packer] = {
    "none": lambda raw: raw,
    "gzip": lambda raw: gzip.compress(raw, 6),
    "snappy": lambda raw: bytes(cramjam.snappy.compress_raw(raw)),
    "lz4": lambda raw: _lz4_frame(raw),
    "zstd": lambda raw: zstandard.ZstdCompressor(write_content_size=False).compress(raw),
}


def _lz4_frame(raw: bytes) -> bytes:
    """As Kafka's clients frame it: independent blocks of 64 KiB, no checksums."""
    blocks = [
        bytes(cramjam.lz4.compress_block(raw[at : at + 65536], store_size=False)) for at in range(0, len(raw), 65536)
    ]
    return bytes.fromhex("04224d18604082") + b"".join(struct.pack("<I", len(b)) + b for b in blocks) + bytes(4)


def log_of(codec: str, record_bytes: int, size: int = LOG_BYTES, *, text: bool = False) -> tuple[bytes, int, int]:
    """A log, its unpacked record bytes, its records. ``text``: values are ASCII."""
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
    """Both record sizes, every codec, beside kafka-python's own reader of the same bytes, and a copy of them."""
    rows = []
    for record_bytes in (100, 1000):
        for codec in CODECS:
            log, unpacked, count = log_of(codec, record_bytes, LOG_BYTES >> 4 if quick else LOG_BYTES)
            part, part_unpacked, _ = log_of(codec, record_bytes, unpacked // 16)
            ours = rate(partial(_decode, log, unpacked, count), 1 if quick else ROUNDS)
            try:
                peer = rate(partial(_kafka_python, part, part_unpacked), 1 if quick else RUNS) / 1e6
            except UnsupportedCodecError:  # it needs another library for this codec
                peer = None
            what = f"decode {codec}, {record_bytes} B records, to columns"
            rows.append(Row(what, ours / 1e6, "MB/s unpacked, one core", peer, "kafka-python's record reader"))
            plain = bytes(unpacked)
            copied = rate(partial(_copied, plain), 1 if quick else ROUNDS)
            rows.append(Row(what, ours / 1e6, "MB/s unpacked, one core", copied / 1e6, "a copy of what is unpacked"))
    return rows


def _decode(log: bytes, unpacked: int, count: int) -> float:
    found = sum(batch.num_rows for batch in decode_batches(log, source="log", topic="topic", partition=0))
    if found != count:
        raise SystemExit(f"decoded {found} of {count} records")
    return unpacked


def _copied(plain: bytes) -> float:
    return len(bytearray(plain))


def _kafka_python(log: bytes, unpacked: int) -> float:
    offsets, keys, values = [], [], []
    records = MemoryRecords(log)
    while (batch := records.next_batch()) is not None:
        for record in batch:
            offsets.append(record.offset)
            keys.append(record.key)
            values.append(record.value)
    pa.table({"offset": offsets, "key": keys, "value": values})
    return unpacked

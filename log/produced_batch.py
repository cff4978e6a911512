"""Turn stored record batches into batches that a producer may send: only their headers change, where that is enough.

A broker takes a batch as it is if its offsets count up without a gap, its times are create times, and no control or
transaction bit is set. `is_sendable` tells whether a batch is so, apart from the header fields that `stamped` sets.
Other batches are written again by `rewritten`, which keeps each record's key, value and headers byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam
import google_crc32c
import zstandard
from isal import igzip

from ..state.errors import CorruptData
from .batch import CODEC, HEADER_BYTES, TRANSACTIONAL, BatchHeader
from .compression import decompress
from .record_parser import varint_at

_CRC_FROM = 21
_PREFIX = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC-32C of the rest."""
_REST = struct.Struct(">hiqqqhii")
"""Attributes, last offset delta, first and latest time, producer id, epoch and sequence, record count."""
APPEND_TIME_BIT = 8
_LZ4_HEAD = bytes.fromhex("04224d18604082")
"""A frame of independent blocks of at most 64 KiB, without checksums, as Kafka's clients write it."""
_LZ4_BLOCK, _SNAPPY_BLOCK = 64 * 1024, 32 * 1024
_GZIP_LEVEL, _ZSTD_LEVEL = 2, 3


def is_sendable(batch: BatchHeader) -> bool:
    """Return whether `stamped` alone makes a batch that a broker takes with the same records."""
    dense = batch.record_count == batch.last_offset - batch.base_offset + 1
    return dense and not batch.attributes & ~(CODEC | TRANSACTIONAL)


def stamped(batch: bytes | memoryview, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Return the batch outside of transactions, from this producer, with a new CRC-32C. The broker sets its offset."""
    attributes, delta, first, latest, _, _, _, count = _REST.unpack_from(batch, _CRC_FROM)
    head = _REST.pack(attributes & CODEC, delta, first, latest, producer_id, epoch, sequence, count)
    tail = b"".join((head, batch[HEADER_BYTES:]))
    return _PREFIX.pack(0, len(batch) - 12, -1, 2, google_crc32c.value(tail)) + tail


def rewritten(
    data: bytes | memoryview, batch: BatchHeader, start: int, end: int, *, source: str
) -> tuple[bytes, list[int]]:
    """Return a batch of the records in [``start``, ``end``), and their offsets in the log that they come from.

    ``data``: the bytes of ``batch``. The new offsets count up from 0. Append times become create times. Without such a
    record, the batch is empty. Raises CorruptData.
    """
    payload: bytes | memoryview = data[HEADER_BYTES:]
    if batch.codec:
        payload = decompress(batch.codec, payload, source=source, position=batch.position)
    append_time = bool(batch.attributes & APPEND_TIME_BIT)
    first = batch.max_timestamp if append_time else batch.first_timestamp
    offsets: list[int] = []
    records = bytearray()
    for offset, time, content in _parts(bytes(payload), batch, source):
        if start <= offset < end and (not offsets or offset > offsets[-1]):
            body = (b"\0" if append_time else time) + _varint(len(offsets)) + content
            records += _varint(len(body) + 1) + b"\0" + body
            offsets.append(offset)
    if not offsets:
        return b"", []
    packed = compressed(batch.codec, bytes(records))
    rest = _REST.pack(batch.codec, len(offsets) - 1, first, batch.max_timestamp, -1, -1, -1, len(offsets)) + packed
    return _PREFIX.pack(0, len(rest) + 9, -1, 2, google_crc32c.value(rest)) + rest, offsets


def _parts(data: bytes, batch: BatchHeader, source: str) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield offset, encoded time, and the encoded key, value and headers of each record."""
    at = 0
    try:
        for _ in range(batch.record_count):
            length, at = varint_at(data, at)
            stop = at + length
            _, after_time = varint_at(data, at + 1)
            delta, content = varint_at(data, after_time)
            if not content <= stop <= len(data):
                raise ValueError("a record reaches beyond its batch")
            yield batch.base_offset + delta, data[at + 1 : after_time], data[content:stop]
            at = stop
        if at != len(data):
            raise ValueError("bytes are left over after the last record")
    except ValueError as error:
        raise CorruptData(str(error), file=source, position=batch.position, byte_of_records=at) from error


def _varint(number: int) -> bytes:
    """Return a zigzag varint. ``number``: 0 or above."""
    value = number << 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compressed(codec: int, data: bytes) -> bytes:
    """Return ``data`` as Kafka's Java client frames this codec."""
    if codec == 1:
        return bytes(igzip.compress(data, _GZIP_LEVEL))
    if codec == 2:
        blocks = (bytes(cramjam.snappy.compress_raw(each)) for each in _blocks(data, _SNAPPY_BLOCK))
        framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    if codec == 3:
        return _LZ4_HEAD + b"".join(map(_lz4_block, _blocks(data, _LZ4_BLOCK))) + bytes(4)
    if codec == 4:
        return zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(data)
    return data


def _lz4_block(plain: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if len(block) >= len(plain):  # a block that does not shrink is stored, which its high bit marks
        return struct.pack("<I", len(plain) | 1 << 31) + plain
    return struct.pack("<I", len(block)) + block


def _blocks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))

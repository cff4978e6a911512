"""Reads the 61-byte headers of record batches (magic 2). Nothing is decompressed here.

Layout: Kafka's ``DefaultRecordBatch``. The CRC-32C covers the bytes from the attributes to the end of the batch. It
does not cover the base offset and the leader epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c

from ..state.epochs import LeaderEpoch
from ..state.errors import CorruptData

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
_PREFIX_BYTES = 12
_CRC_FROM = 21
MAGIC_AT = 16
"""The byte position of a batch's version (magic), the same in every version."""
MAX_BATCH_BYTES = 2**31 - 1

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC, TRANSACTIONAL, CONTROL = 7, 16, 32
"""Bit masks of the attributes. Transaction markers have both TRANSACTIONAL and CONTROL set."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of a batch. ``position``: its byte position in the source. ``size_bytes``: the whole batch's size."""

    position: int
    base_offset: int
    size_bytes: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """Return the index into `CODECS`."""
        return self.attributes & CODEC

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def iter_batches(
    data: bytes | bytearray | memoryview,
    *,
    source: str,
    position: int = 0,
    verify_crc: bool = True,
    partial_tail_ok: bool = False,
    after: int = -1,
) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in ``data``, which begins at byte ``position`` of ``source``.

    Offsets must be above ``after``. Raises CorruptData (file, position, reason) for a wrong CRC, a magic other than 2,
    impossible sizes, offsets that do not increase, and a batch that is cut off. With ``partial_tail_ok``, iteration
    ends without an error before a batch that is cut off, and before a header of zeros.
    """
    view = memoryview(data)
    at, size, last_offset = 0, len(view), after
    while at < size:
        if size - at < HEADER_BYTES:
            if partial_tail_ok:
                return
            raise CorruptData("batch is cut off in its header", file=source, position=position + at)
        if partial_tail_ok and not any(view[at : at + HEADER_BYTES]):
            return
        header = read_header(view, at, source, position)
        if at + header.size_bytes > size:
            if partial_tail_ok:
                return
            raise CorruptData(
                "batch is cut off", file=source, position=header.position, bytes=header.size_bytes, left=size - at
            )
        if header.base_offset <= last_offset:
            raise CorruptData(
                "batch offsets do not increase", file=source, position=header.position, offset=header.base_offset
            )
        if verify_crc:
            crc = google_crc32c.value(bytes(view[at + _CRC_FROM : at + header.size_bytes]))
            if crc != header.crc:
                raise CorruptData(
                    "batch CRC does not match",
                    file=source,
                    position=header.position,
                    offset=header.base_offset,
                    says=f"{header.crc:08x}",
                    has=f"{crc:08x}",
                )
        last_offset = header.last_offset
        yield header
        at += header.size_bytes


def read_header(view: memoryview, at: int, source: str, position: int) -> BatchHeader:
    base, length, epoch, magic, crc, attributes, delta, first, latest, pid, pepoch, sequence, count = (
        _HEADER.unpack_from(view, at)
    )
    facts = {"file": source, "position": position + at}
    if magic != 2:
        raise CorruptData("batch is not of magic 2", **facts, magic=magic)
    if length < HEADER_BYTES - _PREFIX_BYTES or length > MAX_BATCH_BYTES - _PREFIX_BYTES:
        raise CorruptData("batch has an impossible size", **facts, bytes=length)
    if base < 0 or delta < 0 or count < 0 or count > delta + 1 or base + delta >= 2**63:
        raise CorruptData("batch header contradicts itself", **facts, offset=base, delta=delta, records=count)
    if attributes & CODEC >= len(CODECS):
        raise CorruptData("batch has an unknown codec", **facts, codec=attributes & CODEC)
    return BatchHeader(
        position + at, base, length + _PREFIX_BYTES, epoch, magic, crc, attributes, base + delta, first, latest, pid,
        pepoch, sequence, count,
    )  # fmt: skip


def first_epoch(data: bytes) -> LeaderEpoch:
    """Return the leader epoch of the first batch. ``data`` has its header. Returns -1 for a format without epochs."""
    return LeaderEpoch(int.from_bytes(data[12:MAGIC_AT], "big", signed=True) if data[MAGIC_AT] == 2 else -1)


def first_codec(data: bytes, *, source: str) -> int:
    """Return the codec of the first batch. Raises CorruptData if its header is incomplete or invalid."""
    if len(data) < HEADER_BYTES:
        raise CorruptData("log segment is shorter than a batch header", file=source, bytes=len(data))
    return read_header(memoryview(data), 0, source, 0).codec


def batch_bytes(data: bytes) -> int | None:
    """Return the size in bytes that the first batch's header states, or None if ``data`` begins with no header."""
    if len(data) < HEADER_BYTES:
        return None
    length = int.from_bytes(data[8:12], "big", signed=True)
    return length + _PREFIX_BYTES if data[MAGIC_AT] == 2 and length >= HEADER_BYTES - _PREFIX_BYTES else None

"""Compiled code for batch headers, the two passes over unpacked records, and the record digest's bytes.

Pass one (`parse`) proves every bound; later passes only copy. Kernels read memory by address, so their callers keep the
buffers alive and hand out only lengths that pass one proved. Nothing here raises: problems are returned as codes.
`record_parser.py` describes a record, and reads a few of them without compiled code.

Kernels have one signature each: numba's cache notices changes by file, and several processes that compile at once write
equal entries. `lazy_kernel.py` says when a kernel is compiled. `search_kernels.py` and `json_kernels.py` have others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .lazy_kernel import (
    byte_at,
    callee,
    copy_bytes,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    kernel,
    put8,
    put32,
    put64,
    uint32_at,
    word_at,
)
from .record_parser import FULL as FULL
from .record_parser import HEADERS, LENGTH, MAX_HEADERS, RANGE, SHORT, SURPLUS
from .record_parser import MAX_OFFSET as MAX_OFFSET
from .record_parser import OK as OK
from .record_parser import REASONS as REASONS

# Columns of the table of batch headers that `scan` fills, in the order of `batch.BatchHeader`, and the header's CRC.
POSITION, BASE, SIZE, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST = 0, 1, 2, 3, 4, 5, 6, 7
FIRST_TIME, MAX_TIME, PRODUCER, PRODUCER_EPOCH, SEQUENCE, RECORDS = 8, 9, 10, 11, 12, 13
HEADER_COLUMNS = 14

# Columns of the table of unpacked batches that `parse` reads.
START, END, FROM, TO, TIME, BY_APPEND, COUNT, POSITION_IN_DATA = 0, 1, 2, 3, 4, 5, 6, 7
BATCH_COLUMNS = 8

# State that `parse` keeps between calls, and sums that it counts over one call.
AT_BATCH, AT_RECORD, AT_BYTE, PREVIOUS = 0, 1, 2, 3
KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES, HEADER_COUNT, HEADERLESS, KEPT = 0, 1, 2, 3, 4, 5, 6
SUMS = 7

KEY_AT, VALUE_AT = 0, 1
"""Names of the two binary columns of a record."""


def _crc_tables() -> Any:
    """Return the tables of CRC-32C for steps of eight bytes."""
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        tables[0, byte] = crc
    for step in range(1, 8):
        before = tables[step - 1]
        tables[step] = (before >> np.uint64(8)) ^ tables[0][(before & np.uint64(255)).astype(np.int64)]
    return tables


_CRC = _crc_tables()


@callee
def crc32c(address: int, size: int) -> Any:
    """Return the CRC-32C of short batches, for which a call into the library costs more than the sum itself."""
    crc = np.uint64(0xFFFFFFFF)
    mask = np.uint64(255)
    for at in range(address, address + size - 7, 8):
        crc ^= word_at(at)
        crc = (
            _CRC[7, crc & mask]
            ^ _CRC[6, (crc >> np.uint64(8)) & mask]
            ^ _CRC[5, (crc >> np.uint64(16)) & mask]
            ^ _CRC[4, (crc >> np.uint64(24)) & mask]
            ^ _CRC[3, (crc >> np.uint64(32)) & mask]
            ^ _CRC[2, (crc >> np.uint64(40)) & mask]
            ^ _CRC[1, (crc >> np.uint64(48)) & mask]
            ^ _CRC[0, crc >> np.uint64(56)]
        )
    for at in range(address + (size & ~7), address + size):
        crc = (crc >> np.uint64(8)) ^ _CRC[0, (crc ^ np.uint64(byte_at(at))) & mask]
    return crc ^ np.uint64(0xFFFFFFFF)


@kernel("UniTuple(int64, 3)(int64, int64, int64, int64, int64, int64[:, ::1])")
def scan(address: int, size: int, at: int, after: int, sum_below: int, table: Any) -> Any:
    """Write the headers of whole batches from ``at`` on into ``table`` (int64 [n, 14]), as many as it holds.

    Offsets must lie above ``after``; only batches of less than ``sum_below`` bytes have their CRC checked. Returns
    (rows, where it stopped, last offset). It stops before a bad batch, for which `batch.iter_batches` has the reason.
    """
    rows = 0
    while rows < table.shape[0] and size - at >= 61:
        header = address + at
        length = int32_at(header + 8)
        base, delta, count = int64_at(header), int32_at(header + 23), int32_at(header + 57)
        attributes, crc = int16_at(header + 21), uint32_at(header + 17)
        if byte_at(header + 16) != 2 or length < 49 or length > size - at - 12 or attributes & 7 > 4:
            break
        if base <= after or delta < 0 or count < 0 or count > delta + 1 or base > MAX_OFFSET - delta:
            break
        if length + 12 < sum_below and np.int64(crc32c(header + 21, length - 9)) != crc:
            break
        after = base + delta
        table[rows, POSITION], table[rows, BASE], table[rows, SIZE] = at, base, length + 12
        table[rows, EPOCH], table[rows, MAGIC], table[rows, CRC] = int32_at(header + 12), 2, crc
        table[rows, ATTRIBUTES], table[rows, LAST] = attributes, after
        table[rows, FIRST_TIME], table[rows, MAX_TIME] = int64_at(header + 27), int64_at(header + 35)
        table[rows, PRODUCER], table[rows, PRODUCER_EPOCH] = int64_at(header + 43), int16_at(header + 51)
        table[rows, SEQUENCE], table[rows, RECORDS] = int32_at(header + 53), count
        rows += 1
        at += length + 12
    return rows, at, after


@inlined
def varint(at: int, end: int) -> Any:
    """Return a zigzag value and the address after it; address -1 if it is cut off or longer than 10 bytes."""
    if at < end:
        first = byte_at(at)
        if first < 128:
            return (first >> 1) ^ -(first & 1), at + 1
    value, shift = np.uint64(0), np.uint64(0)
    for _ in range(10):
        if at >= end:
            return 0, -1
        byte = np.uint64(byte_at(at))
        at += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@inlined
def _wrapping_sum(a: Any, b: Any) -> Any:
    """Return the sum as Java adds: a signed overflow wraps around, which in compiled code would be undefined."""
    return np.int64(np.uint64(a) + np.uint64(b))


@callee
def _past_headers(at: int, end: int, headers: int) -> Any:
    """Return the address after ``headers`` headers, or -1 if they do not fit."""
    for _ in range(headers):
        size, at = varint(at, end)
        if at < 0 or size < 0 or size > end - at:
            return -1
        at += size
        size, at = varint(at, end)
        if at < 0 or size < -1 or size > end - at:
            return -1
        at += max(size, 0)
    return at


@kernel(
    "int64(int64, int64[:, ::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], "
    "int64[:, ::1], int32[:, ::1], int64[::1], int32[::1])",
)
def parse(
    raw: int, batches: Any, first: int, final: int, state: Any, sums: Any, offsets: Any, times: Any, kinds: Any,
    at: Any, size: Any, headers_at: Any, headers: Any,
) -> Any:  # fmt: skip
    """Pass one: check every record of ``batches`` (int64 [n, 8], positions from ``raw``), list those in [first, final].

    Columns have room for ``len(offsets)`` records; ``at`` and ``size`` are [n, 2]: key and value, positions from
    ``raw``, size -1 for null. ``state`` int64 [4] begins as zeros and is where the next call continues after `FULL`;
    ``sums`` int64 [7] counts this call only. Returns a code; after a problem ``state`` is its place.
    """
    kept, room = 0, offsets.shape[0]
    for b in range(state[AT_BATCH], batches.shape[0]):
        end = raw + batches[b, END]
        base, last, by_append = batches[b, FROM], batches[b, TO], batches[b, BY_APPEND] != 0
        cursor = raw + (state[AT_BYTE] if state[AT_RECORD] > 0 else batches[b, START])
        previous = state[PREVIOUS] if state[AT_RECORD] > 0 else base - 1
        for r in range(state[AT_RECORD], batches[b, COUNT]):
            state[AT_BATCH], state[AT_RECORD], state[AT_BYTE], state[PREVIOUS] = b, r, cursor - raw, previous
            if kept == room:
                sums[KEPT] = kept
                return FULL
            length, cursor = varint(cursor, end)
            if cursor < 0 or length < 0 or length > end - cursor:
                return SHORT
            stop_at = cursor + length
            time, cursor = varint(cursor + 1, stop_at)  # one byte of attributes, unused
            if cursor < 0:
                return LENGTH
            delta, cursor = varint(cursor, stop_at)
            if cursor < 0:
                return LENGTH
            key_size, cursor = varint(cursor, stop_at)
            if cursor < 0 or key_size < -1 or key_size > stop_at - cursor:
                return LENGTH
            key = cursor
            value_size, cursor = varint(cursor + max(key_size, 0), stop_at)
            if cursor < 0 or value_size < -1 or value_size > stop_at - cursor:
                return LENGTH
            value = cursor
            count, cursor = varint(cursor + max(value_size, 0), stop_at)
            if cursor < 0 or count < 0 or count > stop_at - cursor:
                return LENGTH
            names = cursor
            if count > 0:
                cursor = _past_headers(cursor, stop_at, count)
            if cursor != stop_at:
                return LENGTH
            if delta > last - base:
                return RANGE
            offset = base + delta
            if offset <= previous:
                continue  # skipped, as by Kafka's consumer, whose next fetch offset is above it
            previous = offset
            if offset < first or offset > final:
                continue
            if count > MAX_HEADERS:
                return HEADERS
            if sums[HEADER_COUNT] + count > MAX_HEADERS:
                sums[KEPT] = kept
                return FULL
            offsets[kept] = offset
            times[kept] = batches[b, TIME] if by_append else _wrapping_sum(batches[b, TIME], time)
            kinds[kept] = 1 if by_append else 0
            at[kept, 0], size[kept, 0] = key - raw, key_size
            at[kept, 1], size[kept, 1] = value - raw, value_size
            headers_at[kept], headers[kept] = names - raw, count
            sums[KEY_BYTES] += max(key_size, 0)
            sums[VALUE_BYTES] += max(value_size, 0)
            sums[NULL_KEYS] += key_size < 0
            sums[NULL_VALUES] += value_size < 0
            sums[HEADER_COUNT] += count
            sums[HEADERLESS] += count == 0
            kept += 1
        state[AT_BATCH], state[AT_RECORD], state[AT_BYTE] = b, 0, cursor - raw
        if cursor != end:
            return SURPLUS
    sums[KEPT] = kept
    return OK


@kernel("void(int64, int64[:, ::1], int32[:, ::1], int64, int32[::1], uint8[::1], int64)")
def gather(raw: int, at: Any, size: Any, part: int, ends: Any, valid: Any, target: int) -> None:
    """Pass two for one binary column, the first or second ``part`` of pairs: write Arrow's int32 offsets [n + 1] to
    ``ends`` and the bytes to ``target``.

    ``valid``: validity bits, zeroed, or empty if nothing is null.
    """
    to = 0
    ends[0] = 0
    if valid.shape[0] == 0:
        for r in range(at.shape[0]):
            copy_bytes(target + to, raw + at[r, part], np.int64(size[r, part]))
            to += size[r, part]
            ends[r + 1] = to
        return
    for r in range(at.shape[0]):
        if size[r, part] >= 0:
            valid[r >> 3] |= np.uint8(1 << (r & 7))
            copy_bytes(target + to, raw + at[r, part], np.int64(size[r, part]))
            to += size[r, part]
        ends[r + 1] = to


@kernel(
    "void(int64, int64[::1], int32[::1], int32[::1], uint8[::1], int64[:, ::1], int32[:, ::1], int64[::1])",
)
def list_headers(
    raw: int, headers_at: Any, headers: Any, lists: Any, present: Any, at: Any, size: Any, sums: Any
) -> None:
    """Set ``at`` and ``size`` [headers, 2] to where names and contents lie, ``lists`` to Arrow's list offsets [n + 1].

    ``sums`` int64 [4]: name bytes, content bytes, null contents, names with a byte outside ASCII.
    """
    header = 0
    lists[0] = 0
    limit = np.int64(0x7FFFFFFFFFFFFFFF)  # pass one proved that all headers end within their records
    for r in range(headers.shape[0]):
        cursor = raw + headers_at[r]
        if headers[r] > 0:
            present[r >> 3] |= np.uint8(1 << (r & 7))
        for _ in range(headers[r]):
            length, cursor = varint(cursor, limit)
            at[header, 0], size[header, 0] = cursor - raw, length
            bits = 0
            for byte in range(cursor, cursor + length):
                bits |= byte_at(byte)
            cursor += length
            sums[0] += length
            sums[3] += bits > 127
            length, cursor = varint(cursor, limit)
            at[header, 1], size[header, 1] = cursor - raw, length
            sums[2] += length < 0
            cursor += max(length, 0)
            sums[1] += max(length, 0)
            header += 1
        lists[r + 1] = header


@kernel(
    "void(int64[::1], int64[::1], int32[::1], int64[::1], int64[:, ::1], int32[:, ::1], int32[::1], int64[::1], "
    "int64[:, ::1], int32[:, ::1], int64, int64[::1])",
)
def encode_records(
    offsets: Any, times: Any, kinds: Any, bases: Any, at: Any, size: Any, lists: Any, header_bases: Any,
    header_at: Any, header_size: Any, target: int, ends: Any,
) -> None:  # fmt: skip
    """Write the record digest's bytes of all records to ``target``, and to ``ends`` where each record ends.

    Positions of keys and values count from the addresses ``bases``, those of names and contents from ``header_bases``.
    """
    cursor = target
    length: Any
    for r in range(offsets.shape[0]):
        put64(cursor, offsets[r])
        put64(cursor + 8, times[r])
        put8(cursor + 16, np.int64(kinds[r]))
        cursor += 17
        for part in range(2):
            length = np.int64(size[r, part])
            put32(cursor, length)
            cursor += 4
            if length > 0:
                copy_bytes(cursor, bases[part] + at[r, part], length)
                cursor += length
        put32(cursor, np.int64(lists[r + 1] - lists[r]))
        cursor += 4
        for header in range(lists[r], lists[r + 1]):
            for part in range(2):
                length = np.int64(header_size[header, part])
                put32(cursor, length)
                cursor += 4
                if length > 0:
                    copy_bytes(cursor, header_bases[part] + header_at[header, part], length)
                    cursor += length
        ends[r] = cursor - target

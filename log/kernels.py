"""What is compiled: batch headers, the two passes over unpacked records, and the record digest's bytes.

Pass one (`parse`) proves every bound; what comes after only copies. Kernels read memory by address, so their callers
keep the buffers alive and hand out only lengths that pass one proved. Nothing here raises: problems are codes.
`record_parser.py` describes a record, and reads a few of them without any of this.

Kernels have one signature each (those of JSON are in `json_kernels.py`): numba's cache notices changes by file, and
several processes that compile at once write equal entries. `lazy_kernel.py` says when one is compiled.
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

# Columns of the table of batch headers that `scan` fills, in the order of `batch.BatchHeader`, and the CRC it found.
POSITION, BASE, SIZE, EPOCH, MAGIC, CRC, ATTRIBUTES, LAST = 0, 1, 2, 3, 4, 5, 6, 7
FIRST_TIME, MAX_TIME, PRODUCER, PRODUCER_EPOCH, SEQUENCE, RECORDS = 8, 9, 10, 11, 12, 13
HEADER_COLUMNS = 14

# Columns of the table of unpacked batches that `parse` reads.
START, END, FROM, TO, TIME, BY_APPEND, COUNT, POSITION_IN_DATA = 0, 1, 2, 3, 4, 5, 6, 7
BATCH_COLUMNS = 8

# What `parse` keeps between calls, and what it adds up over one call.
AT_BATCH, AT_RECORD, AT_BYTE, PREVIOUS = 0, 1, 2, 3
KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES, HEADER_COUNT, HEADERLESS, KEPT = 0, 1, 2, 3, 4, 5, 6
SUMS = 7

KEY_AT, VALUE_AT = 0, 1
"""Names of the two binary columns of a record."""


def _crc_tables() -> Any:
    """CRC-32C, eight bytes a step."""
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
    """For short batches, where a call into the library costs more than the sum."""
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
    """Headers of the whole batches from ``at`` on, as many as ``table`` (int64 [n, 14]) holds.

    Offsets must lie above ``after``; CRCs are checked of batches of less than ``sum_below`` bytes. Returns (rows, where
    it stopped, last offset); it stops before anything that is not a good batch: `batch.iter_batches` then says why.
    """
    rows = 0
    while rows < table.shape[0] and size - at >= 61:
        here = address + at
        length = int32_at(here + 8)
        base, delta, count = int64_at(here), int32_at(here + 23), int32_at(here + 57)
        attributes, crc = int16_at(here + 21), uint32_at(here + 17)
        if byte_at(here + 16) != 2 or length < 49 or length > size - at - 12 or attributes & 7 > 4:
            break
        if base <= after or delta < 0 or count < 0 or count > delta + 1 or base > MAX_OFFSET - delta:
            break
        if length + 12 < sum_below and np.int64(crc32c(here + 21, length - 9)) != crc:
            break
        after = base + delta
        table[rows, POSITION], table[rows, BASE], table[rows, SIZE] = at, base, length + 12
        table[rows, EPOCH], table[rows, MAGIC], table[rows, CRC] = int32_at(here + 12), 2, crc
        table[rows, ATTRIBUTES], table[rows, LAST] = attributes, after
        table[rows, FIRST_TIME], table[rows, MAX_TIME] = int64_at(here + 27), int64_at(here + 35)
        table[rows, PRODUCER], table[rows, PRODUCER_EPOCH] = int64_at(here + 43), int16_at(here + 51)
        table[rows, SEQUENCE], table[rows, RECORDS] = int32_at(here + 53), count
        rows += 1
        at += length + 12
    return rows, at, after


@inlined
def _varint(at: int, end: int) -> Any:
    """Zigzag value and the address after it; address -1 when it is cut off or longer than 10 bytes."""
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
    """As Java adds; a signed sum that overflows is nothing that compiled code may rely on."""
    return np.int64(np.uint64(a) + np.uint64(b))


@callee
def _past_headers(at: int, end: int, headers: int) -> Any:
    """The address after so many headers; -1 when they do not fit."""
    for _ in range(headers):
        size, at = _varint(at, end)
        if at < 0 or size < 0 or size > end - at:
            return -1
        at += size
        size, at = _varint(at, end)
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
    """Pass one: check every record of ``batches`` (int64 [n, 8], positions from ``raw``), note those of [first, final].

    Columns have room for ``len(offsets)`` records; ``at`` and ``size`` are [n, 2]: key and value, positions from
    ``raw``, size -1 for null. ``state`` int64 [4] begins as zeros and is where a next call goes on after `FULL`;
    ``sums`` int64 [7] is of this call. Returns a code; for a problem ``state`` says where.
    """
    kept, room = 0, offsets.shape[0]
    for b in range(state[AT_BATCH], batches.shape[0]):
        end = raw + batches[b, END]
        base, last, by_append = batches[b, FROM], batches[b, TO], batches[b, BY_APPEND] != 0
        here = raw + (state[AT_BYTE] if state[AT_RECORD] > 0 else batches[b, START])
        previous = state[PREVIOUS] if state[AT_RECORD] > 0 else base - 1
        for r in range(state[AT_RECORD], batches[b, COUNT]):
            state[AT_BATCH], state[AT_RECORD], state[AT_BYTE], state[PREVIOUS] = b, r, here - raw, previous
            if kept == room:
                sums[KEPT] = kept
                return FULL
            length, here = _varint(here, end)
            if here < 0 or length < 0 or length > end - here:
                return SHORT
            stop_at = here + length
            time, here = _varint(here + 1, stop_at)  # one byte of attributes, unused
            if here < 0:
                return LENGTH
            delta, here = _varint(here, stop_at)
            if here < 0:
                return LENGTH
            key_size, here = _varint(here, stop_at)
            if here < 0 or key_size < -1 or key_size > stop_at - here:
                return LENGTH
            key = here
            value_size, here = _varint(here + max(key_size, 0), stop_at)
            if here < 0 or value_size < -1 or value_size > stop_at - here:
                return LENGTH
            value = here
            count, here = _varint(here + max(value_size, 0), stop_at)
            if here < 0 or count < 0 or count > stop_at - here:
                return LENGTH
            names = here
            if count > 0:
                here = _past_headers(here, stop_at, count)
            if here != stop_at:
                return LENGTH
            if delta > last - base:
                return RANGE
            offset = base + delta
            if offset <= previous:
                continue  # passed over, as Kafka's consumer does: its next fetch offset is above it
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
        state[AT_BATCH], state[AT_RECORD], state[AT_BYTE] = b, 0, here - raw
        if here != end:
            return SURPLUS
    sums[KEPT] = kept
    return OK


@kernel("void(int64, int64[:, ::1], int32[:, ::1], int64, int32[::1], uint8[::1], int64)")
def gather(raw: int, at: Any, size: Any, part: int, ends: Any, valid: Any, target: int) -> None:
    """Pass two of one binary column, the first or second ``part`` of pairs: Arrow's int32 offsets [n + 1], bytes at
    ``target``.

    ``valid``: validity bits, zeroed, or empty when nothing is null.
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
    """Where each header's name and content lie (``at`` and ``size``, [headers, 2]), and Arrow's list offsets [n + 1].

    ``sums`` int64 [4]: name bytes, content bytes, null contents, names with a byte outside ASCII.
    """
    header = 0
    lists[0] = 0
    limit = np.int64(0x7FFFFFFFFFFFFFFF)  # pass one proved that they end in time
    for r in range(headers.shape[0]):
        here = raw + headers_at[r]
        if headers[r] > 0:
            present[r >> 3] |= np.uint8(1 << (r & 7))
        for _ in range(headers[r]):
            length, here = _varint(here, limit)
            at[header, 0], size[header, 0] = here - raw, length
            bits = 0
            for byte in range(here, here + length):
                bits |= byte_at(byte)
            here += length
            sums[0] += length
            sums[3] += bits > 127
            length, here = _varint(here, limit)
            at[header, 1], size[header, 1] = here - raw, length
            sums[2] += length < 0
            here += max(length, 0)
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
    """The record digest's bytes of every record, one behind the other at ``target``; ``ends`` after each.

    ``bases``: addresses that the positions of keys and values begin at; ``header_bases``: of names and contents.
    """
    here = target
    length: Any
    for r in range(offsets.shape[0]):
        put64(here, offsets[r])
        put64(here + 8, times[r])
        put8(here + 16, np.int64(kinds[r]))
        here += 17
        for part in range(2):
            length = np.int64(size[r, part])
            put32(here, length)
            here += 4
            if length > 0:
                copy_bytes(here, bases[part] + at[r, part], length)
                here += length
        put32(here, np.int64(lists[r + 1] - lists[r]))
        here += 4
        for header in range(lists[r], lists[r + 1]):
            for part in range(2):
                length = np.int64(header_size[header, part])
                put32(here, length)
                here += 4
                if length > 0:
                    copy_bytes(here, header_bases[part] + header_at[header, part], length)
                    here += length
        ends[r] = here - target


@callee
def _finds(data: int, size: int, wanted: int, back: Any, state: int) -> Any:
    """Whether the bytes at ``wanted`` are among these (Knuth, Morris, Pratt): each byte is looked at twice at most.

    ``back``: of each place in ``wanted``, where to go on when the byte there is another one.
    """
    length = back.shape[0]
    for place in range(data, data + size):
        byte = byte_at(place)
        while state > 0 and byte_at(wanted + state) != byte:
            state = back[state]
        if byte_at(wanted + state) == byte:
            state += 1
            if state == length:
                return 1
    return 0


@kernel("int64[::1](uint8[::1])")
def fall_back(wanted: Any) -> Any:
    """For `_finds`: at each place the longest beginning that ends right before it."""
    back = np.zeros(wanted.shape[0], np.int64)
    state = 0
    for place in range(2, wanted.shape[0]):
        while state > 0 and wanted[state] != wanted[place - 1]:
            state = back[state]
        if wanted[state] == wanted[place - 1]:
            state += 1
        back[place] = state
    return back


@kernel(
    "void(int64, int64[:, ::1], int32[:, ::1], int64[::1], int32[::1], int64, int64, int64, int64[::1], uint8[::1])",
)
def match(
    raw: int, at: Any, size: Any, headers_at: Any, headers: Any, key: int, key_size: int, wanted: int, back: Any,
    found: Any,
) -> None:  # fmt: skip
    """``found`` [n]: 1 for each record whose key is the one at ``key`` (size -1: any key), and in whose key, value, or
    a header's name or value are the bytes at ``wanted`` (an empty ``back``: any).
    """
    limit = np.int64(0x7FFFFFFFFFFFFFFF)  # pass one proved that they end in time
    for r in range(at.shape[0]):
        if key_size >= 0:
            if size[r, 0] != key_size:
                continue
            same = True
            for byte in range(key_size):
                if byte_at(raw + at[r, 0] + byte) != byte_at(key + byte):
                    same = False
                    break
            if not same:
                continue
        hit = np.int64(back.shape[0] == 0)
        for part in range(2):
            if hit == 0 and size[r, part] > 0:
                hit = _finds(raw + at[r, part], size[r, part], wanted, back, 0)
        here = raw + headers_at[r]
        for _ in range(2 * headers[r]):
            if hit != 0:
                break
            length, here = _varint(here, limit)
            length = max(length, 0)
            hit = _finds(here, length, wanted, back, 0)
            here += length
        found[r] = hit

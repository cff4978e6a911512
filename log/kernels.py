"""The two passes over unpacked records, compiled. Pass one proves every bound; pass two only copies.

A record: varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key length and key,
varint value length and value, varint header count, then name and value of each header; all zigzag, -1 is null.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit

if not os.environ.get("NUMBA_CACHE_DIR"):
    # machine code belongs in the user's cache folder, not beside the source, which may be read-only
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierstate" / "numba"
    config: Any = numba.config
    config.CACHE_DIR = str(cache)

OK, SHORT, LENGTH, RANGE, ORDER, SURPLUS = 0, 1, 2, 3, 4, 5
REASONS = {
    SHORT: "a record reaches beyond its batch",
    LENGTH: "a record's lengths contradict each other",
    RANGE: "a record's offset lies outside its batch",
    ORDER: "record offsets do not increase",
    SURPLUS: "bytes are left over after the last record",
}

# Columns of the table that pass one fills, one row a kept record.
OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADERS = 0, 1, 2, 3, 4, 5, 6, 7
COLUMNS = 8

# Columns of the table of batches.
START, END, BASE, LAST, BASE_TIME, APPEND_TIME, RECORDS = 0, 1, 2, 3, 4, 5, 6


@njit(cache=True, nogil=True, inline="always")
def _varint(raw: Any, at: int, end: int) -> Any:
    """Zigzag value and the position after it; position -1 when it is cut off or longer than 10 bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(10):
        if at >= end:
            return 0, -1
        byte = np.uint64(raw[at])
        at += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True, nogil=True)
def measure(raw: Any, batches: Any, first: int, stop: int, table: Any, sizes: Any) -> tuple[int, int, int, int]:
    """Pass one over all batches of a piece.

    ``raw`` uint8; ``batches`` int64 [n, 7]; records outside [first, stop) are checked and dropped; ``table`` int64
    [records, 8]; ``sizes`` int64 [5]: key bytes, value bytes, headers, header name bytes, header value bytes.
    Returns (kept records, error, batch of the error, byte of the error).
    """
    kept = 0
    for b in range(batches.shape[0]):
        at, end = batches[b, START], batches[b, END]
        previous = batches[b, BASE] - 1
        for _ in range(batches[b, RECORDS]):
            began = at
            length, at = _varint(raw, at, end)
            if at < 0 or length < 0 or length > end - at:
                return kept, SHORT, b, began
            record_end = at + length
            at += 1  # attributes, unused
            time_delta, at = _varint(raw, at, record_end)
            if at < 0:
                return kept, LENGTH, b, began
            offset_delta, at = _varint(raw, at, record_end)
            if at < 0:
                return kept, LENGTH, b, began
            key_size, at = _varint(raw, at, record_end)
            if at < 0 or key_size < -1 or key_size > record_end - at:
                return kept, LENGTH, b, began
            key_at = at
            at += max(key_size, 0)
            value_size, at = _varint(raw, at, record_end)
            if at < 0 or value_size < -1 or value_size > record_end - at:
                return kept, LENGTH, b, began
            value_at = at
            at += max(value_size, 0)
            headers, at = _varint(raw, at, record_end)
            if at < 0 or headers < 0 or headers > record_end - at:
                return kept, LENGTH, b, began
            headers_at = at
            name_bytes, content_bytes = 0, 0
            for _h in range(headers):
                name_size, at = _varint(raw, at, record_end)
                if at < 0 or name_size < 0 or name_size > record_end - at:
                    return kept, LENGTH, b, began
                at += name_size
                content_size, at = _varint(raw, at, record_end)
                if at < 0 or content_size < -1 or content_size > record_end - at:
                    return kept, LENGTH, b, began
                at += max(content_size, 0)
                name_bytes += name_size
                content_bytes += max(content_size, 0)
            if at != record_end:
                return kept, LENGTH, b, began
            if offset_delta < 0 or offset_delta > batches[b, LAST] - batches[b, BASE]:
                return kept, RANGE, b, began
            offset = batches[b, BASE] + offset_delta
            if offset <= previous:
                return kept, ORDER, b, began
            previous = offset
            if offset < first or offset >= stop:
                continue
            table[kept, OFFSET] = offset
            if batches[b, APPEND_TIME] >= 0:
                table[kept, TIMESTAMP] = batches[b, APPEND_TIME]
            else:
                table[kept, TIMESTAMP] = batches[b, BASE_TIME] + time_delta
            table[kept, KEY_AT], table[kept, KEY_SIZE] = key_at, key_size
            table[kept, VALUE_AT], table[kept, VALUE_SIZE] = value_at, value_size
            table[kept, HEADERS_AT], table[kept, HEADERS] = headers_at, headers
            kept += 1
            sizes[0] += max(key_size, 0)
            sizes[1] += max(value_size, 0)
            sizes[2] += headers
            sizes[3] += name_bytes
            sizes[4] += content_bytes
        if at != end:
            return kept, SURPLUS, b, at
    return kept, OK, 0, 0


@njit(cache=True, nogil=True, inline="always")
def _copy(source: Any, at: int, size: int, target: Any, to: int) -> None:
    for i in range(size):
        target[to + i] = source[at + i]


@njit(cache=True, nogil=True)
def gather(raw: Any, table: Any, records: int, at_column: int, data: Any, offsets: Any, valid: Any) -> int:
    """Pass two for one binary column (key or value): Arrow data, int32 offsets, validity bits. Returns the nulls."""
    to, nulls = 0, 0
    offsets[0] = 0
    for r in range(records):
        size = table[r, at_column + 1]
        if size < 0:
            nulls += 1
        else:
            valid[r >> 3] |= np.uint8(1 << (r & 7))
            _copy(raw, table[r, at_column], size, data, to)
            to += size
        offsets[r + 1] = to
    return nulls


@njit(cache=True, nogil=True)
def gather_headers(
    raw: Any, table: Any, records: int, lists: Any, present: Any, names: Any, name_ends: Any, contents: Any,
    content_ends: Any, content_valid: Any,
) -> int:  # fmt: skip
    """Pass two for headers: list offsets and validity, name and content columns. Returns how many contents are null."""
    header, name_to, content_to, nulls = 0, 0, 0, 0
    lists[0], name_ends[0], content_ends[0] = 0, 0, 0
    for r in range(records):
        at = table[r, HEADERS_AT]
        if table[r, HEADERS] > 0:
            present[r >> 3] |= np.uint8(1 << (r & 7))
        for _ in range(table[r, HEADERS]):
            size, at = _varint(raw, at, raw.shape[0])
            _copy(raw, at, size, names, name_to)
            at += size
            name_to += size
            size, at = _varint(raw, at, raw.shape[0])
            if size < 0:
                nulls += 1
            else:
                content_valid[header >> 3] |= np.uint8(1 << (header & 7))
                _copy(raw, at, size, contents, content_to)
                at += size
                content_to += size
            header += 1
            name_ends[header], content_ends[header] = name_to, content_to
        lists[r + 1] = header
    return nulls


@njit(cache=True, nogil=True, inline="always")
def _put32(target: Any, to: int, value: int) -> int:
    for i in range(4):
        target[to + i] = (value >> (24 - 8 * i)) & 255
    return to + 4


@njit(cache=True, nogil=True, inline="always")
def _put64(target: Any, to: int, value: int) -> int:
    for i in range(8):
        target[to + i] = (value >> (56 - 8 * i)) & 255
    return to + 8


@njit(cache=True, nogil=True)
def encode_records(raw: Any, table: Any, types: Any, records: int, target: Any, ends: Any) -> int:
    """The record digest's bytes (`record_digest.py`) of every record, one behind the other; ``ends`` after each."""
    to = 0
    for r in range(records):
        to = _put64(target, to, table[r, OFFSET])
        to = _put64(target, to, table[r, TIMESTAMP])
        target[to] = types[r]
        to += 1
        for column in (KEY_AT, VALUE_AT):
            size = table[r, column + 1]
            to = _put32(target, to, size)
            if size > 0:
                _copy(raw, table[r, column], size, target, to)
                to += size
        to = _put32(target, to, table[r, HEADERS])
        at = table[r, HEADERS_AT]
        for _ in range(2 * table[r, HEADERS]):
            size, at = _varint(raw, at, raw.shape[0])
            to = _put32(target, to, size)
            if size > 0:
                _copy(raw, at, size, target, to)
                to += size
                at += size
        ends[r] = to
    return to

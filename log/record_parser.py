"""Parse records in plain Python, for callers with too few records to justify loading the compiled kernels.

A record holds varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key length and key,
varint value length and value, varint header count, then the name and the value of each header. All varints are zigzag;
length -1 is null. `kernels.parse` reads the same format, and `tests/log/test_record_parser.py` compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..state.errors import CorruptData
from ..state.segment import AbortedRange
from .batch import CODEC, CONTROL, HEADER_BYTES, BatchHeader, iter_batches
from .compression import decompress
from .isolation import AbortFilter

_MALFORMED_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")


def java_text(value: bytes) -> str:
    """Return ``value`` as text, with U+FFFD for malformed bytes. An encoded surrogate becomes one U+FFFD, not three."""
    return _MALFORMED_SURROGATE.sub(b"\xef\xbf\xbd", value).decode("utf-8", "replace")


MAX_OFFSET = 2**63 - 1
MAX_HEADERS = 1 << 20
"""Maximum headers of one record and of one block. It bounds memory, because a header can be as short as two bytes."""

OK, SHORT, LENGTH, RANGE, SURPLUS, FULL, HEADERS = 0, 1, 2, 3, 4, 5, 6
"""Codes of `kernels.parse`. `FULL` is not a fault: call again for the records that follow."""
REASONS = {
    SHORT: "a record reaches beyond its batch",
    LENGTH: "a record's lengths contradict each other",
    RANGE: "a record's offset lies above its batch's last offset",
    SURPLUS: "bytes are left over after the last record",
    HEADERS: f"a record has more than {MAX_HEADERS} headers",
}
_MASK = 2**64 - 1
Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. ``timestamp`` is in ms; ``timestamp_type`` is 0 for create time and 1 for append time."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Fault(Exception):
    """A fault of a record. ``code`` is a key of `REASONS`."""

    def __init__(self, code: int) -> None:
        self.code = code


def parse_records(
    data: bytes | memoryview,
    *,
    source: str,
    position: int = 0,
    aborted: Sequence[AbortedRange] | None = None,
    start: int = 0,
    end: int | None = None,
) -> Iterator[Record]:
    """Yield the records of `decode.decode_records` one by one. Raises CorruptData with the same reasons.

    The CRC of a batch is checked before its first record is yielded; each record is checked when it is yielded.
    """
    view, hidden = memoryview(data), AbortFilter(aborted or ())
    final = MAX_OFFSET if end is None else end - 1
    for batch in iter_batches(view, source=source, position=position):
        empty = batch.record_count == 0 and batch.size_bytes == HEADER_BYTES
        if empty or batch.is_control or batch.last_offset < start or batch.base_offset > final or hidden.hides(batch):
            continue
        at = batch.position - position
        payload: bytes | memoryview = view[at + HEADER_BYTES : at + batch.size_bytes]
        if batch.codec:
            payload = decompress(batch.codec, payload, source=source, position=batch.position)
        yield from _records(bytes(payload), batch, source, start, final)


def _records(data: bytes, batch: BatchHeader, source: str, start: int, final: int) -> Iterator[Record]:
    cursor, previous, fault = 0, batch.base_offset - 1, SURPLUS
    try:
        for _ in range(batch.record_count):
            record, after = _record(data, cursor, batch)
            if record.offset > previous:  # others are skipped, as by Kafka's consumer, which fetches higher offsets
                previous = record.offset
                if start <= previous <= final:
                    if len(record.headers) > MAX_HEADERS:
                        raise _Fault(HEADERS)
                    yield record
            cursor = after
    except _Fault as error:
        fault = error.code
    else:
        if cursor == len(data):
            return
    raise CorruptData(
        REASONS[fault],
        file=source,
        position=batch.position,
        batch=f"{batch.base_offset}..{batch.last_offset}",
        byte_of_records=cursor,
    )


def _record(data: bytes, at: int, batch: BatchHeader) -> tuple[Record, int]:
    """Return the record at ``at`` and where it ends."""
    length, at = _varint(data, at, len(data), SHORT)
    stop = at + length
    if length < 0 or stop > len(data):
        raise _Fault(SHORT)
    time, at = _varint(data, at + 1, stop)  # the byte of attributes is unused
    delta, at = _varint(data, at, stop)
    key, at = _sized(data, at, stop)
    value, at = _sized(data, at, stop)
    count, at = _varint(data, at, stop)
    if not 0 <= count <= stop - at:
        raise _Fault(LENGTH)
    headers: Headers = _headers(data, at, stop, count) if count else ()
    if not count and at != stop:
        raise _Fault(LENGTH)
    offset = batch.base_offset + delta
    if offset > batch.last_offset:
        raise _Fault(RANGE)
    if batch.attributes & 8:
        return Record(offset, batch.max_timestamp, 1, key, value, headers), stop
    time = (batch.first_timestamp + time + 2**63 & _MASK) - 2**63  # Java's sum wraps around
    return Record(offset, time, 0, key, value, headers), stop


def _headers(data: bytes, at: int, stop: int, count: int) -> Headers:
    headers = []
    for _ in range(count):
        name, at = _sized(data, at, stop)
        if name is None:
            raise _Fault(LENGTH)
        content, at = _sized(data, at, stop)
        headers.append((java_text(name), content))
    if at != stop:
        raise _Fault(LENGTH)
    return headers


def is_decodable(data: bytes | memoryview, at: int, batch: BatchHeader) -> bool:
    """Return whether readers can decode the batch at byte ``at``. Checks the lengths and offsets of its records.

    The broker checked keys, values and headers when it appended them, and the offsets of compressed records. It checked
    neither offsets of uncompressed records nor the number of headers. Returns True for compressed and control batches.
    """
    if batch.attributes & (CODEC | CONTROL):
        return True
    most, stop = 2 * (batch.last_offset - batch.base_offset), at + batch.size_bytes
    at += HEADER_BYTES
    try:
        for _ in range(batch.record_count):
            length = data[at]  # zigzag: twice the value; odd numbers are negative
            if length < 128:
                at += 1
            elif (byte := data[at + 1]) < 128:
                length += (byte << 7) - 128
                at += 2
            else:
                length, at = _long_record(data, at, stop)
            cursor = at + 1  # behind the byte of attributes
            at += length >> 1
            while data[cursor] > 127:
                cursor += 1
            delta = data[cursor + 1]
            if delta > 127:
                if (byte := data[cursor + 2]) < 128:
                    delta += (byte << 7) - 128
                else:
                    delta = 2 * _varint(data, cursor + 1, stop)[0]
            if length & 1 or (delta > most and not delta & 1):
                return False
    except (IndexError, _Fault):
        return False
    return at == stop


def _long_record(data: bytes | memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return twice the length of the record at ``at``, and where its content begins. Too many headers raise _Fault."""
    length, at = _varint(data, at, stop)
    if not 0 <= length <= stop - at:
        raise _Fault(SHORT)
    if length > 2 * MAX_HEADERS:
        cursor = _varint(data, at + 1, stop)[1]
        cursor = _varint(data, cursor, stop)[1]
        for _ in range(2):  # key and value
            size, cursor = _varint(data, cursor, stop)
            cursor += max(size, 0)
        if _varint(data, cursor, stop)[0] > MAX_HEADERS:
            raise _Fault(HEADERS)
    return 2 * length, at


def _varint(data: bytes | memoryview, at: int, end: int, fault: int = LENGTH) -> tuple[int, int]:
    """Return a zigzag value and the position after it. Raises _Fault if it is cut off or longer than 10 bytes."""
    if at < end and (byte := data[at]) < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = shift = 0
    for place in range(at, min(at + 10, end)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            value &= _MASK
            return (value >> 1) ^ -(value & 1), place + 1
        shift += 7
    raise _Fault(fault)


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag value at ``at``, and the position after it. Raises ValueError if it is cut off or too long."""
    try:
        return _varint(data, at, len(data))
    except _Fault as fault:
        raise ValueError(REASONS[fault.code]) from None


def _sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return the bytes that follow their length at ``at``, or None for null, and the position after them."""
    size, at = _varint(data, at, end)
    if size < -1 or size > end - at:
        raise _Fault(LENGTH)
    return (None, at) if size < 0 else (data[at : at + size], at + size)

"""Write records as JSON with compiled code, in two passes over decoded records: `measure` and `fill`.

Pass one looks at every byte once and decides how each part is written; pass two only copies. Text is written byte for
byte as orjson does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from numba.core import types

from .lazy_kernel import callee, copy_bytes, inlined, kernel, put32, uint32_at, word_at

OFFSET, TIMESTAMP, TYPE, KEY, VALUE, HEADERS = 0, 1, 2, 3, 4, 5
"""Fields of a record. A layout has each of them once, in its own order."""
TEXT, BASE64, VERBATIM = 0, 1, 2
"""Forms: text if it is UTF-8, else ``{"base64": …}``; always base64; JSON that is copied as it is."""
_NULL, _PLAIN, _ESCAPED, _IN_BASE64, _OBJECT, _AS_IS = 0, 1, 2, 3, 4, 5

_BYTES: Any = types.Array(types.uint8, 1, "C", readonly=True)
_INTS: Any = types.Array(types.int32, 1, "C", readonly=True)
_LONGS: Any = types.Array(types.int64, 1, "C", readonly=True)
_PLACES: Any = types.Array(types.int64, 2, "C", readonly=True)
_SIZES: Any = types.Array(types.int32, 2, "C", readonly=True)
_RECORDS = (_LONGS, _LONGS, _INTS, _BYTES, _BYTES, _PLACES, _SIZES, _INTS, _BYTES, _BYTES, _PLACES, _SIZES)
_MARKS = types.uint8[:, ::1]


def _escapes() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the JSON text for each byte, [256, 6], and its length, [256]; taken from orjson."""
    text, size = np.zeros((256, 6), np.uint8), np.ones(256, np.uint8)
    text[:, 0] = np.arange(256)
    for code in (*range(32), ord('"'), ord("\\")):
        escaped = orjson.dumps(chr(code))[1:-1]
        text[code, : len(escaped)], size[code] = list(escaped), len(escaped)
    return text, size


_TEXT_OF, _SIZE_OF = _escapes()
_DIGITS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PAIRS = np.array([first << 8 | second for first in _DIGITS.tolist() for second in _DIGITS.tolist()], np.uint16)
"""The two base64 digits of every twelve bits."""
_NULL_TEXT = np.frombuffer(b"null", np.uint8)
_BEFORE_BASE64 = np.frombuffer(b'{"base64":"', np.uint8)
_BEFORE_NAME = np.frombuffer(b'{"key":', np.uint8)
_BEFORE_CONTENT = np.frombuffer(b',"value":', np.uint8)
_AROUND_HEADER = len(_BEFORE_NAME) + len(_BEFORE_CONTENT) + 1
_NINE, _TEN = np.uint64(9), np.uint64(10)
_QUOTE, _BACKSLASH, _BRACE, _COMMA, _MINUS, _ZERO, _PAD = (ord(each) for each in '"\\},-0=')


_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


@inlined
def _escaped(word: Any) -> Any:
    """Return a value other than 0 if JSON escapes one of the eight bytes: below 32, a quote or a backslash."""
    quotes, backslashes = word ^ _ONES * np.uint64(_QUOTE), word ^ _ONES * np.uint64(_BACKSLASH)
    below = (word - _ONES * np.uint64(32)) & ~word
    return (below | ((quotes - _ONES) & ~quotes) | ((backslashes - _ONES) & ~backslashes)) & _TOPS


@callee
def is_utf8(data: Any, at: int, end: int) -> bool:
    """Return whether the bytes are UTF-8 by table 3-7 of Unicode 15: no surrogates, no overlong forms."""
    while at < end:
        first = data[at]
        if first < 0x80:
            at += 1
            continue
        low, high = 0x80, 0xBF
        if first < 0xC2 or first > 0xF4:
            return False
        if first < 0xE0:
            more = 1
        elif first < 0xF0:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        else:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        if at + more >= end or data[at + 1] < low or data[at + 1] > high:
            return False
        for nth in range(2, more + 1):
            if data[at + nth] < 0x80 or data[at + nth] > 0xBF:
                return False
        at += more + 1
    return True


@callee
def _mark(data: Any, at: int, size: int, form: int) -> int:
    """Return the mark (`_NULL` to `_AS_IS`) that says how a part is written."""
    if size < 0:
        return _NULL
    if form == BASE64:
        return _IN_BASE64
    if form == VERBATIM:
        return _AS_IS
    high = escapes = np.uint64(0)
    whole = size - size % 8
    for address in range(data.ctypes.data + at, data.ctypes.data + at + whole, 8):
        word = word_at(address)
        high |= word
        escapes |= _escaped(word)
    for place in range(at + whole, at + size):
        byte = data[place]
        high |= np.uint64(byte)
        escapes |= np.uint64((byte < 32) | (byte == _QUOTE) | (byte == _BACKSLASH))
    if high & _TOPS and not is_utf8(data, at, at + size):
        return _OBJECT
    return _ESCAPED if escapes else _PLAIN


@callee
def _length(data: Any, at: int, size: int, mark: int) -> int:
    """Return how many bytes `_put` will write."""
    if mark == _NULL:
        return 4
    if mark == _AS_IS:
        return size
    if mark == _PLAIN:
        return size + 2
    if mark == _IN_BASE64:
        return 2 + 4 * ((size + 2) // 3)
    if mark == _OBJECT:
        return 13 + 4 * ((size + 2) // 3)
    total = 2
    for place in range(at, at + size):
        total += _SIZE_OF[data[place]]
    return total


@inlined
def _magnitude(number: int) -> Any:
    """Return the absolute value, also of the smallest number, which has no positive counterpart."""
    return np.uint64(-number) if number < 0 else np.uint64(number)


@callee
def _decimals(number: int) -> int:
    """Return how many bytes `_put_number` will write."""
    size = 1 + (number < 0)
    left = _magnitude(number)
    while left > _NINE:
        left //= _TEN
        size += 1
    return size


@callee
def _put_number(target: Any, to: Any, number: int) -> Any:
    """Write a number at ``to`` and return where it ends."""
    end = to + _decimals(number)
    if number < 0:
        target[to] = _MINUS
    at, left = end, _magnitude(number)
    while True:
        at -= 1
        target[at] = _ZERO + np.int64(left % _TEN)
        left //= _TEN
        if left == 0:
            return end


@callee
def _put_bytes(target: Any, to: Any, data: Any, at: int, size: int) -> Any:
    """Copy ``size`` bytes to ``to`` and return where they end."""
    if size > 0:
        copy_bytes(target.ctypes.data + to, data.ctypes.data + at, size)
    return to + size


@callee
def _put_base64(target: Any, to: Any, data: Any, at: int, size: int) -> Any:
    """Write bytes as base64 at ``to`` and return where the text ends."""
    whole = at + size - size % 3
    source, address = data.ctypes.data, target.ctypes.data + to
    while at < whole - 3:  # each step reads four bytes and uses three
        three = uint32_at(source + at) >> 8
        put32(address, np.int64(_PAIRS[three >> 12]) << 16 | np.int64(_PAIRS[three & 4095]))
        at += 3
        address += 4
    to = address - target.ctypes.data
    while at < whole:
        three = np.int64(data[at]) << 16 | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2])
        put32(target.ctypes.data + to, np.int64(_PAIRS[three >> 12]) << 16 | np.int64(_PAIRS[three & 4095]))
        at += 3
        to += 4
    if size % 3:
        three = np.int64(data[at]) << 16
        if size % 3 == 2:
            three |= np.int64(data[at + 1]) << 8
        target[to] = _DIGITS[three >> 18]
        target[to + 1] = _DIGITS[three >> 12 & 63]
        target[to + 2] = _DIGITS[three >> 6 & 63] if size % 3 == 2 else _PAD
        target[to + 3] = _PAD
        to += 4
    return to


@callee
def _put(target: Any, to: Any, data: Any, at: int, size: int, mark: int) -> Any:
    """Write a part as its mark says and return where it ends."""
    if mark == _NULL:
        return _put_bytes(target, to, _NULL_TEXT, 0, 4)
    if mark == _AS_IS:
        return _put_bytes(target, to, data, at, size)
    if mark == _OBJECT:
        to = _put_bytes(target, to, _BEFORE_BASE64, 0, len(_BEFORE_BASE64))
        to = _put_base64(target, to, data, at, size)
        target[to] = _QUOTE
        target[to + 1] = _BRACE
        return to + 2
    target[to] = _QUOTE
    to += 1
    if mark == _PLAIN:
        to = _put_bytes(target, to, data, at, size)
    elif mark == _IN_BASE64:
        to = _put_base64(target, to, data, at, size)
    else:
        for place in range(at, at + size):
            byte = data[place]
            target[to] = byte
            if _SIZE_OF[byte] == 1:
                to += 1
            else:
                for part in range(_SIZE_OF[byte]):
                    target[to + part] = _TEXT_OF[byte, part]
                to += _SIZE_OF[byte]
    target[to] = _QUOTE
    return to + 1


@kernel(types.void(*_RECORDS, types.int64, types.int64, types.int64, _MARKS, _MARKS, types.int64[::1]))
def measure(
    offsets: Any, times: Any, kinds: Any, keys: Any, values: Any, at: Any, size: Any, lists: Any, names: Any,
    contents: Any, header_at: Any, header_size: Any, form: int, content_form: int, fixed: int, marks: Any,
    header_marks: Any, ends: Any,
) -> None:  # fmt: skip
    """Set ``ends`` [n + 1] to the bounds of records in the output of `fill`, and its marks, [n, 2] and [headers, 2].

    ``form`` is for keys and values, ``content_form`` for values of headers. Every record has ``fixed`` more bytes.
    """
    ends[0] = 0
    for r in range(offsets.shape[0]):
        total = fixed + _decimals(offsets[r]) + _decimals(times[r]) + _decimals(kinds[r])
        marks[r, 0] = _mark(keys, at[r, 0], size[r, 0], form)
        marks[r, 1] = _mark(values, at[r, 1], size[r, 1], form)
        total += _length(keys, at[r, 0], size[r, 0], marks[r, 0])
        total += _length(values, at[r, 1], size[r, 1], marks[r, 1])
        for h in range(lists[r], lists[r + 1]):
            header_marks[h, 0] = _mark(names, header_at[h, 0], header_size[h, 0], TEXT)
            header_marks[h, 1] = _mark(contents, header_at[h, 1], header_size[h, 1], content_form)
            total += _AROUND_HEADER + (h > lists[r])
            total += _length(names, header_at[h, 0], header_size[h, 0], header_marks[h, 0])
            total += _length(contents, header_at[h, 1], header_size[h, 1], header_marks[h, 1])
        ends[r + 1] = ends[r] + total


@kernel(
    types.int64(
        *_RECORDS, types.int64, types.int64, _BYTES, _LONGS, _LONGS, _MARKS, _MARKS, types.uint8[::1]
    )
)  # fmt: skip
def fill(
    offsets: Any, times: Any, kinds: Any, keys: Any, values: Any, at: Any, size: Any, lists: Any, names: Any,
    contents: Any, header_at: Any, header_size: Any, first: int, last: int, literals: Any, literal_ends: Any,
    fields: Any, marks: Any, header_marks: Any, target: Any,
) -> int:  # fmt: skip
    """Write records ``first`` to ``last - 1``, each as literal, field, …, literal; return the number of bytes."""
    to = 0
    for r in range(first, last):
        for nth in range(fields.shape[0]):
            begins = literal_ends[nth]
            to = _put_bytes(target, to, literals, begins, literal_ends[nth + 1] - begins)
            field = fields[nth]
            if field == OFFSET:
                to = _put_number(target, to, offsets[r])
            elif field == TIMESTAMP:
                to = _put_number(target, to, times[r])
            elif field == TYPE:
                to = _put_number(target, to, kinds[r])
            elif field == KEY:
                to = _put(target, to, keys, at[r, 0], size[r, 0], marks[r, 0])
            elif field == VALUE:
                to = _put(target, to, values, at[r, 1], size[r, 1], marks[r, 1])
            else:
                for h in range(lists[r], lists[r + 1]):
                    if h > lists[r]:
                        target[to] = _COMMA
                        to += 1
                    to = _put_bytes(target, to, _BEFORE_NAME, 0, len(_BEFORE_NAME))
                    to = _put(target, to, names, header_at[h, 0], header_size[h, 0], header_marks[h, 0])
                    to = _put_bytes(target, to, _BEFORE_CONTENT, 0, len(_BEFORE_CONTENT))
                    to = _put(target, to, contents, header_at[h, 1], header_size[h, 1], header_marks[h, 1])
                    target[to] = _BRACE
                    to += 1
        begins = literal_ends[fields.shape[0]]
        to = _put_bytes(target, to, literals, begins, literal_ends[fields.shape[0] + 1] - begins)
    return to

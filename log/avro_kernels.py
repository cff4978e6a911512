"""Read Avro values into cells with compiled code: one pass over the bytes, driven by a program.

A program is a table of steps, [n, 5]: the step, its slot, and three arguments. `values/avro_columns.py` compiles it
from a writer schema and a reader schema. A slot is a node of the reader schema, and has a region of cells: two words
and a mark each, which is 1 if the cell is not null.

    text, bytes      the address and the size         list, map    the end of its elements, counted from the first
    decimal          the low and the high word        other        the value in the first word; a float is a double

A row is rejected, and becomes null, if its bytes are not plainly one value: every byte of it must be read, and none
after its end. The caller reads rejected rows in another way, which decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from .json_kernels import is_utf8
from .lazy_kernel import callee, copy_bytes, inlined, kernel, word_at

(REJECT, END, JUMP, UNION, NULL, NO_LIST, STRUCT, CONSTANT, LONG, REAL_OF_LONG, FLOAT, DOUBLE, BOOLEAN, TEXT,
 DECIMAL, ENUM, LIST, MORE, DISTINCT) = range(19)  # fmt: skip
"""The steps, with their arguments.

    REJECT
    END                                     the value ends here
    JUMP          to
    UNION         count, table              continue at the step in the table that the read index selects
    NULL          -                         a null cell
    NO_LIST       elements, mark            an empty list, or a null one (mark 0); ``elements``: the slot of its items
    STRUCT        -                         a cell that is not null
    CONSTANT      table                     two words of the table
    LONG          low, high, factor         a number in these bounds, multiplied
    REAL_OF_LONG, FLOAT, DOUBLE, BOOLEAN
    TEXT          size, is UTF-8            bytes or a string. ``size`` -1: it is read before them
    DECIMAL       size, table               the table has the low and the high word of the first number with too many
                                            digits
    ENUM          count, table              the table has a reader's index for each of the writer's; -1 rejects
    LIST          elements, to              begin a list or a map, and continue at ``to``, its MORE
    MORE          elements, to              continue at ``to`` if another item follows
    DISTINCT      -                         reject a map that has the last key already

Slot -1 means that the value is read and not kept.
"""
MOST_KEYS = 64
"""A map with more keys is rejected: each key is compared with all before it."""
_TOPS = np.uint64(0x8080808080808080)
_ONE, _SEVEN, _EIGHT, _LOW_56 = np.uint64(1), np.uint64(7), np.uint64(8), np.uint64(56)
_INTS: Any = types.Array(types.int64, 1, "C", readonly=True)
_BYTES: Any = types.Array(types.uint8, 1, "C", readonly=True)
_WORDS = types.int64[::1]


@callee
def _long(data: Any, at: int, end: int) -> Any:
    """Return a number, and where it ends: -1 if it does not end before ``end``, or has more than 64 bits."""
    number, shift = np.uint64(0), np.uint64(0)
    while at < end:
        byte = data[at]
        at += 1
        number |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                break
            return np.int64(number >> _ONE) ^ -np.int64(number & _ONE), at
        shift += _SEVEN
        if shift > 63:
            break
    return 0, -1


@inlined
def _number(data: Any, at: int, end: int) -> Any:
    """Return the result of `_long`, quickly for a number of one byte."""
    if at < end and data[at] < 0x80:
        byte = np.int64(data[at])
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _long(data, at, end)


@callee
def _is_text(data: Any, at: int, size: int) -> bool:
    high, whole = np.uint64(0), size - size % 8
    for address in range(data.ctypes.data + at, data.ctypes.data + at + whole, 8):
        high |= word_at(address)
    for place in range(at + whole, at + size):
        high |= np.uint64(data[place])
    return bool(high & _TOPS == 0) or is_utf8(data, at, at + size)


@callee
def _decimal(data: Any, at: int, size: int, limit: Any) -> Any:
    """Return the low and the high word of a big-endian number, and whether its magnitude is below the limit's."""
    if size < 1 or size > 16:
        return np.int64(0), np.int64(0), False
    low = high = np.uint64(0) - np.uint64(data[at] >> 7)
    for place in range(at, at + size):
        high = high << _EIGHT | low >> _LOW_56
        low = low << _EIGHT | np.uint64(data[place])
    size_low, size_high = low, high
    if np.int64(high) < 0:
        size_low, size_high = ~low + _ONE, ~high + np.uint64(low == 0)
    limit_low, limit_high = np.uint64(limit[0]), np.uint64(limit[1])
    fits = size_high < limit_high or (size_high == limit_high and size_low < limit_low)
    return np.int64(low), np.int64(high), fits


@callee
def _is_there(data: Any, first: Any, second: Any, start: int, last: int) -> bool:
    """Return whether the bytes of the cell ``last`` equal those of a cell from ``start`` on."""
    size, here = second[last], first[last] - data.ctypes.data
    for cell in range(start, last):
        if second[cell] == size:
            there, at = first[cell] - data.ctypes.data, 0
            while at < size and data[there + at] == data[here + at]:
                at += 1
            if at == size:
                return True
    return False


@kernel(
    types.void(
        *(_BYTES, _INTS, _INTS, _INTS, types.Array(types.int64, 2, "C", readonly=True), _INTS, _INTS, _INTS),
        *(types.int64, _WORDS, _WORDS, types.float64[::1], _WORDS, types.uint8[::1], types.uint8[::1]),
    )
)
def read(
    data: Any,
    starts: Any,
    ends: Any,
    entries: Any,
    program: Any,
    table: Any,
    bases: Any,
    room: Any,
    depth: int,
    counts: Any,
    first: Any,
    reals: Any,
    second: Any,
    marks: Any,
    rejected: Any,
) -> None:
    """Read rows: row n is ``data[starts[n]:ends[n]]``, by the program that begins at step ``entries[n]``.

    The program at step 1 makes a null row. ``depth``: lists within lists. ``bases``, ``room``, ``counts``: for each
    slot, its first cell, the number of its cells, and how many are in use. ``reals`` is the memory of ``first``.
    """
    before = np.empty(len(counts), np.int64)
    left, limits, firsts = np.empty(depth, np.int64), np.empty(depth, np.int64), np.empty(depth, np.int64)
    bytes_of = np.empty(4, np.uint8)
    single, start = bytes_of.view(np.float32), np.int64(data.ctypes.data)
    for row in range(len(starts)):
        at, end, step, level = starts[row], ends[row], entries[row], -1
        for slot in range(len(counts)):
            before[slot] = counts[slot]
        while True:
            name, slot = program[step, 0], program[step, 1]
            one, two = program[step, 2], program[step, 3]
            step += 1
            cell, bad, cells = 0, False, 1
            if slot >= 0:
                cell = bases[slot] + counts[slot]
            if name == LONG:
                number, at = _number(data, at, end)
                bad = at < 0
                if slot >= 0:
                    bad |= number < one or number > two
                    first[cell], marks[cell] = number * program[step - 1, 4], 1
            elif name == UNION:
                number, at = _number(data, at, end)
                bad = at < 0 or number < 0 or number >= one
                if not bad:
                    step = table[two + number]
                cells = 0
            elif name == JUMP:
                step, cells = one, 0
            elif name == TEXT:
                size = one
                if size < 0:
                    size, at = _number(data, at, end)
                bad = at < 0 or size < 0 or size > end - at or (two and not _is_text(data, at, size))
                if not bad:
                    if slot >= 0:
                        first[cell], second[cell], marks[cell] = start + at, size, 1
                    at += size
            elif name == NULL:
                first[cell], second[cell], marks[cell] = 0, 0, 0
            elif name == STRUCT:
                marks[cell] = 1
            elif name == DOUBLE or name == FLOAT:
                size = 8 if name == DOUBLE else 4
                bad = end - at < size
                if not bad:
                    if slot >= 0 and name == DOUBLE:
                        first[cell], marks[cell] = np.int64(word_at(start + at)), 1
                    elif slot >= 0:
                        for nth in range(4):
                            bytes_of[nth] = data[at + nth]
                        reals[cell], marks[cell] = np.float64(single[0]), 1
                    at += size
            elif name == LIST:
                level += 1
                left[level], limits[level], firsts[level] = 0, -1, counts[one] if one >= 0 else 0
                step, cells = two, 0
            elif name == MORE:
                cells = 0
                if left[level] == 0:
                    bad = limits[level] >= 0 and limits[level] != at
                    number, at = _number(data, at, end)
                    bad |= at < 0
                    limits[level] = -1
                    if number < 0 and not bad:
                        size, at = _number(data, at, end)
                        number, bad = -number, at < 0 or size < 0 or size > end - at or number == -number
                        limits[level] = at + size
                    left[level] = number
                if left[level] != 0:
                    left[level] -= 1
                    step = two
                    bad |= one >= 0 and counts[one] >= room[one]
                elif not bad:
                    level, cells = level - 1, 1
                    if slot >= 0:
                        first[cell], marks[cell] = counts[one], 1
            elif name == DISTINCT:
                cells, last = 0, counts[slot] - 1
                bad = last - firsts[level] > MOST_KEYS or _is_there(
                    data, first, second, bases[slot] + firsts[level], bases[slot] + last
                )
            elif name == BOOLEAN:
                bad = at >= end or data[at] > 1
                if not bad:
                    if slot >= 0:
                        first[cell], marks[cell] = data[at], 1
                    at += 1
            elif name == ENUM:
                number, at = _number(data, at, end)
                bad = at < 0 or number < 0 or number >= one or table[two + number] < 0
                if not bad:
                    first[cell], marks[cell] = table[two + number], 1
            elif name == REAL_OF_LONG:
                number, at = _number(data, at, end)
                bad = at < 0
                reals[cell], marks[cell] = np.float64(number), 1
            elif name == DECIMAL:
                size = one
                if size < 0:
                    size, at = _number(data, at, end)
                bad = at < 0 or size < 0 or size > end - at
                if not bad:
                    low, high, fits = _decimal(data, at, size, table[two : two + 2])
                    first[cell], second[cell], marks[cell], bad = low, high, 1, not fits
                    at += size
            elif name == CONSTANT:
                first[cell], second[cell], marks[cell] = table[one], table[one + 1], 1
            elif name == NO_LIST:
                first[cell], marks[cell] = counts[one], two
            elif name == END:
                if at == end:
                    break
                bad = True
            else:
                bad = True
            if bad:  # make it a null row
                for slot in range(len(counts)):
                    counts[slot] = before[slot]
                rejected[row], step, at = 1, 1, end
            elif slot >= 0:
                counts[slot] += cells


@kernel(types.void(_INTS, _INTS, types.uint8[::1]))
def gather(addresses: Any, sizes: Any, target: Any) -> None:
    """Copy bytes to ``target``, one behind the other. ``sizes`` of nulls are 0."""
    to = np.int64(target.ctypes.data)
    for cell in range(len(sizes)):
        copy_bytes(to, addresses[cell], sizes[cell])
        to += sizes[cell]

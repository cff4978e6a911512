"""The records that producers wrote and Kafka acknowledged, compared with those that are read. Pure.

Every record has a number of its own and is made of nothing else; the numbers of one partition grow, for one writer
writes it. A record acknowledged at an offset must be read there, once; one acknowledged without an offset (a retry
whose first answer was lost) must be read somewhere in its order; one that was never answered may be read, once, or not.
"""

from __future__ import annotations

import hashlib
import random
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

VALUE_BYTES = 400
PLAIN = -1
"""The transaction of a record that is in none."""
OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "committed", "aborted", "unknown"
SHOWN = 5
"""Offsets or numbers named in one complaint."""

Place = tuple[str, int]
"""Topic and partition."""
Record = tuple[int, bytes, bytes]
"""Offset, key, value."""


def key_of(number: int) -> bytes:
    return b"k%d" % (number % 97)


def value_of(number: int) -> bytes:
    """Return the number, and bytes that do not compress."""
    return (b"%d " % number + random.Random(number).randbytes(VALUE_BYTES))[:VALUE_BYTES]


def number_of(value: bytes) -> int | None:
    """Return the number of a record, or None if the record is not ours."""
    first = value.split(b" ", 1)[0]
    return int(first) if first.isdigit() else None


@dataclass
class Known:
    """The records of one partition. Offsets ascend, for acknowledgements of a partition do."""

    offsets: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    unplaced: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)

    def copy(self) -> Known:
        return Known([*self.offsets], [*self.numbers], [*self.times], {*self.unplaced}, {*self.doubtful})

    def youngest_below(self, offset: int) -> int | None:
        """Return the timestamp of the youngest record below an offset."""
        at = bisect_left(self.offsets, offset)
        return max(self.times[:at], default=None)


@dataclass
class Truth:
    """All records; safe for the writers' threads. ``fates`` is by transaction, ``transaction_of`` by record number."""

    known: dict[Place, Known] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    transaction_of: dict[int, int] = field(default_factory=dict)
    written: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def acknowledged(self, place: Place, number: int, offset: int, timestamp: int) -> None:
        with self._lock:
            partition = self.known.setdefault(place, Known())
            self.written += 1
            if offset < 0:
                partition.unplaced.add(number)
                return
            at = bisect_left(partition.offsets, offset)
            partition.offsets.insert(at, offset)
            partition.numbers.insert(at, number)
            partition.times.insert(at, timestamp)

    def unanswered(self, place: Place, number: int) -> None:
        with self._lock:
            self.known.setdefault(place, Known()).doubtful.add(number)

    def snapshot(self, place: Place) -> Known:
        with self._lock:
            return self.known.get(place, Known()).copy()

    def forget_below(self, place: Place, offset: int) -> None:
        """Forget the records below an offset, to which no log start will come back."""
        with self._lock:
            partition = self.known.setdefault(place, Known())
            at = bisect_left(partition.offsets, offset)
            for number in partition.numbers[:at]:
                self.transaction_of.pop(number, None)
            del partition.offsets[:at], partition.numbers[:at], partition.times[:at]

    def forget_from(self, place: Place, offset: int) -> None:
        """Forget a lost branch of the log. Records that were acknowledged without an offset may be in it, or not."""
        with self._lock:
            partition = self.known.setdefault(place, Known())
            at = bisect_left(partition.offsets, offset)
            del partition.offsets[at:], partition.numbers[at:], partition.times[at:]
            partition.doubtful |= partition.unplaced
            partition.unplaced.clear()

    def fate(self, number: int) -> str:
        return self.fates.get(self.transaction_of.get(number, PLAIN), COMMITTED)


def complaints(
    truth: Truth, known: Known, start: int, end: int, read: Sequence[Record], committed: bool
) -> Iterator[str]:
    """Yield the differences between ``read`` and the truth of ``[start, end)``; none means that they are equal."""
    first, stop = bisect_left(known.offsets, start), bisect_left(known.offsets, end)
    expected = dict(zip(known.offsets[first:stop], known.numbers[first:stop], strict=True))
    numbers_read: dict[int, int] = {}
    for (offset, key, value), before in zip(read, [None, *read], strict=False):
        number = number_of(value)
        if before is not None and before[0] >= offset:
            yield f"offset {offset} is read after {before[0]}"
        if number is None or (key, value) != (key_of(number), value_of(number)):
            yield f"offset {offset} holds what nobody wrote: {key[:20]!r} {value[:40]!r}"
            continue
        numbers_read[offset] = number
    numbers = [*numbers_read.values()]
    if len(set(numbers)) != len(numbers):
        yield f"read twice: {_some(each for each in set(numbers) if numbers.count(each) > 1)}"
    if numbers != sorted(numbers):
        yield "records are not in the order they were written in"
    yield from _differences(truth, known, expected, numbers_read, committed)


def _differences(
    truth: Truth, known: Known, expected: dict[int, int], found: dict[int, int], committed: bool
) -> Iterator[str]:
    shown = {offset: number for offset, number in expected.items() if not committed or truth.fate(number) == COMMITTED}
    may = {offset for offset, number in expected.items() if committed and truth.fate(number) == UNKNOWN}
    if lost := shown.keys() - found.keys() - may:
        yield f"{len(lost)} acknowledged records are lost, at offsets {_some(lost)}"
    other = {offset for offset, number in found.items() if offset in expected and expected[offset] != number}
    if other:
        yield f"{len(other)} records are not the ones acknowledged there, at offsets {_some(other)}"
    if hidden := {offset for offset in found.keys() & (expected.keys() - shown.keys()) - may}:
        yield f"{len(hidden)} records of aborted transactions are shown, at offsets {_some(hidden)}"
    loose = {offset: found[offset] for offset in found.keys() - expected.keys()}
    allowed = {each for each in known.unplaced | known.doubtful if not committed or truth.fate(each) != ABORTED}
    if strange := {offset for offset, number in loose.items() if number not in allowed}:
        yield f"{len(strange)} records were never sent there, at offsets {_some(strange)}"
    between = (min(found.values()), max(found.values())) if found else (0, -1)
    missing = {each for each in known.unplaced - {*loose.values()} if between[0] < each < between[1]}
    if missing := {each for each in missing if truth.fate(each) == COMMITTED or not committed}:
        yield f"{len(missing)} acknowledged records are lost, of numbers {_some(missing)}"
    by_transaction: dict[int, list[bool]] = {}
    for offset in may:
        by_transaction.setdefault(truth.transaction_of[expected[offset]], []).append(offset in found)
    if torn := {name for name, seen in by_transaction.items() if len(set(seen)) > 1}:
        yield f"{len(torn)} transactions are shown in part: {_some(torn)}"


def jumped(known: Known, start: int, end: int, read: Sequence[Record]) -> Iterator[str]:
    """Yield a complaint if a consumer at ``start`` did not get all records that were acknowledged below ``end``."""
    numbers_read = {offset: number_of(value) for offset, _, value in read}
    first, stop = bisect_left(known.offsets, start), bisect_left(known.offsets, end)
    expected = dict(zip(known.offsets[first:stop], known.numbers[first:stop], strict=True))
    if lost := {offset for offset, number in expected.items() if numbers_read.get(offset) != number}:
        yield f"{len(lost)} of {len(expected)} records from {start} on were jumped over, at offsets {_some(lost)}"


def digest(records: Iterable[Record]) -> str:
    """Return the digest of offsets, keys and values, in order."""
    hasher = hashlib.sha256()
    for offset, key, value in records:
        hasher.update(b"%d %d %d " % (offset, len(key), len(value)) + key + value)
    return hasher.hexdigest()


def _some(which: Iterable[int]) -> str:
    ordered = sorted(which)
    return ", ".join(map(str, ordered[:SHOWN])) + (", …" if len(ordered) > SHOWN else "")

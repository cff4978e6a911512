"""The record digest once more, written from its definition (`docs/formats.md`) and from nothing else.

The demo's readers must not trust tierstate's own digest code: what is compared here is computed here.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Header = tuple[str, bytes | None]


def encode(
    offset: int, timestamp: int, timestamp_type: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytes:
    """Encode one record: big endian, -1 for null."""
    parts = [struct.pack(">qqb", offset, timestamp, timestamp_type), _sized(key), _sized(value)]
    parts.append(struct.pack(">i", len(headers)))
    for name, content in headers:
        parts += [_sized(name.encode()), _sized(content)]
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


@dataclass
class Records:
    """The records that one reader saw: partition to offsets and encoded records, in the order they came."""

    offsets: dict[int, list[int]] = field(default_factory=dict)
    encoded: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, partition: int, offset: int, record: bytes) -> None:
        self.offsets.setdefault(partition, []).append(offset)
        self.encoded.setdefault(partition, []).append(record)

    @property
    def count(self) -> int:
        return sum(map(len, self.encoded.values()))

    @property
    def bytes(self) -> int:
        return sum(len(record) for records in self.encoded.values() for record in records)

    def digest(self, partition: int, start: int = 0, end: int = 2**63) -> str:
        """Return the SHA-256 of one partition's records with offsets ``start`` to ``end`` (not included)."""
        offsets = self.offsets.get(partition, [])
        first, last = bisect_left(offsets, start), bisect_left(offsets, end)
        return hashlib.sha256(b"".join(self.encoded.get(partition, [])[first:last])).hexdigest()

    def topic_digest(self) -> str:
        return topic_digest((p, len(self.encoded[p]), self.digest(p)) for p in self.encoded)

    def part(self, starts: dict[int, int]) -> Records:
        """Return only the records at these start offsets or later."""
        kept = Records()
        for partition, start in starts.items():
            at = bisect_left(self.offsets.get(partition, []), start)
            kept.offsets[partition] = self.offsets.get(partition, [])[at:]
            kept.encoded[partition] = self.encoded.get(partition, [])[at:]
        return kept


def topic_digest(partitions: Iterable[tuple[int, int, str]]) -> str:
    """Return the topic's digest from (partition, record count, hex digest) of each partition."""
    whole = hashlib.sha256()
    for partition, count, digest in sorted(partitions):
        whole.update(struct.pack(">iq", partition, count) + bytes.fromhex(digest))
    return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first offset at which the records of two readers differ."""

    partition: int
    offset: int
    expected: str
    found: str


def first_difference(expected: Records, found: Records) -> FirstDifference | None:
    """Return the first offset at which two readers do not have the same record; None when all records are the same."""
    for partition in sorted(expected.encoded.keys() | found.encoded.keys()):
        ours, theirs = expected.encoded.get(partition, []), found.encoded.get(partition, [])
        if ours == theirs:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        offsets_read = expected.offsets[partition] if at < len(ours) else found.offsets[partition]
        return FirstDifference(partition, offsets_read[at], _shown(ours, at), _shown(theirs, at))
    return None


def _shown(records: list[bytes], at: int) -> str:
    return repr(records[at][:120]) if at < len(records) else "nothing"

"""The record digest: one number for "the same records".

SHA-256 over the records of one partition and offset range in offset order, each as, big endian: offset int64,
timestamp int64 (ms), timestamp type int8, key length int32 (-1 null) and bytes, value length int32 and bytes, header
count int32, then each header's name length int32 and UTF-8 bytes, value length int32 and bytes. Control records are
not in it. A topic's digest is the SHA-256 over ``partition int32 ‖ record count int64 ‖ digest`` in partition order.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import InvalidRequest
from .record_block import RecordBlock
from .record_parts import parts_of

Header = tuple[str, bytes | None]
Row = tuple[int, int, int, bytes | None, bytes | None, Sequence[Header]]
"""Offset, timestamp in ms, timestamp type (0 create, 1 append), key, value, headers."""
Encoded = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Offsets, the bytes of their records, and where each record ends in them."""


def encode_record(
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> bytes:
    """One record's bytes in the digest."""
    parts = [struct.pack(">qqb", offset, timestamp, timestamp_type), _sized(key), _sized(value)]
    parts.append(struct.pack(">i", len(headers)))
    for name, content in headers:
        parts += [_sized(name.encode()), _sized(content)]
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class RecordDigest:
    """Of one partition. Feed it in offset order; it refuses anything else with InvalidRequest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._last = -1
        self.count = 0

    def update(self, records: RecordBlock | pa.RecordBatch | pa.Table) -> None:
        """A decoded block, or rows in the schema of `record_columns.record_schema`, with headers."""
        for each in _encoded(records):
            self.take(each)

    def update_arrow(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Rows in the schema of `record_columns.record_schema`, with headers."""
        self.update(batch)

    def update_records(self, rows: Iterable[Row]) -> None:
        """Records of any reader."""
        for row in rows:
            self.update_record(*row)

    def update_record(
        self,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> None:
        """One record of any reader; ``timestamp`` in ms, ``timestamp_type`` 0 create, 1 append."""
        data = encode_record(offset, timestamp, timestamp_type, key, value, headers)
        self.take((np.array([offset], np.int64), np.frombuffer(data, np.uint8), np.array([len(data)], np.int64)))

    def take(self, part: Encoded, first: int = 0, last: int | None = None) -> None:
        """Records ``first`` to ``last`` (not included) of what is encoded already."""
        offsets, data, ends = part
        offsets, ends_here = offsets[first:last], ends[first:last]
        if not len(offsets):
            return
        if int(offsets[0]) <= self._last or (np.diff(offsets) <= 0).any():
            raise InvalidRequest("records are not in offset order", after=self._last, first=int(offsets[0]))
        self._last = int(offsets[-1])
        self.count += len(offsets)
        self._hash.update(data[int(ends[first - 1]) if first else 0 : int(ends_here[-1])].data)

    def digest(self) -> bytes:
        return self._hash.digest()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class RangeDigests:
    """The digest of a whole partition and of each of some ranges, in one pass.

    ``ranges``: (start, end), end not included.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.ranges = tuple(ranges)
        self.whole = RecordDigest()
        self.parts = [RecordDigest() for _ in ranges]

    @classmethod
    def between(cls, boundaries: Sequence[int]) -> RangeDigests:
        """Of the ranges from each boundary to the next one."""
        return cls(list(pairwise(boundaries)))

    def update(self, records: RecordBlock | pa.RecordBatch | pa.Table) -> None:
        """As `RecordDigest.update`."""
        for each in _encoded(records):
            self.whole.take(each)
            for (start, stop), part in zip(self.ranges, self.parts, strict=True):
                first, last = np.searchsorted(each[0], (start, stop)).tolist()
                part.take(each, first, last)

    def update_arrow(self, batch: pa.RecordBatch | pa.Table) -> None:
        """As `RecordDigest.update_arrow`."""
        self.update(batch)


def _encoded(records: RecordBlock | pa.RecordBatch | pa.Table) -> Iterator[Encoded]:
    for part in records.to_batches() if isinstance(records, pa.Table) else [records]:
        if len(part):
            parts = parts_of(part)
            yield parts.offsets, *parts.encoded()


def topic_digest(partitions: Mapping[int, tuple[int, bytes]]) -> str:
    """From partition to (record count, digest); lower-case hex."""
    whole = hashlib.sha256()
    for partition in sorted(partitions):
        count, digest = partitions[partition]
        whole.update(struct.pack(">iq", partition, count) + digest)
    return whole.hexdigest()

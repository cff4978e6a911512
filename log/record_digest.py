"""The record digest: one hash that shows whether two sequences of records are equal.

It is the SHA-256 over the records of one partition and offset range, in offset order. A record is, in big endian:
offset int64, timestamp int64 (ms), timestamp type int8, key length int32 (-1 null) and bytes, value length int32 and
bytes, header count int32, then each header's name length int32 and UTF-8 bytes, value length int32 and bytes. Control
records are not included.
A topic's digest is the SHA-256 over ``partition int32 ‖ record count int64 ‖ digest`` in partition order.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..state.errors import InvalidRequest
from .record_block import RecordBlock
from .record_parts import parts_of

Encoded = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Offsets, the joined bytes of the records, and the position in them where each record ends."""


class RecordDigest:
    """The digest of one partition. Records must come in offset order; otherwise it raises InvalidRequest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._last = -1
        self.count = 0

    def update(self, records: RecordBlock | pa.RecordBatch | pa.Table) -> None:
        """Add a decoded block, or rows in the schema of `record_columns.record_schema`, with headers."""
        for part in _encoded(records):
            self.take(part)

    def take(self, part: Encoded, first: int = 0, last: int | None = None) -> None:
        """Add the encoded records at the indexes [``first``, ``last``). Raises InvalidRequest for a wrong order."""
        offsets, data, ends = part
        offsets, ends_taken = offsets[first:last], ends[first:last]
        if not len(offsets):
            return
        if int(offsets[0]) <= self._last or (np.diff(offsets) <= 0).any():
            raise InvalidRequest("records are not in offset order", after=self._last, first=int(offsets[0]))
        self._last = int(offsets[-1])
        self.count += len(offsets)
        self._hash.update(data[int(ends[first - 1]) if first else 0 : int(ends_taken[-1])].data)

    def digest(self) -> bytes:
        return self._hash.digest()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class RangeDigests:
    """The digests of a complete partition and of offset ranges in it, computed in one pass.

    ``ranges``: (start offset, end offset), end not included.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.ranges = tuple(ranges)
        self.whole = RecordDigest()
        self.parts = [RecordDigest() for _ in ranges]

    def update(self, records: RecordBlock | pa.RecordBatch | pa.Table) -> None:
        """Add records to all digests, as `RecordDigest.update` does."""
        for encoded in _encoded(records):
            self.whole.take(encoded)
            for (start, stop), part in zip(self.ranges, self.parts, strict=True):
                first, last = np.searchsorted(encoded[0], (start, stop)).tolist()
                part.take(encoded, first, last)


def _encoded(records: RecordBlock | pa.RecordBatch | pa.Table) -> Iterator[Encoded]:
    for part in records.to_batches() if isinstance(records, pa.Table) else [records]:
        if len(part):
            parts = parts_of(part)
            yield parts.offsets, *parts.encoded()


def topic_digest(partitions: Mapping[int, tuple[int, bytes]]) -> str:
    """Return a topic's digest in lower-case hex. ``partitions`` maps a partition to (record count, digest)."""
    whole = hashlib.sha256()
    for partition in sorted(partitions):
        count, digest = partitions[partition]
        whole.update(struct.pack(">iq", partition, count) + digest)
    return whole.hexdigest()

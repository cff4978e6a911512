"""The record digest: one number for "the same records".

SHA-256 over the records of one partition and offset range in offset order, each as, big endian: offset int64,
timestamp int64 (ms), timestamp type int8, key length int32 (-1 null) and bytes, value length int32 and bytes, header
count int32, then each header's name length int32 and UTF-8 bytes, value length int32 and bytes. Control records are
not in it. A topic's digest is the SHA-256 over ``partition int32 ‖ record count int64 ‖ digest`` in partition order.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ..state.errors import InvalidRequest
from .decode import RecordBlock

Header = tuple[str, bytes | None]


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

    def update(self, block: RecordBlock) -> None:
        """All records of a decoded block."""
        if len(block):
            encoded, _ = block.encoded()
            self._take(block.offsets, encoded.data)

    def update_arrow(self, batch: pa.RecordBatch) -> None:
        """Rows in the schema of `decode.record_schema`, with headers."""
        rows = [encode_record(*row) for row in arrow_rows(batch)]
        if rows:
            self._take(np.asarray(batch.column("offset")), b"".join(rows))

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
        self._take(np.array([offset]), encode_record(offset, timestamp, timestamp_type, key, value, headers))

    def _take(self, offsets: np.ndarray[tuple[int], np.dtype[np.int64]], encoded: bytes | memoryview) -> None:
        if int(offsets[0]) <= self._last or (np.diff(offsets) <= 0).any():
            raise InvalidRequest("records are not in offset order", after=self._last, first=int(offsets[0]))
        self._last = int(offsets[-1])
        self.count += len(offsets)
        self._hash.update(encoded)

    def digest(self) -> bytes:
        return self._hash.digest()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class RangeDigests:
    """The digest of a whole partition and of each of some disjoint ascending ranges, in one pass.

    ``ranges``: (start, end), end not included.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.ranges = tuple(ranges)
        self.whole = RecordDigest()
        self.parts = [RecordDigest() for _ in ranges]

    def update(self, block: RecordBlock) -> None:
        if not len(block):
            return
        encoded, ends = block.encoded()
        view, offsets = encoded.data, block.offsets
        self.whole._take(offsets, view)
        for (start, stop), part in zip(self.ranges, self.parts, strict=True):
            first, last = np.searchsorted(offsets, [start, stop])
            if first < last:
                part._take(offsets[first:last], view[int(ends[first - 1]) if first else 0 : int(ends[last - 1])])

    def update_arrow(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        offsets = np.asarray(batch.column("offset"))
        rows = [encode_record(*row) for row in arrow_rows(batch)]
        self.whole._take(offsets, b"".join(rows))
        for (start, stop), part in zip(self.ranges, self.parts, strict=True):
            first, last = np.searchsorted(offsets, [start, stop])
            if first < last:
                part._take(offsets[first:last], b"".join(rows[first:last]))


Row = tuple[int, int, int, bytes | None, bytes | None, list[Header]]


def arrow_rows(batch: pa.RecordBatch) -> Iterable[Row]:
    """(offset, timestamp ms, type, key, value, headers) of each row."""
    headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * batch.num_rows
    columns = zip(
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("timestampType").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        headers,
        strict=True,
    )
    for offset, micros, kind, key, value, named in columns:
        yield offset, micros // 1000, kind, key, value, [(each["key"], each["value"]) for each in named or []]


def topic_digest(partitions: Mapping[int, tuple[int, bytes]]) -> str:
    """From partition to (record count, digest); lower-case hex."""
    whole = hashlib.sha256()
    for partition in sorted(partitions):
        count, digest = partitions[partition]
        whole.update(struct.pack(">iq", partition, count) + digest)
    return whole.hexdigest()

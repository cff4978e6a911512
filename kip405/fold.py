"""The state of each segment, folded from the records of the metadata topic.

    none  ->  COPY_SEGMENT_STARTED  ->  COPY_SEGMENT_FINISHED  ->  DELETE_SEGMENT_STARTED  ->  DELETE_SEGMENT_FINISHED
              COPY_SEGMENT_STARTED  ->  DELETE_SEGMENT_STARTED     (a copy that failed)

The same state may come again (``RemoteLogSegmentState.isValidTransition``). An update replaces broker, time, state and
custom metadata; all else stays. An update of an unknown segment is ignored, as in Kafka. DELETE_SEGMENT_FINISHED
forgets the segment. Only COPY_SEGMENT_FINISHED can be read.

    s <topic id> <partition> <segment id>   bytes of its first record and of its last update, as Kafka wrote them
    p <metadata partition>                  position after the last record, and its leader epoch
    x <metadata partition> <position>       why the record there is not used
"""

from __future__ import annotations

import shutil
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..broker.tier_reader import UNKNOWN_EPOCH
from ..follower.rocksdb import Database
from ..state.errors import CorruptData
from ..state.ids import TopicId, TopicIdPartition
from ..state.offsets import Position, TimestampMs
from ..state.segment import SegmentState
from ..state.view import Entry
from .records import (
    DELETE_MARKED,
    CustomMetadata,
    PartitionDelete,
    SegmentRecord,
    SegmentUpdate,
    decode_custom,
    decode_record,
    topic_id_of,
)

_PLACE = struct.Struct(">16si")
_SIZE = struct.Struct(">I")
_POSITION = struct.Struct(">qi")
_NUMBER = struct.Struct(">i")
SEGMENTS, POSITIONS, PROBLEMS = b"s", b"p", b"x"
FOLLOWING = {
    SegmentState.COPY_SEGMENT_STARTED: (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
}


FAMILY = "rows"
IDENTITY = b"identity"


class Rows:
    """An ordered map of bytes with one writer, in a dictionary of this process."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []
        """All keys in order; None after a change."""

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows whose keys begin so, in order of key."""
        if self._keys is None:
            self._keys = sorted(self._rows)
        keys = self._keys
        for at in range(bisect_left(keys, prefix), len(keys)):
            if not keys[at].startswith(prefix):
                return
            yield keys[at], self._rows[keys[at]]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put and delete (None) rows in one atomic step."""
        for key, value in changes.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        self._keys = None

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class DiskRows(Rows):
    """Rows in a RocksDB database. Raises CorruptData, DiskFull, Unavailable."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, (FAMILY,), create=True)

    def get(self, key: bytes) -> bytes | None:
        return self._database.get(FAMILY, key)

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._database.scan(FAMILY, prefix)

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        batch = self._database.batch()
        for key, value in changes.items():
            if value is None:
                batch.delete(FAMILY, key)
            else:
                batch.put(FAMILY, key, value)
        self._database.write(batch)

    def close(self) -> None:
        self._database.close()


def open_rows(folder: Path | None, identity: str) -> Rows:
    """Return empty rows in memory, or those in ``folder``. Rows of another ``identity``, or damaged, are deleted first.

    Raises Unavailable if another process has the folder open, and DiskFull.
    """
    if folder is None:
        return Rows()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        rows = DiskRows(folder)
        if rows.get(IDENTITY) == identity.encode():
            return rows
        rows.close()
    except CorruptData:
        pass  # all of it can be read again
    shutil.rmtree(folder)
    rows = DiskRows(folder)
    rows.write({IDENTITY: identity.encode()})
    return rows


@dataclass(frozen=True, slots=True)
class SegmentNow:
    """A segment as its records describe it now."""

    record: SegmentRecord
    update: SegmentUpdate | None

    @property
    def state(self) -> SegmentState:
        return SegmentState.COPY_SEGMENT_STARTED if self.update is None else self.update.state

    @property
    def at(self) -> TimestampMs:
        """Return the time of its newest record, by the clock of the broker that wrote it."""
        return self.record.at if self.update is None else self.update.at

    @property
    def custom(self) -> CustomMetadata:
        """Return Aiven's custom metadata; empty if there is none, or if it is that of another plugin."""
        try:
            return CustomMetadata() if self.update is None else decode_custom(self.update.custom)
        except CorruptData:
            return CustomMetadata()


class Fold:
    """The fold of some partitions of the metadata topic. The caller serialises all calls.

    ``topics``: only records of these topics are decoded and kept; None: all.
    """

    def __init__(self, rows: Rows, topics: frozenset[TopicId] | None = None) -> None:
        self._rows = rows
        self._topics = None if topics is None else frozenset(each.raw for each in topics)
        self._versions: dict[TopicIdPartition, int] = defaultdict(int)
        self._places: list[TopicIdPartition] | None = None

    def position(self, number: int) -> Position | None:
        """Return the position of the next record of a metadata partition; None before the first call of `apply`."""
        row = self._rows.get(POSITIONS + _NUMBER.pack(number))
        return None if row is None else Position(_POSITION.unpack(row)[0])

    def epoch(self, number: int) -> int:
        """Return the leader epoch of the last record; -1 if unknown."""
        row = self._rows.get(POSITIONS + _NUMBER.pack(number))
        return UNKNOWN_EPOCH if row is None else int(_POSITION.unpack(row)[1])

    def apply(self, number: int, entries: Iterable[Entry], following: Position, epoch: int) -> None:
        """Apply records in order, and store the position after them, in one atomic step."""
        changes: dict[bytes, bytes | None] = {}
        for entry in entries:
            value = entry.value or b""
            try:
                if self._topics is None or topic_id_of(value) in self._topics:
                    self._take(value, changes)
            except CorruptData as error:
                changes[PROBLEMS + _NUMBER.pack(number) + struct.pack(">q", entry.position)] = str(error).encode()
        changes[POSITIONS + _NUMBER.pack(number)] = _POSITION.pack(following, epoch)
        self._rows.write(changes)

    def forget(self, number: int, partitions: Iterable[TopicIdPartition]) -> None:
        """Forget all that was read of a metadata partition. ``partitions``: those whose records it has."""
        changes: dict[bytes, bytes | None] = {POSITIONS + _NUMBER.pack(number): None}
        changes |= dict.fromkeys(key for key, _ in self._rows.under(PROBLEMS + _NUMBER.pack(number)))
        for partition in partitions:
            changes |= dict.fromkeys(key for key, _ in self._rows.under(_place_key(partition)))
            self._changed(partition)
        self._rows.write(changes)

    def _take(self, value: bytes, changes: dict[bytes, bytes | None]) -> None:
        record = decode_record(value)
        if isinstance(record, PartitionDelete):
            if record.state != DELETE_MARKED:
                prefix = _place_key(record.partition)
                gone = [
                    *(key for key, _ in self._rows.under(prefix)),
                    *(key for key in changes if key.startswith(prefix)),
                ]
                changes |= dict.fromkeys(gone)
                self._changed(record.partition)
            return
        key = _place_key(record.partition) + record.segment_id.raw
        row = changes[key] if key in changes else self._rows.get(key)
        if isinstance(record, SegmentRecord):
            if row is None:
                changes[key] = _SIZE.pack(len(value)) + value
                self._changed(record.partition)
            return
        if row is None:
            return
        before = _decoded(row).state
        if record.state != before and record.state not in FOLLOWING[before]:
            raise CorruptData(
                f"a segment goes from {before} to {record.state}",
                partition=record.partition,
                segment_id=record.segment_id,
            )
        (size,) = _SIZE.unpack_from(row)
        finished = record.state is SegmentState.DELETE_SEGMENT_FINISHED
        changes[key] = None if finished else row[: _SIZE.size + size] + value
        self._changed(record.partition)

    def _changed(self, partition: TopicIdPartition) -> None:
        self._versions[partition] += 1
        self._places = None

    def version(self, partition: TopicIdPartition) -> int:
        """Return a number that changes with the partition's segments."""
        return self._versions[partition]

    def segments(self, partition: TopicIdPartition) -> list[SegmentNow]:
        """Return all segments of a partition that are not forgotten."""
        return [_decoded(row) for _, row in self._rows.under(_place_key(partition))]

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions with a segment, in order."""
        if self._places is None:
            self._places = list(dict.fromkeys(_place_of(key) for key, _ in self._rows.under(SEGMENTS)))
        return self._places

    def problems(self, number: int) -> tuple[str, ...]:
        """Return a sentence for each record of a metadata partition that is not used."""
        return tuple(
            f"record {struct.unpack('>q', key[-8:])[0]} of metadata partition {number} is not used: {text.decode()}"
            for key, text in self._rows.under(PROBLEMS + _NUMBER.pack(number))
        )

    def close(self) -> None:
        self._rows.close()


def _place_key(partition: TopicIdPartition) -> bytes:
    return SEGMENTS + _PLACE.pack(partition.topic_id.raw, partition.partition)


def _place_of(key: bytes) -> TopicIdPartition:
    topic_id, number = _PLACE.unpack_from(key, len(SEGMENTS))
    return _partition(topic_id, number)


@lru_cache(65_536)
def _partition(topic_id: bytes, number: int) -> TopicIdPartition:
    return TopicIdPartition(TopicId.of(topic_id), number)


def _decoded(row: bytes) -> SegmentNow:
    (size,) = _SIZE.unpack_from(row)
    record = decode_record(row[_SIZE.size : _SIZE.size + size])
    update = row[_SIZE.size + size :]
    assert isinstance(record, SegmentRecord)
    decoded = decode_record(update) if update else None
    assert decoded is None or isinstance(decoded, SegmentUpdate)
    return SegmentNow(record, decoded)

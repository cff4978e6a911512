"""The live set in RocksDB: the only file that knows RocksDB.

Layout: three column families. ``live``: tier-state partition (uint32) ‖ key → position (int64) ‖ value. ``positions``:
tier-state partition → position of the next record, and the time (ms) at which the view was last known to have applied a
then-current end. ``meta``: what this view is a view of. Facts and the position after them go in one write batch, so a
restart resumes exactly. The meaning of a partition is worked out from its live set when first asked for, and kept up
incrementally.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

from ..state.apply import PartitionState
from ..state.errors import InvalidRequest, StorageFull, TierstateError, Unavailable
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import partition_of_key, partition_prefix, tier_partition_of
from ..state.offsets import Position
from ..state.view import Decode, Entry

FORMAT = 1
FAMILIES = ("live", "positions", "meta")
_PARTITION = struct.Struct(">I")
_POSITION = struct.Struct(">q")
_POSITION_AS_OF = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class ViewIdentity:
    """What a view is a view of. A folder with another identity is never opened as this one."""

    cluster_id: str
    topic_id: str
    partitions: int
    format: int = FORMAT


class RocksView:
    """A `ViewStore`. One writer; readers on any thread."""

    def __init__(self, path: Path, identity: ViewIdentity, decode: Decode) -> None:
        """Open or create. Raises InvalidRequest for another identity, Unavailable when another process has it open."""
        self.path, self.identity, self._decode = path, identity, decode
        self._lock = threading.RLock()
        self._states: dict[TopicIdPartition, PartitionState] = {}
        path.mkdir(parents=True, exist_ok=True)
        self._db = _open(path)
        self._live, self._positions, self._meta = (self._db.get_column_family(name) for name in FAMILIES)
        self._check_identity()

    def _check_identity(self) -> None:
        stored = self._meta.get(b"identity")
        if stored is None:
            self._meta[b"identity"] = json.dumps(asdict(self.identity)).encode()
        elif json.loads(stored) != asdict(self.identity):
            self.close()
            raise InvalidRequest(
                "this folder holds the view of another tier-state topic", path=self.path, holds=stored.decode()
            )

    def apply(self, tier_partition: int, entries: Iterable[Entry], following: Position) -> None:
        batch = WriteBatch(raw_mode=True)
        live = self._db.get_column_family_handle("live")
        positions = self._db.get_column_family_handle("positions")
        prefix = _PARTITION.pack(tier_partition)
        entries = list(entries)
        for entry in entries:
            key = prefix + entry.key.encode()
            if entry.value is None:
                batch.delete(key, live)
            else:
                batch.put(key, _POSITION.pack(entry.position) + entry.value, live)
        batch.put(prefix, _POSITION_AS_OF.pack(following, self.as_of(tier_partition)), positions)
        with self._lock:
            self._write(batch)
            for entry in entries:
                self._apply_to_state(entry)

    def _write(self, batch: Any) -> None:
        try:
            self._db.write(batch)
        except Exception as error:  # rocksdict raises a bare Exception
            kind = StorageFull if "No space left" in str(error) or "File too large" in str(error) else Unavailable
            raise kind("view cannot be written", path=self.path, reason=str(error)) from error

    def _apply_to_state(self, entry: Entry) -> None:
        partition = partition_of_key(entry.key)
        state = self._states.get(partition) if partition else None
        if state is None:
            return
        if entry.value is None:
            state.erase(entry.key)
        else:
            state.insert(LiveFact(entry.key, entry.position, self._decode(entry.key, entry.value)))

    def position(self, tier_partition: int) -> Position:
        return Position(self._position_as_of(tier_partition)[0])

    def as_of(self, tier_partition: int) -> int:
        """When (ms) the view last had applied a then-current end; 0 for never."""
        return self._position_as_of(tier_partition)[1]

    def _position_as_of(self, tier_partition: int) -> tuple[int, int]:
        stored = self._positions.get(_PARTITION.pack(tier_partition))
        if stored is None:
            return 0, 0
        position, as_of = _POSITION_AS_OF.unpack(stored)
        return position, as_of

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        """A then-current end is applied."""
        with self._lock:
            stored = _POSITION_AS_OF.pack(self.position(tier_partition), now_ms)
            self._positions[_PARTITION.pack(tier_partition)] = stored

    def state(self, partition: TopicIdPartition) -> PartitionState:
        with self._lock:
            state = self._states.get(partition)
            if state is None:
                state = PartitionState(partition)
                number = tier_partition_of(partition, self.identity.partitions)
                for entry in self._scan(number, partition_prefix(partition)):
                    if entry.value is not None:
                        state.insert(LiveFact(entry.key, entry.position, self._decode(entry.key, entry.value)))
                self._states[partition] = state
            return state

    def partitions(self) -> list[TopicIdPartition]:
        """Every partition with a live fact: one seek per partition, not a scan of all keys."""
        found = []
        for number in range(self.identity.partitions):
            prefix = _PARTITION.pack(number)
            seek = prefix
            while (key := self._first_key(seek)) is not None and key.startswith(prefix):
                text = key[4:].decode()
                partition = partition_of_key(text)
                if partition is None:
                    seek = key + b"\x00"
                    continue
                found.append(partition)
                seek = prefix + partition_prefix(partition)[:-1].encode() + b"0"  # "0" follows "/"
        return sorted(found)

    def _first_key(self, seek: bytes) -> bytes | None:
        return next(iter(self._live.keys(from_key=seek)), None)

    def _scan(self, tier_partition: int, key_prefix: str = "") -> Iterator[Entry]:
        prefix = _PARTITION.pack(tier_partition) + key_prefix.encode()
        for key, value in self._live.items(from_key=prefix):
            if not key.startswith(prefix):
                return
            yield Entry(key[4:].decode(), Position(_POSITION.unpack_from(value)[0]), value[8:])

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        numbers = range(self.identity.partitions) if tier_partition is None else (tier_partition,)
        for number in numbers:
            for entry in self._scan(number):
                yield number, entry

    def close(self) -> None:
        for family in (self._live, self._positions, self._meta):
            family.close()  # RocksDB keeps its lock while any family is open
        self._db.close()


def _open(path: Path) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {name: Options(raw_mode=True) for name in FAMILIES}
    try:
        return Rdict(str(path / "rocksdb"), options=options, column_families=families)
    except Exception as error:  # rocksdict raises a bare Exception
        raise _refused(path, str(error)) from error


def _refused(path: Path, reason: str) -> TierstateError:
    if "lock" in reason.lower():
        return Unavailable("another process has this view open", path=path)
    return InvalidRequest("this folder is not a view", path=path, reason=reason)

"""A view's live set in RocksDB.

The table lists column families, keys and values. Keys begin with the tier-state partition (uint32), except in ``meta``:

    live            ‖ key     position (int64) ‖ value
    positions                 position of the next record, as-of (ms, `as_of.py`), leader epoch of the last record (3 x
                              int64); if it is known, the anchor follows: position and SHA-256 of the last record
                              (int64, 32 bytes)
    foreign         ‖ key     position (int64) of an entry that belongs to no partition (`state/keys.py`)
    dropped         ‖ T/P/    empty: records of this partition were left out
    second_values   ‖ key     both positions, length of the first value (2 x int64, uint32) ‖ first ‖ second value
    meta            identity  the view's `ViewIdentity` (JSON)

Facts and the position after them are written in one batch, so a restart resumes exactly. A partition's state is
computed from its live set at the first request. While the state is cached, each applied record updates it.
"""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..state.apply import PartitionState
from ..state.errors import CorruptData, InvalidRequest
from ..state.facts import LiveFact
from ..state.ids import TopicIdPartition
from ..state.keys import Places, partition_of_key, partition_prefix, tier_partition_of
from ..state.offsets import Position
from ..state.view import BEGINNING, Anchor, Decode, Entry, SecondValue, ViewStore, is_second_value
from .rocksdb import Batch, Database
from .view_identity import BEFORE_ANCHORS
from .view_identity import ViewIdentity as ViewIdentity

FAMILIES = ("live", "positions", "foreign", "dropped", "second_values", "meta")
REMEMBERED_FACTS = 100_000
"""Maximum number of facts in all cached partition states together. A single cached state may have more."""
_PARTITION = struct.Struct(">I")
_POSITION = struct.Struct(">q")
_STANDING = struct.Struct(">qqq")
_ANCHOR = struct.Struct(">q32s")
_SECOND = struct.Struct(">qqI")


@dataclass(frozen=True, slots=True)
class _Tier:
    """The state of one tier-state partition in memory. It is replaced after a batch that changes it was written."""

    position: Position = BEGINNING
    as_of: int = 0
    epoch: int = -1
    foreign: dict[str, Position] = field(default_factory=dict)
    dropped: frozenset[TopicIdPartition] = frozenset()
    anchor: Anchor | None = None

    @property
    def standing(self) -> bytes:
        anchor = self.anchor
        last = b"" if anchor is None else _ANCHOR.pack(anchor.position, bytes.fromhex(anchor.sha256))
        return _STANDING.pack(self.position, self.as_of, self.epoch) + last


class RocksView:
    """A `ViewStore` on disk. It has one writer; any thread may read."""

    def __init__(
        self,
        path: Path,
        identity: ViewIdentity,
        decode: Decode,
        *,
        create: bool = True,
        remembered_facts: int = REMEMBERED_FACTS,
    ) -> None:
        """Open the view. Create it if it does not exist and ``create`` is True.

        Raises InvalidRequest if the folder has another identity, CorruptData if the view is damaged or missing, and
        Unavailable if another process has it open.
        """
        self.path, self.identity, self._decode = path, identity, decode
        self._places = Places(identity.partitions)
        self._lock = threading.RLock()
        self._states: OrderedDict[TopicIdPartition, PartitionState] = OrderedDict()
        self._remembered, self._remembered_limit = 0, remembered_facts
        path.mkdir(parents=True, exist_ok=True)
        self._db = Database(path / "rocksdb", FAMILIES, create=create)
        try:
            self._check_identity(create)
            self._tiers = {number: self._load(number) for number in range(identity.partitions)}
            self._second_keys = {key[4:].decode() for key, _ in self._db.scan("second_values", b"")}
        except BaseException:
            self._db.close()
            raise

    def _check_identity(self, create: bool) -> None:
        stored = self._db.get("meta", b"identity")
        identity, before = self.identity.record, self.identity.record | {"format": BEFORE_ANCHORS}
        if stored is not None and json.loads(stored) not in (identity, before):
            raise InvalidRequest(
                "this folder holds the view of another tier-state topic", path=self.path, holds=stored.decode()
            )
        if stored is None and not create:
            raise CorruptData("this view does not say what it is a view of", path=self.path)
        if stored is None or json.loads(stored) != identity:
            batch = self._db.batch()
            batch.put("meta", b"identity", json.dumps(identity).encode())
            self._db.write(batch)

    def _load(self, number: int) -> _Tier:
        prefix = _PARTITION.pack(number)
        stored = self._db.get("positions", prefix)
        position, as_of, epoch = _STANDING.unpack_from(stored) if stored else (0, 0, -1)
        anchor = None
        if stored and len(stored) > _STANDING.size:
            last, sha256 = _ANCHOR.unpack_from(stored, _STANDING.size)
            anchor = Anchor(Position(last), sha256.hex())
        first = self._db.first_key("live", prefix)
        if not position and first is not None and first.startswith(prefix):
            raise CorruptData("this view has facts but no position", path=self.path, tier_partition=number)
        foreign = {key[4:].decode(): Position(_POSITION.unpack(at)[0]) for key, at in self._db.scan("foreign", prefix)}
        dropped = (partition_of_key(key[4:].decode()) for key, _ in self._db.scan("dropped", prefix))
        return _Tier(Position(position), as_of, epoch, foreign, frozenset(each for each in dropped if each), anchor)

    # --- writing -----------------------------------------------------------------------------------------------

    def apply(
        self,
        tier_partition: int,
        entries: Iterable[Entry],
        following: Position,
        epoch: int = -1,
        dropped: Collection[TopicIdPartition] = (),
        anchor: Anchor | None = None,
    ) -> list[SecondValue]:
        prefix = _PARTITION.pack(tier_partition)
        entries = list(entries)
        with self._lock:
            batch, tier = self._db.batch(), self._tiers[tier_partition]
            fresh = frozenset(dropped) - tier.dropped
            foreign, seconds = self._put(batch, tier_partition, entries)
            after = replace(
                tier,
                position=following,
                epoch=epoch,
                foreign=foreign,
                dropped=tier.dropped | fresh,
                anchor=anchor or tier.anchor,
            )
            for partition in fresh:
                batch.put("dropped", prefix + partition_prefix(partition).encode(), b"")
            self._replace(tier_partition, after, batch)
            self._second_keys.update(second.key for second in seconds)
            for entry in entries:
                self._remember(tier_partition, entry)
            return seconds

    def _put(
        self, batch: Batch, tier_partition: int, entries: list[Entry]
    ) -> tuple[dict[str, Position], list[SecondValue]]:
        """Put the entries into a batch. Return all foreign keys after the batch, and the batch's new second values."""
        prefix = _PARTITION.pack(tier_partition)
        original = self._tiers[tier_partition].foreign
        foreign, seconds = original, dict[str, SecondValue]()
        keys = [prefix + entry.key.encode() for entry in entries]
        landing = [key for key, entry in zip(keys, entries, strict=True) if entry.value is not None]
        standing = dict(zip(landing, self._db.get_all("live", landing), strict=True))
        for key, entry in zip(keys, entries, strict=True):
            is_foreign = self._places.of(tier_partition, entry.key).foreign is not None
            if is_foreign and foreign is original:
                foreign = dict(original)
            if entry.value is None:
                batch.delete("live", key)
                standing[key] = None
                if is_foreign:
                    batch.delete("foreign", key)
                    foreign.pop(entry.key, None)
                continue
            value = _POSITION.pack(entry.position) + entry.value
            before = standing[key]
            batch.put("live", key, value)
            standing[key] = value
            if is_foreign:
                batch.put("foreign", key, _POSITION.pack(entry.position))
                foreign[entry.key] = entry.position
            elif before is not None and before[8:] != entry.value:
                known_already = entry.key in self._second_keys or entry.key in seconds
                if not known_already and is_second_value(self._decode(entry.key, entry.value)):
                    first = Position(_POSITION.unpack_from(before)[0])
                    seconds[entry.key] = SecondValue(entry.key, first, entry.position, before[8:], entry.value)
                    batch.put("second_values", key, _pack_second(seconds[entry.key]))
        return foreign, list(seconds.values())

    def _remember(self, tier_partition: int, entry: Entry) -> None:
        if not self._states:
            return
        partition = self._places.of(tier_partition, entry.key).partition
        state = self._states.get(partition) if partition else None
        if state is None:
            return
        before = state.fact_count
        if entry.value is None:
            state.erase(entry.key)
        else:
            state.insert(LiveFact(entry.key, entry.position, self._decode(entry.key, entry.value)))
        self._remembered += state.fact_count - before

    def mark_as_of(self, tier_partition: int, now_ms: int) -> None:
        with self._lock:
            self._replace(tier_partition, replace(self._tiers[tier_partition], as_of=now_ms), self._db.batch())

    def _replace(self, tier_partition: int, tier: _Tier, batch: Batch) -> None:
        batch.put("positions", _PARTITION.pack(tier_partition), tier.standing)
        self._db.write(batch)
        self._tiers[tier_partition] = tier

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        with self._lock:
            number = tier_partition_of(partition, self.identity.partitions)
            batch = self._db.batch()
            batch.delete("second_values", _PARTITION.pack(number) + key.encode())
            self._db.write(batch)
            self._second_keys.discard(key)

    def drop(self, tier_partition: int, partition: TopicIdPartition) -> None:
        tier = self._tiers[tier_partition]
        prefix = _PARTITION.pack(tier_partition) + partition_prefix(partition).encode()
        with self._lock:
            batch = self._db.batch()
            for key, _ in self._db.scan("live", prefix):
                if key[4:].decode() not in tier.foreign:
                    batch.delete("live", key)
            seconds = [key for key, _ in self._db.scan("second_values", prefix)]
            for key in seconds:
                batch.delete("second_values", key)
            batch.put("dropped", prefix, b"")
            self._replace(tier_partition, replace(tier, dropped=tier.dropped | {partition}), batch)
            self._second_keys -= {key[4:].decode() for key in seconds}
            self._forget_state(partition)

    def adopt(self, tier_partition: int, partitions: Collection[TopicIdPartition], source: ViewStore) -> None:
        prefix = _PARTITION.pack(tier_partition)
        with self._lock:
            batch, tier = self._db.batch(), self._tiers[tier_partition]
            for _, entry in source.entries(tier_partition):
                if self._places.of(tier_partition, entry.key).partition in partitions and entry.value is not None:
                    batch.put("live", prefix + entry.key.encode(), _POSITION.pack(entry.position) + entry.value)
            seconds = [second for partition in partitions for second in source.second_values(partition)]
            for second in seconds:
                batch.put("second_values", prefix + second.key.encode(), _pack_second(second))
            for partition in partitions:
                batch.delete("dropped", prefix + partition_prefix(partition).encode())
            self._replace(tier_partition, replace(tier, dropped=tier.dropped - frozenset(partitions)), batch)
            self._second_keys.update(second.key for second in seconds)
            for partition in partitions:
                self._forget_state(partition)

    def ingest(
        self, tier_partition: int, table: Path, position: Position, epoch: int, as_of: int, anchor: Anchor | None = None
    ) -> None:
        """Use a table of `live_set_object.py`, which has no foreign keys, as the live set of a tier-state partition.

        Raises InvalidRequest if the partition is not empty.
        """
        with self._lock:
            if self._tiers[tier_partition] != _Tier():
                raise InvalidRequest("only an empty view starts from a checkpoint", tier_partition=tier_partition)
            if table.stat().st_size:
                self._db.ingest("live", table)
            self._replace(tier_partition, _Tier(position, as_of, epoch, anchor=anchor), self._db.batch())
            self._states.clear()
            self._remembered = 0

    # --- reading -----------------------------------------------------------------------------------------------

    def position(self, tier_partition: int) -> Position:
        return self._tiers[tier_partition].position

    def as_of(self, tier_partition: int) -> int:
        return self._tiers[tier_partition].as_of

    def epoch(self, tier_partition: int) -> int:
        return self._tiers[tier_partition].epoch

    def anchor(self, tier_partition: int) -> Anchor | None:
        return self._tiers[tier_partition].anchor

    def foreign(self, tier_partition: int) -> tuple[str, ...]:
        standing = self._tiers[tier_partition].foreign
        return tuple(self._places.sentence(tier_partition, key, at) for key, at in sorted(standing.items()))

    def dropped(self, tier_partition: int) -> AbstractSet[TopicIdPartition]:
        return self._tiers[tier_partition].dropped

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        if not self._second_keys:
            return []
        number = tier_partition_of(partition, self.identity.partitions)
        prefix = _PARTITION.pack(number) + partition_prefix(partition).encode()
        return [_unpack_second(key[4:].decode(), value) for key, value in self._db.scan("second_values", prefix)]

    def state(self, partition: TopicIdPartition) -> PartitionState:
        with self._lock:
            state = self._states.get(partition)
            if state is not None:
                self._states.move_to_end(partition)
                return state
            state = PartitionState(partition)
            number = tier_partition_of(partition, self.identity.partitions)
            prefix = _PARTITION.pack(number) + partition_prefix(partition).encode()
            foreign = self._tiers[number].foreign
            for stored_key, stored in self._db.scan("live", prefix):
                key = stored_key[4:].decode()
                if key not in foreign:
                    at = Position(_POSITION.unpack_from(stored)[0])
                    state.insert(LiveFact(key, at, self._decode(key, stored[8:])))
            self._states[partition] = state
            self._remembered += state.fact_count
            while self._remembered > self._remembered_limit and len(self._states) > 1:
                self._forget_state(next(iter(self._states)))
            return state

    def _forget_state(self, partition: TopicIdPartition) -> None:
        state = self._states.pop(partition, None)
        if state is not None:
            self._remembered -= state.fact_count

    def partitions(self) -> list[TopicIdPartition]:
        """Return every partition with a live fact: one seek per partition, not a scan of all keys."""
        partitions = []
        for number in range(self.identity.partitions):
            seek = prefix = _PARTITION.pack(number)
            while (key := self._db.first_key("live", seek)) is not None and key.startswith(prefix):
                partition = self._places.of(number, key[4:].decode()).partition
                if partition is None:
                    seek = key + b"\x00"
                    continue
                partitions.append(partition)
                seek = prefix + partition_prefix(partition)[:-1].encode() + b"0"  # "0" follows "/"
        return sorted(partitions)

    def entries(self, tier_partition: int | None = None) -> Iterator[tuple[int, Entry]]:
        numbers = range(self.identity.partitions) if tier_partition is None else (tier_partition,)
        for number in numbers:
            for key, value in self._db.scan("live", _PARTITION.pack(number)):
                yield number, Entry(key[4:].decode(), Position(_POSITION.unpack_from(value)[0]), value[8:])

    def close(self) -> None:
        self._db.close()


def _pack_second(second: SecondValue) -> bytes:
    head = _SECOND.pack(second.first_position, second.second_position, len(second.first))
    return head + second.first + second.second


def _unpack_second(key: str, stored: bytes) -> SecondValue:
    first_position, second_position, length = _SECOND.unpack_from(stored)
    first = stored[_SECOND.size : _SECOND.size + length]
    return SecondValue(key, Position(first_position), Position(second_position), first, stored[_SECOND.size + length :])

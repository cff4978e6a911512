"""Names of the objects that agents keep about the tier-state topic: the only file that creates and parses them.

    _tierstate/<tier-state topic id>/<tier partition>/checkpoint/<position>
    _tierstate/<tier-state topic id>/<tier partition>/archive/<first>-<last>
    _tierstate/<tier-state topic id>/<tier partition>/archive-base/<position>
    _tierstate/<tier-state topic id>/<tier partition>/history-<number>/…    the same names in a later history
    _tierstate/<tier-state topic id>/history/<number>                      begun by a person (`archives.py`)
    _tierstate/<tier-state topic id>/parted/<number>                       topic and archive of a history have diverged
    _tierstate/agents/<cluster id>/<broker id>/<process id>                heartbeat of a process (`heartbeat.py`)
    _tierstate/agents/<cluster id>/kept/<number>                           which cluster keeps the prefix (`Keeper`)
    _tierstate/lock                                                        lock of exclusive work (`prefix_lock.py`)
    _tierstate/move/…                                                      a move to another store (`move.py`)
    _tierstate/stores/<hash of a URL>, _tierstate/part-of                  stores of topics (`topic_stores.py`)

Positions have 20 digits, so that a LIST returns them in ascending order. Keys are relative to the store's URL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Position
from ..storage.object_store import ObjectReader

ROOT = "_tierstate/"
BACKUPS, RESTORES, DRILLS = "_tierstate_backup/", "_tierstate_restore/", "_tierstate_drill/"
"""Where backups, the steps of restores, and drill reports are: not in ROOT, whose listings they would slow down."""
OF_NO_SEGMENT = (ROOT, BACKUPS, RESTORES, DRILLS)
"""The beginnings of all keys of tierstate that belong to no segment."""
LOCK = f"{ROOT}lock"
MOVE = f"{ROOT}move/"
AGENTS = f"{ROOT}agents/"
STORES, PART_OF = f"{ROOT}stores/", f"{ROOT}part-of"
_POSITION = re.compile("[0-9]{20}")
_PIECE = re.compile("([0-9]{20})-([0-9]{20})")
_PLACE = re.compile("_tierstate/([A-Za-z0-9_-]{22})/(0|[1-9][0-9]{0,9})/(?:history-([1-9][0-9]{0,8})/)?")


@dataclass(frozen=True, slots=True, order=True)
class PieceName:
    """The name of a piece of the archive with the positions ``first`` to ``last`` (inclusive)."""

    first: Position
    last: Position
    key: str


@dataclass(frozen=True, slots=True, order=True)
class PositionName:
    """The name of a checkpoint or of the base of a cut archive: the live set of the records below ``position``."""

    position: Position
    key: str


@dataclass(frozen=True, slots=True, order=True)
class TierPlace:
    """One partition of one history of a tier-state topic. Raises InvalidRequest if ``topic_id`` is not a topic id."""

    topic_id: str
    tier_partition: int
    history: int = 0

    def __post_init__(self) -> None:
        TopicId(self.topic_id)

    @property
    def prefix(self) -> str:
        return f"{ROOT}{self.topic_id}/{self.tier_partition}/" + (f"history-{self.history}/" if self.history else "")

    def checkpoint(self, position: int) -> str:
        return f"{self.prefix}checkpoint/{position:020d}"

    def base(self, position: int) -> str:
        return f"{self.prefix}archive-base/{position:020d}"

    def piece(self, first: int, last: int) -> str:
        return f"{self.prefix}archive/{first:020d}-{last:020d}"

    @property
    def pieces_prefix(self) -> str:
        return f"{self.prefix}archive/"

    def checkpoints(self, store: ObjectReader) -> list[PositionName]:
        """Return the checkpoints, oldest first."""
        return self._positions(store, f"{self.prefix}checkpoint/")

    def bases(self, store: ObjectReader) -> list[PositionName]:
        """Return the archive's bases, oldest first."""
        return self._positions(store, f"{self.prefix}archive-base/")

    def _positions(self, store: ObjectReader, prefix: str) -> list[PositionName]:
        names = ((each.key, _POSITION.fullmatch(each.key, len(prefix))) for each in store.list(prefix))
        return [PositionName(Position(int(text[0])), key) for key, text in names if text and int(text[0]) < 2**63]

    def pieces(self, store: ObjectReader, since: int = 0) -> Iterator[PieceName]:
        """Yield the pieces that begin at ``since`` or later, in order of their first position, then of their last."""
        after = f"{self.pieces_prefix}{since:020d}" if since else None
        for each in store.list(self.pieces_prefix, after):
            name = self.parse_piece(each.key)
            if name is not None:
                yield name

    def parse_piece(self, key: str) -> PieceName | None:
        """Return the name in a key, or None if the key is not that of a piece of this partition's archive."""
        bounds = _PIECE.fullmatch(key, len(self.pieces_prefix)) if key.startswith(self.pieces_prefix) else None
        if bounds is None or not int(bounds[1]) <= int(bounds[2]) < 2**63:
            return None
        return PieceName(Position(int(bounds[1])), Position(int(bounds[2])), key)


_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


def history_key(topic_id: str, number: int) -> str:
    """Return the key of the object by which a person began a history."""
    return f"{ROOT}{TopicId(topic_id)}/history/{number}"


def parted_key(topic_id: str, number: int) -> str:
    """Return the key of the object by which an agent records that the topic has diverged from a history."""
    return f"{ROOT}{TopicId(topic_id)}/parted/{number}"


_HEARTBEAT = re.compile("(?:-1|0|[1-9][0-9]{0,9})/[A-Za-z0-9_-]{22}")
_KEPT = re.compile("kept/([0-9]{6})")


def agents_prefix(cluster_id: str) -> str:
    """Return the prefix of all heartbeats and decisions of a cluster; a clone of the cluster has the same one."""
    return f"{ROOT}agents/{cluster_id}/"


def heartbeat_key(cluster_id: str, broker_id: int, process: str) -> str:
    """Return the key of one process's heartbeat. ``broker_id`` is -1 for a command."""
    return f"{agents_prefix(cluster_id)}{broker_id}/{process}"


def is_heartbeat(cluster_id: str, key: str) -> bool:
    return _HEARTBEAT.fullmatch(key, len(agents_prefix(cluster_id))) is not None


def kept_key(cluster_id: str, number: int) -> str:
    """Return the key of the decision by which a person gave the prefix to one of several clusters."""
    return f"{agents_prefix(cluster_id)}kept/{number:06d}"


def kept_number(cluster_id: str, key: str) -> int | None:
    """Return the number of a decision; None for the key of anything else."""
    number = _KEPT.fullmatch(key, len(agents_prefix(cluster_id)))
    return int(number[1]) if number else None


def numbers_under(store: ObjectReader, key: str) -> list[int]:
    """Return the numbers of the objects in the folder of this key, ascending."""
    prefix = key[: key.rindex("/") + 1]
    names = (each.key[len(prefix) :] for each in store.list(prefix))
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def place_of_key(key: str) -> TierPlace | None:
    """Return the place to which an object of an archive or a checkpoint belongs, or None for any other object."""
    parts = _PLACE.match(key)
    with suppress(InvalidRequest):
        return TierPlace(parts[1], int(parts[2]), int(parts[3] or 0)) if parts else None
    return None


def kept_topics(store: ObjectReader) -> list[str]:
    """Return the ids of tier-state topics with an archive or a checkpoint. One LIST for each, and per other object."""
    return [place.topic_id for place in _places(store, lambda place: f"{ROOT}{place.topic_id}/")]


def first_places(store: ObjectReader) -> list[TierPlace]:
    """Return the tier-state partitions with an archive or a checkpoint, of all topics, as places of history 0.
    One LIST request for each of them, and for each object outside of them.
    """
    return sorted(replace(place, history=0) for place in _places(store, lambda place: replace(place, history=0).prefix))


def _places(store: ObjectReader, folder: Callable[[TierPlace], str]) -> Iterator[TierPlace]:
    """Yield the first place in each folder that has one."""
    after: str | None = None
    while (entry := next(iter(store.list(ROOT, after)), None)) is not None:
        after, place = entry.key, place_of_key(entry.key)
        if place is not None:
            yield place
            after = folder(place)[:-1] + "0"  # "0" follows "/": past all objects in the folder

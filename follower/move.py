"""A move of all objects to another store: one document, under four keys, each put once (0108).

    at the source    _tierstate/move/begun      which target; a second move is refused
                     _tierstate/move/moved      no process changes the source from now on
    at the target    _tierstate/move/arriving   no process changes the target yet, except the move
                     _tierstate/move/arrived    the target has every object: the move is complete
                     _tierstate/move/checked/<time>   objects that are older, by the source's clock, are proven

The order is arriving, begun, moved, arrived. Nothing replaces or deletes these objects, but `--cancel` deletes the two
of the source while nothing has arrived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..state.errors import InvalidRequest, ObjectExists, Unavailable
from ..state.offsets import Position, TimestampMs
from ..storage.object_store import ObjectReader, ObjectReads, ObjectWriter
from .envelope import read_sealed, seal
from .object_names import MOVE

KIND = "move"
BEGUN, MOVED, ARRIVING, ARRIVED = (f"{MOVE}{name}" for name in ("begun", "moved", "arriving", "arrived"))
_CHECKED = re.compile(f"{MOVE}checked/([0-9]{{20}})")


class StoreMoved(Unavailable):
    """The objects were moved to another store: open the store again."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move from the store with the URL ``source`` to that with the URL ``target``.

    ``endpoint``, ``region``: of the target, empty if not set. ``process``, ``topic_id``, ``position`` and ``sha256``:
    a signature in the tier-state topic of the cluster that moves (`heartbeat.sign`).
    """

    process: str
    source: str
    target: str
    endpoint: str
    region: str
    topic_id: str
    position: Position
    sha256: str
    by: str
    at: TimestampMs


def read_move(store: ObjectReads, key: str) -> Move | None:
    """Return the move under one of the four keys, or None. Raises CorruptData and InvalidRequest."""
    return read_sealed(store, key, KIND, Move)


def write_move(store: ObjectWriter, reads: ObjectReads, key: str, move: Move) -> None:
    """Put the move under one of the four keys. Idempotent. Raises InvalidRequest if another move is there."""
    try:
        store.put_if_absent(key, seal(KIND, move))
    except ObjectExists as error:
        standing = read_move(reads, key)
        if standing != move:
            raise InvalidRequest("another move has this store", object_key=key, move=standing) from error


def standstill(store: ObjectReads, *, new: bool) -> Move | None:
    """Return the move for which no process may change this store now, or None.

    ``new``: also look whether objects still arrive here. That is asked before the first change only, because a store
    that agents use is never the target of a move.
    """
    move = read_move(store, MOVED)
    if move is None and new and (arriving := read_move(store, ARRIVING)) is not None:
        return arriving if read_move(store, ARRIVED) is None else None
    return move


def checked_until(target: ObjectReader) -> TimestampMs:
    """Return the time, by the source's clock, before which a complete pass proved each object. 0 if none was."""
    times = (_CHECKED.fullmatch(each.key) for each in target.list(f"{MOVE}checked/"))
    return TimestampMs(max((int(time[1]) for time in times if time), default=0))


def write_checked(target: ObjectWriter, time: TimestampMs) -> None:
    try:
        target.put_if_absent(f"{MOVE}checked/{time:020d}", b"")
    except ObjectExists:
        pass  # an earlier run has this time, too

"""The stores of topics: each belongs to one default store, and no setting may forget one that has segments.

    in the default store   _tierstate/stores/<hash of the URL>   a store of topics, with the id of the pair
    in that store          _tierstate/part-of                    the id of the pair

Two clusters with one store of topics would sweep each other's segments. An agent that no longer knows a store would
leave the segments there behind, and a recovery would lose them.
"""

from __future__ import annotations

from hashlib import sha256

from ...follower.envelope import seal
from ...follower.object_names import PART_OF, ROOT, STORES
from ...follower.paired_stores import KIND, Pair, read_pair, unnamed_pairs
from ...runtime.id_source import RandomIds
from ...state.errors import InvalidRequest, ObjectExists
from ...state.ids import FactId
from ...storage.object_store import ObjectStore
from ...storage.probe import PROBES
from ..opening.connection import Connection


def pair_stores(connection: Connection) -> None:
    """Pair each store of topics with the default store, at its first use. Call it before the first change.

    Raises InvalidRequest for a store that belongs to another default store, and for a paired store that no rule names.
    Raises the errors of stores that are used for the first time.
    """
    default, *others = connection.stores
    for store in others:
        key = f"{STORES}{sha256(store.description.encode()).hexdigest()[:32]}"
        pair = read_pair(default, key)
        if pair is None and _is_used(store):
            pair = read_pair(default, key)  # another agent may have begun since the first look
            if pair is None:
                raise _taken(store)
        pair = pair or _put(default, key, Pair(store.description, FactId.of(RandomIds().uuid())))
        if (read_pair(store, PART_OF) or _put(store, PART_OF, pair)) != pair:
            raise _taken(store)
    require_every_store(connection)


def require_every_store(connection: Connection) -> None:
    """Raise InvalidRequest if a store of topics is paired with the default store, and no rule names it."""
    default, *others = connection.stores
    for key, pair in unnamed_pairs(default, {store.description for store in others}):
        raise InvalidRequest(
            "segments may be in a store that no setting names: name it last in store.topics, or delete its object "
            "after you moved them",
            store=pair.url,
            object_key=key,
        )


def _is_used(store: ObjectStore) -> bool:
    """Return whether agents write to this store, as to one of all topics or of some."""
    return any(not info.key.startswith(PROBES) for info in store.list(ROOT))


def _taken(store: ObjectStore) -> InvalidRequest:
    return InvalidRequest(
        "another tierstate uses this store of topics: name another bucket or prefix, or delete this object if that "
        "tierstate is gone",
        store=store.description,
        object_key=PART_OF,
    )


def _put(store: ObjectStore, key: str, pair: Pair) -> Pair:
    """Return the pair that is there afterwards: agents start at the same time."""
    try:
        store.put_if_absent(key, seal(KIND, pair))
    except ObjectExists:
        return read_pair(store, key) or pair
    return pair

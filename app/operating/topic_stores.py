"""No process that changes the stores may lack one of them (`follower/paired_stores.py` draws the pairs).

An agent that does not know a store would leave the segments there behind, and a recovery would lose them.
"""

from __future__ import annotations

from ...follower.paired_stores import unnamed_pairs
from ...state.errors import InvalidRequest
from ..opening.connection import Connection


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

"""Whether facts are missing of a partition that none speaks of: what is said of it."""

from __future__ import annotations

from ..follower.follower import Follower
from ..state.errors import TierstateError, TierStateLost
from ..state.partition_view import PartitionView
from ..storage.segment.known import check_known
from .connection import Connection, view_now


def why_lost(connection: Connection, follower: Follower, topic: str, view: PartitionView) -> str | None:
    """None where all is well, and where there is no store to ask or it does not answer."""
    if view.log_starts or not connection.settings.store.url:
        return None
    try:
        store, names = connection.store, connection.names
        try:
            check_known(view, topic, store, names)
        except TierStateLost:  # a view from before the bucket was asked may only be old
            check_known(view_now(follower, view.partition), topic, store, names)
    except TierStateLost as lost:
        return str(lost)
    except TierstateError:
        return None
    return None

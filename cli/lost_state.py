"""Whether facts are missing of a partition that none speaks of: what a command says of it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from .context import Context
from .opened import object_names, open_store_of, view_now

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..follower.follower import Follower
    from ..state.partition_view import PartitionView


def why_lost(
    context: Context, broker: BrokerControl, follower: Follower, topic: str, view: PartitionView
) -> str | None:
    """None where all is well, and where there is no store to ask or it does not answer."""
    from ..state.errors import TierstateError, TierStateLost
    from ..storage.segment.known import check_known

    settings = context.settings
    if view.log_starts or not settings.store.url:
        return None
    try:
        names = object_names(settings, broker.cluster().cluster_id)
        with closing(open_store_of(settings)) as store:
            try:
                check_known(view, topic, store, names)
            except TierStateLost:  # a view from before the bucket was asked may only be old
                check_known(view_now(follower, view.partition), topic, store, names)
    except TierStateLost as lost:
        return str(lost)
    except TierstateError:
        return None
    return None

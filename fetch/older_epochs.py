"""The end of an epoch that the broker may no longer know, by the lineage of both tiers.

A trim removes epochs from the broker's checkpoint. For such an epoch, the broker answers that the epoch ended where the
broker's log begins. A consumer whose log was truncated before that would not notice it.
"""

from __future__ import annotations

from bisect import bisect_right

from ..state.epochs import LeaderEpoch
from ..state.lineage import EpochEnd
from ..state.routing import unconfirmed
from .logical import LogicalPartition


def remote_epoch_end(log: LogicalPartition, epoch: LeaderEpoch) -> EpochEnd | None:
    """Return the newest epoch up to ``epoch`` and its end, by Kafka's rule (`LeaderEpochFileCache.endOffsetFor`), if
    the end lies at or below the local start. None: the broker knows the epoch itself.

    Raises ViewBehind, BrokerUnavailable, LineageUnconfirmed.
    """
    bounds = log.local_bounds()  # read after the broker's own answer, so a trim in between is noticed
    view = log.recent_view()
    entries = view.lineage.entries
    following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
    if following == len(entries) or entries[following].start_offset > bounds.local_start:
        return None
    end = entries[following].start_offset
    sure = log.sure_end(view, bounds)
    if end > sure:
        raise unconfirmed(view, bounds, sure, offset=end)
    return EpochEnd(entries[following - 1].epoch if following else epoch, end)

"""Up to where a partition's leader has the log that the view describes, where its own agent has not said so yet.

Asked by one or two requests, once for each leader epoch and lineage: below its end a leader's log does not change.
"""

from __future__ import annotations

import threading

from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import Fenced
from ..state.ids import TopicIdPartition
from ..state.lineage import EpochEnd, confirmed_end
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds, unconfirmed
from .local import LocalTier


class Confirmation:
    """Of one partition. Thread-safe."""

    def __init__(self, topic: str, partition: TopicIdPartition, local: LocalTier) -> None:
        self._topic, self._partition, self._local = topic, partition, local
        self._lock = threading.Lock()
        self._known: tuple[LeaderEpoch | None, Lineage, Offset] | None = None

    def known(self, view: PartitionView, bounds: LocalBounds) -> Offset | None:
        """What this leader confirmed of the view's lineage; None when it was not asked."""
        with self._lock:
            known = self._known
        if known is None or known[0] != bounds.leader_epoch or known[1] != view.lineage:
            return None
        return known[2]

    def of(self, view: PartitionView, bounds: LocalBounds) -> Offset:
        """As `known`, asked now if need be. Raises LineageUnconfirmed when a newer leader was elected meanwhile.

        A leader that does not tell its epoch confirms nothing: its answers could be two leaders'.
        """
        known = self.known(view, bounds)
        if known is not None:
            return known
        epoch, found = bounds.leader_epoch, Offset(0)
        if epoch is not None:
            try:
                found = confirmed_end(view.lineage, lambda asked: self._end_of(asked, epoch))
            except Fenced as error:
                raise unconfirmed(view, bounds, None) from error
        with self._lock:
            self._known = epoch, view.lineage, found
        return found

    def _end_of(self, asked: LeaderEpoch, leader_epoch: LeaderEpoch) -> EpochEnd | None:
        return self._local.end_of_epoch(self._topic, self._partition, asked, leader_epoch)

"""The end of the log that a leader shares with the view. The leader is asked while its agent has written no fact yet.

One or two requests are enough for each leader epoch and lineage, because a leader's log does not change below its end.
"""

from __future__ import annotations

import threading
from functools import partial

from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import Fenced
from ..state.ids import TopicIdPartition
from ..state.lineage import confirmed_end
from ..state.offsets import Offset
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds, unconfirmed
from .local import LocalTier


class Confirmation:
    """The answers of one partition's leaders. Thread-safe."""

    def __init__(self, topic: str, partition: TopicIdPartition, local: LocalTier) -> None:
        self._topic, self._partition, self._local = topic, partition, local
        self._lock = threading.Lock()
        self._latest_answer: tuple[LeaderEpoch | None, Lineage, Offset] | None = None

    def known(self, view: PartitionView, bounds: LocalBounds) -> Offset | None:
        """Return the end that this leader confirmed for the view's lineage. None if it was not asked."""
        with self._lock:
            confirmed = self._latest_answer
        if confirmed is None or confirmed[0] != bounds.leader_epoch or confirmed[1] != view.lineage:
            return None
        return confirmed[2]

    def of(self, view: PartitionView, bounds: LocalBounds) -> Offset:
        """Return the `known` end, or ask the leader. Raises LineageUnconfirmed if a newer leader was elected.

        Returns 0 for a leader that does not report its epoch, because its answers could be those of two leaders.
        """
        confirmed = self.known(view, bounds)
        if confirmed is not None:
            return confirmed
        epoch, end = bounds.leader_epoch, Offset(0)
        if epoch is not None:
            try:
                ask = partial(self._local.end_of_epoch, self._topic, self._partition, leader_epoch=epoch)
                end = confirmed_end(view.lineage, ask)
            except Fenced as error:
                raise unconfirmed(view, bounds, None) from error
        with self._lock:
            self._latest_answer = epoch, view.lineage, end
        return end

"""Whether a partition may be read by what the broker has alone, because nothing was ever tiered of it."""

from __future__ import annotations

from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..storage.object_store import ObjectReader
from ..storage.segment.known import check_known


class KnownPartitions:
    """Of all partitions that a process reads. Thread-safe. ``names``: of the objects of this cluster."""

    def __init__(self, store: ObjectReader, names: ObjectKeys) -> None:
        self._store, self._names = store, names
        self._new = set[TopicIdPartition]()

    def check(self, view: PartitionView, topic: str, bounds: LocalBounds) -> None:
        """Where no fact says the log's start, the broker's stands for it: not while the bucket knows better*.

        A bucket without the partition is asked once. Raises TierStateLost, which counts only with a view that was
        made fresh after it, and what the store does.
        """
        if not view.log_starts and bounds.local_start > 0 and view.partition not in self._new:
            check_known(view, topic, self._store, self._names)
            self._new.add(view.partition)

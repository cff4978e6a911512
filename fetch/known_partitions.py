"""Whether a partition may be read from the broker alone, because no part of it was ever tiered."""

from __future__ import annotations

from ..state.ids import TopicIdPartition
from ..state.object_keys import ObjectKeys
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..storage.object_store import ObjectReader
from ..storage.segment.known import check_known


class KnownPartitions:
    """The check for all partitions that a process reads. Thread-safe. ``names``: names of this cluster's objects."""

    def __init__(self, store: ObjectReader, names: ObjectKeys) -> None:
        self._store, self._names = store, names
        self._new = set[TopicIdPartition]()

    def check(self, view: PartitionView, topic: str, bounds: LocalBounds) -> None:
        """Check the bucket if the view has no log start fact. Only a bucket without the partition proves that nothing
        was copied; it is asked once. Raises TierStateLost if the bucket has the partition, and the store's errors.
        TierStateLost is final only if a view that is read fresh afterwards also raises it.
        """
        if not view.log_starts and bounds.local_start > 0 and view.partition not in self._new:
            check_known(view, topic, self._store, self._names)
            self._new.add(view.partition)

"""The topic, mapping and history that a view, a checkpoint or an archive belongs to, and where its objects are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from ..storage.object_store import ObjectReader
from .object_names import TierPlace

FORMAT = 3
BEFORE_ANCHORS = 2
"""An earlier format, without anchors. Its views can still be opened."""


@dataclass(frozen=True, slots=True)
class ViewIdentity:
    """The identity of a view. A folder with another identity is never opened as this one.

    ``history``: number of the topic's history (`archives.py`), which selects the archive and the checkpoints. A view
    always shows the topic's current records, so the view's folder does not store the history.
    """

    cluster_id: str
    topic_id: str
    partitions: int
    format: int = FORMAT
    history: int = 0

    def place(self, tier_partition: int) -> TierPlace:
        return TierPlace(self.topic_id, tier_partition, self.history)

    @property
    def record(self) -> dict[str, object]:
        """The identity as a view's folder stores it."""
        return {name: value for name, value in asdict(self).items() if name != "history"}


Objects = TypeVar("Objects", bound=ObjectReader, covariant=True)
"""`ObjectReader` for code that only reads, `ObjectStore` for code that also puts and deletes."""


@dataclass(frozen=True, slots=True)
class Shelf(Generic[Objects]):
    """``identity`` selects the topic and the history. ``objects`` is the object store."""

    objects: Objects
    identity: ViewIdentity
    tier_partition: int

    @property
    def place(self) -> TierPlace:
        return self.identity.place(self.tier_partition)

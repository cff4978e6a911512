"""The archive and the checkpoints of one tier-state partition, in one history, in an object store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..storage.object_store import ObjectReader
from .object_names import TierPlace
from .view_identity import ViewIdentity

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
        """The names of the objects of the archive and the checkpoints."""
        return self.identity.place(self.tier_partition)

"""The part of a store for one tier-state partition in one history: its archive and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..storage.object_store import ObjectReader
from .object_names import TierPlace
from .view_identity import ViewIdentity

Objects = TypeVar("Objects", bound=ObjectReader, covariant=True)
"""A reader for code that only reads, a whole store for code that also puts and deletes."""


@dataclass(frozen=True, slots=True)
class Shelf(Generic[Objects]):
    """``identity``: of the topic and history whose archive and checkpoints these are."""

    objects: Objects
    identity: ViewIdentity
    tier_partition: int

    @property
    def place(self) -> TierPlace:
        """The names of the objects there."""
        return self.identity.place(self.tier_partition)

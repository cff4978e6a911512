"""Storage of a follower's views. Each rebuild creates a new view (a generation); the last installed one is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..schemas.codec import decode_fact
from ..state.view import MemoryView, ViewStore
from .resume import ViewFolder
from .rocksdb_view import RocksView, ViewIdentity


class Generations(Protocol):
    """Creates views and keeps the installed view. `open.py` selects one of the two implementations below."""

    def fresh(self) -> ViewStore:
        """Return a new, empty view."""
        ...

    def install(self, store: ViewStore) -> None:
        """Make this view the one that a restart resumes."""
        ...

    def clean(self) -> None:
        """Delete all views but the installed one. The previous view must be closed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class OnDisk:
    """Generations in a folder on disk."""

    folder: ViewFolder
    identity: ViewIdentity

    def fresh(self) -> ViewStore:
        return self.folder.fresh(self.identity)

    def install(self, store: ViewStore) -> None:
        assert isinstance(store, RocksView)
        self.folder.install(store)

    def clean(self) -> None:
        self.folder.clean()

    def close(self) -> None:
        self.folder.close()


@dataclass(frozen=True)
class InMemory:
    """Generations in memory, which are never resumed."""

    partitions: int

    def fresh(self) -> ViewStore:
        return MemoryView(decode_fact, self.partitions)

    def install(self, store: ViewStore) -> None:
        """Do nothing: a restart resumes no view."""

    def clean(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Do nothing: there is no lock."""

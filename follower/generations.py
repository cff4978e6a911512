"""The places where a follower's views are made and kept, one after another: the newest whole one counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..schemas.codec import decode_fact
from ..state.view import MemoryView, ViewStore
from .resume import ViewFolder
from .rocksdb_view import RocksView, ViewIdentity


class Generations(Protocol):
    """A place where views are made and kept; `open.py` selects one of the two below."""

    def fresh(self) -> ViewStore:
        """Return a new, empty view."""
        ...

    def install(self, store: ViewStore) -> None:
        """Make this view the one that a restart resumes."""
        ...

    def clean(self) -> None:
        """Remove the previous view, which is closed."""
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

"""Where the views of a follower are made and kept: one after another, and the newest whole one counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..schemas.codec import decode_fact
from ..state.view import MemoryView, ViewStore
from .resume import ViewFolder
from .rocksdb_view import RocksView, ViewIdentity


class Generations(Protocol):
    """Where views are made and kept: `open.py` has the two."""

    def fresh(self) -> ViewStore:
        """An empty one."""
        ...

    def install(self, store: ViewStore) -> None:
        """From now on a restart resumes this one."""
        ...

    def clean(self) -> None:
        """The one before is closed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class OnDisk:
    """Generations in a folder."""

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
    """Generations that nobody will resume."""

    partitions: int

    def fresh(self) -> ViewStore:
        return MemoryView(decode_fact, self.partitions)

    def install(self, store: ViewStore) -> None:
        """Nothing to name."""

    def clean(self) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to release."""

"""Storage of a follower's views. Each rebuild creates a new view (a generation); the last installed one is used.

On disk, each ``<state_dir>/view/<generation>/`` has one RocksDB database. The file ``CURRENT`` names the generation in
use and is replaced by a rename. Any other generation is a previous one or an unfinished rebuild, and is removed. The
process that uses the folder holds ``LOCK``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from ..schemas.codec import decode_fact
from ..state.errors import CorruptData, DiskFull, InvalidRequest, Unavailable
from ..state.view import MemoryView, ViewStore
from .as_of import MAX_AGE_MS
from .rocksdb_view import RocksView, ViewIdentity


class Generations(Protocol):
    """Creates views and keeps the installed view. `open.py` selects one of the two implementations below."""

    def fresh(self) -> ViewStore:
        """Return a new, empty view."""

    def install(self, store: ViewStore) -> None:
        """Make this view the one that a restart resumes."""

    def clean(self) -> None:
        """Delete all views but the installed one. The previous view must be closed."""

    def close(self) -> None: ...


class ViewFolder:
    """The generations of one view on disk."""

    def __init__(self, path: Path, identity: ViewIdentity) -> None:
        self.path, self._identity = path, identity
        self.refused = "no view on disk"
        """Why the last `resume` returned None."""
        self._lock: IO[str] | None = None
        path.mkdir(parents=True, exist_ok=True)

    def lock(self) -> None:
        """Reserve the folder for this process. Raises Unavailable if another process has reserved it."""
        file = (self.path / "LOCK").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise Unavailable(
                "another process has this view open: give each a state_dir of its own", path=self.path
            ) from error
        self._lock = file

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def current(self) -> Path | None:
        pointer = self.path / "CURRENT"
        name = pointer.read_text(errors="replace").strip() if pointer.exists() else ""
        return self.path / name if name.isdigit() and (self.path / name).is_dir() else None

    def resume(self, now_ms: int) -> RocksView | None:
        """Return the current view. Returns None and sets `refused` if it is missing, damaged, too old or foreign.

        Raises Unavailable if another process has it open. Also raises DiskFull.
        """
        generation = self.current()
        if generation is None:
            self.refused = "no view on disk"
            return None
        try:
            view = RocksView(generation, self._identity, decode_fact, create=False)
        except (InvalidRequest, CorruptData) as error:
            self.refused = str(error)
            return None
        ages = [now_ms - as_of for number in range(self._identity.partitions) if (as_of := view.as_of(number))]
        if max(ages, default=0) > MAX_AGE_MS:
            view.close()
            self.refused = "the view was last at the end too long ago"
            return None
        return view

    def fresh(self) -> RocksView:
        """Delete unused generations and return an empty view in a new one, which is unused until `install`."""
        self.clean()
        numbers = [int(entry.name) for entry in self.path.iterdir() if entry.name.isdigit()]
        return RocksView(self.path / f"{max(numbers, default=0) + 1:06d}", self._identity, decode_fact)

    def install(self, store: ViewStore) -> None:
        """Make this view the current one, also after a restart. Raises DiskFull and Unavailable."""
        assert isinstance(store, RocksView)
        pointer = self.path / "CURRENT.new"
        try:
            with pointer.open("w") as file:
                file.write(store.path.name)
                file.flush()
                os.fsync(file.fileno())
            pointer.rename(self.path / "CURRENT")
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else Unavailable
            raise kind("view cannot be named", path=pointer, reason=error.strerror) from error

    def clean(self) -> None:
        current = self.current()
        for entry in self.path.iterdir():
            if entry.name.isdigit() and entry != current:
                shutil.rmtree(entry, ignore_errors=True)


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

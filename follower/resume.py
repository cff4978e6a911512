"""Resume a view where it stopped, or rebuild it into a fresh directory that replaces the old one atomically.

``<state_dir>/view/<generation>/`` holds one RocksDB each; the file ``CURRENT`` names the generation in use and is
replaced by rename. A generation that ``CURRENT`` does not name is a rebuild that never finished, and is removed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..state.errors import InvalidRequest
from ..state.view import Decode
from .rocksdb_view import RocksView, ViewIdentity

MAX_AGE_MS = 15 * 24 * 3600 * 1000
"""Half of the 30 days of ``delete.retention.ms`` that the tier-state topic must have at least."""


class ViewFolder:
    """The generations of one view on disk."""

    def __init__(self, path: Path, decode: Decode) -> None:
        self.path, self._decode = path, decode
        path.mkdir(parents=True, exist_ok=True)

    def current(self) -> Path | None:
        """The generation in use; None when there is none."""
        name = self.path / "CURRENT"
        generation = self.path / name.read_text().strip() if name.exists() else None
        return generation if generation and generation.is_dir() else None

    def resume(self, identity: ViewIdentity, now_ms: int) -> RocksView | None:
        """The current generation; None when there is none, or it is the view of another topic, or it is too old.

        Too old*: half of ``delete.retention.ms`` after it last had applied a then-current end, tombstones it has not
        seen may be gone from the topic, and what they erased would stay in the view for ever.
        """
        generation = self.current()
        if generation is None:
            return None
        try:
            view = RocksView(generation, identity, self._decode)
        except InvalidRequest:
            return None
        ages = [now_ms - as_of for number in range(identity.partitions) if (as_of := view.as_of(number))]
        if max(ages, default=0) > MAX_AGE_MS:
            view.close()
            return None
        return view

    def fresh(self, identity: ViewIdentity) -> RocksView:
        """An empty generation; it counts only once `install` named it."""
        numbers = [int(entry.name) for entry in self.path.iterdir() if entry.name.isdigit()]
        return RocksView(self.path / f"{max(numbers, default=0) + 1:06d}", identity, self._decode)

    def install(self, view: RocksView) -> None:
        """From now on this generation is the view; all others are removed."""
        pointer = self.path / "CURRENT.new"
        with pointer.open("w") as file:
            file.write(view.path.name)
            file.flush()
            os.fsync(file.fileno())
        pointer.rename(self.path / "CURRENT")
        for entry in self.path.iterdir():
            if entry.name.isdigit() and entry.name != view.path.name:
                shutil.rmtree(entry)

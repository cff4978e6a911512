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

    def resume(self, identity: ViewIdentity) -> RocksView | None:
        """The current generation, or None when there is none or it is the view of another topic."""
        generation = self.current()
        if generation is None:
            return None
        try:
            return RocksView(generation, identity, self._decode)
        except InvalidRequest:
            return None

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

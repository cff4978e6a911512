"""Identities that a test can foresee."""

from __future__ import annotations

import threading


class CountingIds:
    """A source that counts 1, 2, 3, …. Sources with different seeds never return the same id."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0
        self._lock = threading.Lock()

    def uuid(self) -> bytes:
        with self._lock:
            self._count += 1
            return self._seed.to_bytes(8, "big") + self._count.to_bytes(8, "big")

    def jitter(self) -> float:
        return 0.5

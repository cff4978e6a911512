"""A random generator for worlds in which all is well."""

from __future__ import annotations

from random import Random
from typing import Any


class Steady(Random):
    """A random generator with which nothing misbehaves."""

    def random(self) -> float:
        return 0.39

    def randint(self, a: int, b: int) -> int:
        return b

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[0]) if len(bounds) > 1 else 0

    def choice(self, seq: Any) -> Any:
        return seq[0]

"""The stores of topics that agents paired with a default store (`app/operating/topic_stores.py` draws it).

A process whose settings lack a rule of ``store.topics`` misses objects. The pairs tell it which rule it lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..storage.object_store import ObjectReader
from .envelope import read_sealed
from .object_names import STORES

KIND = "pair"


@dataclass(frozen=True, slots=True)
class Pair:
    """A default store and the store of topics with this URL."""

    url: str
    id: str


def read_pair(store: ObjectReader, key: str) -> Pair | None:
    return read_sealed(store, key, KIND, Pair)


def unnamed_pairs(default: ObjectReader, named: Collection[str]) -> Iterator[tuple[str, Pair]]:
    """Yield the key and the pair of each store of topics that is not in ``named``, by URLs of stores."""
    for info in default.list(STORES):
        pair = read_pair(default, info.key)
        if pair is not None and pair.url not in named:
            yield info.key, pair

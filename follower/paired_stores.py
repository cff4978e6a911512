"""The stores of topics: each belongs to one default store, and nothing in it changes before both know that.

    in the default store   _tierstate/stores/<hash of the URL>   a store of topics, with the id of the pair
    in that store          _tierstate/part-of                    the id of the pair

Two clusters with one store of topics would sweep each other's segments. A process whose settings lack a rule of
``store.topics`` misses objects: the pairs show which rule it lacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.watchdog import inherited
from ..state.errors import AccessDenied, InvalidRequest, ObjectExists, ObjectNotFound, StorageUnavailable
from ..state.ids import FactId
from ..storage.object_store import ObjectReader, ObjectStore
from ..storage.probe import NEVER_THERE, PROBES, TIMEOUT_S, StoreWatch
from .envelope import read_sealed, seal
from .object_names import PART_OF, ROOT, STORES

KIND = "pair"
_CHANGES = ("put_if_absent", "put_stream", "replace_if_same", "delete", "delete_many", "abort_upload")


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


def pair_key(store: ObjectStore) -> str:
    """Return the key, in the default store, of the pair with this store of topics."""
    return f"{STORES}{sha256(store.description.encode()).hexdigest()[:32]}"


class PairedStore:
    """The store of topics ``bare``, which forwards calls by name. Its first change is preceded by `pair`. Thread-safe.

    A thread asks the store whether it answers, from the first call on. Calls fail at once while it does not. Otherwise
    threads would wait for the time limits of this store, and topics of other stores would wait for these threads.
    """

    def __init__(self, default: ObjectStore, bare: ObjectStore, clock: Clock) -> None:
        self.bare, self._default = bare, default
        self.is_paired = False
        """Whether this process has seen that both stores know the pair."""
        self.watch = StoreWatch(bare, clock, self._ask)
        self.use: Callable[[PairedStore], object] = lambda store: None
        """Called by the watch while the store answers."""
        self._looked, self._stop, self._starting = threading.Event(), threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.bare, name)
        return partial(self._call, name, attribute) if callable(attribute) else attribute

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.start()
        if self.watch.trouble is None:
            self._looked.wait(TIMEOUT_S)  # for the first look only
        if (away := self.watch.trouble) is not None:
            raise StorageUnavailable(f"the store of this topic is away: {away}")
        if name in _CHANGES and not (arguments and str(arguments[0]).startswith(PROBES)):
            self.pair()
        return method(*arguments, **named)

    def start(self) -> None:
        """Start the thread of the watch. Idempotent."""
        with self._starting:
            if self._thread is None:
                run = inherited(self.watch.run)
                self._thread = threading.Thread(target=run, args=(self._stop,), name="store watch", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self.bare.close()

    def _ask(self) -> None:
        try:
            with suppress(ObjectNotFound, AccessDenied):  # a refusal is an answer
                self.use(self)
                self.bare.head(NEVER_THERE)
        finally:
            self._looked.set()

    def pair(self) -> None:
        """Pair this store with the default store. Idempotent. Raises InvalidRequest if it belongs to another default
        store, and the errors of both stores.
        """
        if self.is_paired:
            return
        standing = self.standing_pair()
        pair = standing or _put(self._default, self._key, Pair(self.bare.description, FactId.of(RandomIds().uuid())))
        if (read_pair(self.bare, PART_OF) or _put(self.bare, PART_OF, pair)) != pair:
            raise self._taken()
        self.is_paired = True

    def standing_pair(self) -> Pair | None:
        """Return the pair if the default store has one. Raises InvalidRequest if this store belongs to another one."""
        pair = read_pair(self._default, self._key)
        if pair is None and any(not info.key.startswith(PROBES) for info in self.bare.list(ROOT)):
            pair = read_pair(self._default, self._key)  # another agent may have begun since the first look
            if pair is None:
                raise self._taken()
        if pair is not None and read_pair(self.bare, PART_OF) not in (None, pair):
            raise self._taken()
        return pair

    @property
    def _key(self) -> str:
        return pair_key(self.bare)

    def _taken(self) -> InvalidRequest:
        return InvalidRequest(
            "another tierstate uses this store of topics: name another bucket or prefix, or delete this object if that "
            "tierstate is gone",
            store=self.bare.description,
            object_key=PART_OF,
        )


def _put(store: ObjectStore, key: str, pair: Pair) -> Pair:
    """Return the pair that is there afterwards: agents start at the same time."""
    try:
        store.put_if_absent(key, seal(KIND, pair))
    except ObjectExists:
        return read_pair(store, key) or pair
    return pair

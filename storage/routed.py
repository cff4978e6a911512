"""One store made of several: the segments of chosen topics have stores of their own, all other objects the default one.

A new object of a segment goes to the store of the first rule that matches its topic. Rules change while a topic has
segments. So an object is read, listed and deleted in the store of every rule that can match its key, and in the default
store. A key of another prefix does not show where its topic begins: there, rules that match any end of the name count.
Objects of a topic may also remain in a store after its rule stopped to match. A read that misses looks in all stores,
and so does the first listing of a folder. A store that has an object of a topic counts from then on for this topic.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from ..state.errors import UNNAMED_STORE, ObjectNotFound, TierstateError
from ..state.object_keys import ObjectKeys, named_before_id
from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import ByteRange
from .object_store import DEFAULT_PART_BYTES, MIB, Data, ObjectStore, SignsReads

A = TypeVar("A")
OF_TIERSTATE = "_tierstate"
"""The beginning of all keys that belong to no segment. They are in the default store, and hidden in the others."""
_BATCH, _KEPT = 1000, 10_000


class RoutedStore(ObjectStore):
    """``rules``: patterns of whole topic names, each with its store. ``names``: the prefix of keys of new segments."""

    def __init__(self, default: ObjectStore, rules: Sequence[tuple[str, ObjectStore]], names: ObjectKeys) -> None:
        self._default, self._names = default, names
        self._rules = [(re.compile(pattern), store) for pattern, store in rules]
        self.stores = tuple(dict.fromkeys((default, *(store for _, store in rules))))
        """All stores, the default one first."""
        self._of_folder = lru_cache(_KEPT)(self._matching)
        self._remaining: dict[str, tuple[ObjectStore, ...]] = {}
        """Stores with objects of topics that no rule sends there any more, by `named_before_id`."""
        self._without: set[tuple[str, ObjectStore]] = set()
        """Folders and stores that were listed and had no objects, although no rule says so."""

    @property
    def description(self) -> str:
        return self._default.description

    def holders(self, key: str) -> tuple[ObjectStore, ...]:
        """Return the stores that may have this object. The first one is for a new object with this key."""
        named = None if key.startswith(OF_TIERSTATE) else named_before_id(key)
        return (self._default,) if named is None else self._of_folder(named) + self._remaining.get(named, ())

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self._read(key, lambda store: store.get(key, limit))

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return self._read(key, lambda store: store.get_range(key, range))

    def head(self, key: str) -> ObjectInfo:
        return self._read(key, lambda store: store.head(key))

    def drop_cached(self, key: str) -> None:
        self._read(key, lambda store: store.drop_cached(key))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        position, looks = range.start, self._looks(key)
        for look, store in enumerate(looks, 1):
            try:
                for piece in store.stream_range(key, ByteRange(position, range.stop), piece_bytes):
                    position += len(piece)
                    yield piece
                return
            except ObjectNotFound:  # it may have moved between two pieces, too
                if look == len(looks):
                    self.head(key)  # raises, unless it is in a store that no rule names for it
                    yield from self.stream_range(key, ByteRange(position, range.stop), piece_bytes)

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        stores = self._stores_below(prefix)
        listings = [self._listed(store, prefix, start_after) for store in stores]
        if named_before_id(prefix) is not None:
            listings += [self._remains(each, prefix, start_after) for each in self.stores if each not in stores]
        last = None
        for info in heapq.merge(*listings, key=lambda info: info.key):
            if info.key != last:  # an object that is being moved is in two stores
                yield info
            last = info.key

    def put_if_absent(self, key: str, data: Data) -> None:
        self.holders(key)[0].put_if_absent(key, data)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        return self.holders(key)[0].put_stream(key, pieces, part_bytes=part_bytes)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        return self._read(key, lambda store: store.replace_if_same(key, data, previous))

    def delete(self, key: str) -> None:
        """Delete the object in the store of new objects last. So a copy that arrives there during a move is deleted, or
        the process that moves it sees that its source is gone.
        """
        for store in reversed(self.holders(key)):
            store.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := tuple(islice(remaining, _BATCH)):
            for first in (False, True):  # the store of new objects last, as in `delete`
                for store in self.stores:
                    places = ((key, self.holders(key)) for key in batch)
                    if own := [key for key, (top, *rest) in places if store in ((top,) if first else rest)]:
                        store.delete_many(own)

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        for store in self._stores_below(prefix):
            number = self.stores.index(store)
            for upload in store.unfinished_uploads(prefix):
                yield replace(upload, upload_id=f"{number}:{upload.upload_id}")

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        number, _, upload_id = upload.upload_id.partition(":")
        self.stores[int(number)].abort_upload(replace(upload, upload_id=upload_id))

    def signed_url(self, key: str, seconds: float) -> str | None:
        """Do the same as `SignsReads`. If the object can be in several stores, one HEAD shows which one has it."""
        stores = self.holders(key)
        signer = stores[0]
        if len(stores) > 1:
            with suppress(ObjectNotFound):
                signer = self._read(key, lambda store: (store, store.head(key))[0])
        return signer.signed_url(key, seconds) if isinstance(signer, SignsReads) else None

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def __getattr__(self, name: str) -> Any:
        """Return ``date`` of the default store, and `NearStore.read_into` if every store has it."""
        if name == "date":
            return getattr(self._default, name)
        if name == "read_into" and all(hasattr(store, name) for store in self.stores):
            return self._read_into
        raise AttributeError(name)

    def _read_into(self, key: str, start: int, target: memoryview) -> int:
        def read(store: Any) -> int:
            return int(store.read_into(key, start, target))

        return self._read(key, read)

    def _read(self, key: str, request: Callable[[ObjectStore], A]) -> A:
        """Return the first answer of a store that has the object."""
        looks, facts = self._looks(key), dict[str, object]()
        for store in looks:
            try:
                return request(store)
            except ObjectNotFound as error:
                missing, facts = error, facts | error.facts
        if (named := named_before_id(key)) is not None and not key.startswith(OF_TIERSTATE):
            for store in self.stores:
                try:
                    if store not in looks:
                        answer = request(store)
                        self._remember(named, store)
                        return answer
                except ObjectNotFound:
                    pass
                except TierstateError:  # it is away, and so the object may be there
                    facts[UNNAMED_STORE] = store.description
        missing.facts = facts
        raise missing

    def _remember(self, named: str, store: ObjectStore) -> None:
        if store not in (remaining := self._remaining.get(named, ())):
            self._remaining[named] = (*remaining, store)

    def _remains(self, store: ObjectStore, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        """Yield the objects of the folder in a store that no rule names for it. One that is away is left out: topics of
        other stores do not wait for it.
        """
        if (folder, store) in self._without:
            return
        is_empty = True
        try:
            for info in store.list(folder, start_after):
                if is_empty:
                    self._remember(str(named_before_id(folder)), store)
                is_empty = False
                yield info
        except TierstateError:
            if not is_empty:
                raise
            return
        if is_empty and start_after is None:
            self._without.add((folder, store))

    def _looks(self, key: str) -> tuple[ObjectStore, ...]:
        """Return the holders, and the first one again: the object may move there after the first look."""
        stores = self.holders(key)
        return stores if len(stores) == 1 else (*stores, stores[0])

    def _matching(self, named: str) -> tuple[ObjectStore, ...]:
        topic = self._names.without_prefix(named)
        exact = (store for pattern, store in self._rules if topic is not None and pattern.fullmatch(topic))
        likely = (
            store
            for pattern, store in self._rules
            if any(pattern.fullmatch(named, start) for start in range(len(named)))
        )
        return tuple(dict.fromkeys((next(exact, self._default), *likely, self._default)))

    def _stores_below(self, prefix: str) -> tuple[ObjectStore, ...]:
        """Return the stores that may have objects with this prefix: all, unless it names a topic's folder."""
        named_or_ours = prefix.startswith(OF_TIERSTATE) or named_before_id(prefix) is not None
        return self.holders(prefix) if named_or_ours else self.stores

    def _listed(self, store: ObjectStore, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        listing = store.list(prefix, start_after)
        if store is self._default:
            return listing
        return (info for info in listing if not info.key.startswith(OF_TIERSTATE))

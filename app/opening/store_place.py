"""Opens a store that follows its objects when they move (0108), and stores of topics.

The values are plain, for executors of Spark: unpickling one loads neither settings nor a client of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ...runtime.clock import Clock
from ...runtime.listener import Listener, ignore
from ...state.errors import InvalidRequest
from ...state.object_keys import ObjectKeys
from ...storage.open import open_store
from ...storage.options import StoreOptions

if TYPE_CHECKING:
    from ...follower.followed_store import FollowedStore
    from ...follower.move import Move
    from ...storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class TopicStore:
    """A store for new segments of the topics whose names match ``pattern``."""

    pattern: str
    url: str
    options: StoreOptions = field(repr=False)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store, and the store with the URL ``next_url`` to which its objects may move; empty: nothing names one.

    ``topics``: stores for the segments of some topics. ``names``: the keys of new segments.
    """

    url: str
    options: StoreOptions = field(repr=False)
    next_url: str = ""
    next_options: StoreOptions = field(default_factory=StoreOptions, repr=False)
    topics: tuple[TopicStore, ...] = ()
    names: ObjectKeys = field(default_factory=ObjectKeys)

    def open(self, clock: Clock, listener: Listener = ignore) -> FollowedStore:
        """Return the opened store. Raises InvalidRequest, AccessDenied, MissingExtra."""
        from ...follower.followed_store import FollowedStore

        store = open_store(self.url, self.options, clock=clock, listener=listener)
        return FollowedStore(store, partial(self._target_of, clock=clock), clock)

    def with_topics(self, default: FollowedStore, clock: Clock, listener: Listener = ignore) -> ObjectStore:
        """Return ``default`` with the stores of topics. Closing it closes all. Raises as `open`."""
        if not self.topics:
            return cast("ObjectStore", default)
        from ...follower.paired_stores import PairedStore
        from ...storage.routed import RoutedStore

        opened = {TopicStore("", self.url.rstrip("/"), self.options): cast("ObjectStore", default)}
        for rule in self.topics:
            if (store := replace(rule, pattern="")) not in opened:
                bare = open_store(rule.url, rule.options, clock=clock, listener=listener)
                opened[store] = cast("ObjectStore", PairedStore(cast("ObjectStore", default), bare, clock))
        rules = [(rule.pattern, opened[replace(rule, pattern="")]) for rule in self.topics]
        default.topic_stores = {store.description for _, store in rules}
        return RoutedStore(cast("ObjectStore", default), rules, self.names)

    def target(self, url: str, region: str | None, clock: Clock, *, make: bool = False) -> ObjectStore:
        """Return the target of a move."""
        return open_store(url, self.options_of(url, region), clock=clock, make=make)

    def options_of(self, url: str, region: str | None) -> StoreOptions:
        """Return those of ``[next_store]`` if that names this URL, else those of this store."""
        return self.next_options if self._is_next(url) else replace(self.options, region=region)

    def _is_next(self, url: str) -> bool:
        """Return whether ``[next_store]`` names this URL: exactly, or a prefix or bucket around it."""
        return bool(self.next_url) and f"{url.rstrip('/')}/".startswith(f"{self.next_url.rstrip('/')}/")

    def _target_of(self, move: Move, clock: Clock) -> ObjectStore:
        """Return the opened target. Raises InvalidRequest for another kind of store or another endpoint that no setting
        names: an address in a bucket is no reason to send credentials there.
        """
        same_kind = self.url.partition(":")[0] == move.target.partition(":")[0]
        same = same_kind and (self.options.endpoint or "") == move.endpoint
        if not same and not self._is_next(move.target):
            raise InvalidRequest(
                "the objects were moved: name their store in [next_store], or in [store] from now on",
                target=move.target,
            )
        return self.target(move.target, move.region or None, clock)

"""Opens a store that follows its objects when they move, by plain values that also reach other processes (0108)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import Listener, ignore
from ...runtime.settings import NextStore, Settings
from ...state.errors import InvalidRequest, InvalidSettings
from ...state.object_keys import ObjectKeys
from ...storage.open import open_store
from ...storage.options import StoreOptions
from .connection import store_options

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
        from ...storage.routed import RoutedStore

        opened = {TopicStore("", self.url.rstrip("/"), self.options): cast("ObjectStore", default)}
        for rule in self.topics:
            if (store := replace(rule, pattern="")) not in opened:
                opened[store] = open_store(rule.url, rule.options, clock=clock, listener=listener)
        rules = [(rule.pattern, opened[replace(rule, pattern="")]) for rule in self.topics]
        return RoutedStore(cast("ObjectStore", default), rules, self.names)

    def target(self, url: str, region: str | None, clock: Clock, *, make: bool = False) -> ObjectStore:
        """Return the target of a move: by ``[next_store]`` if that names it, else by the options of this store."""
        if self.next_url and self.next_url.rstrip("/") == url.rstrip("/"):
            return open_store(url, self.next_options, clock=clock, make=make)
        return open_store(url, replace(self.options, region=region), clock=clock, make=make)

    def _target_of(self, move: Move, clock: Clock) -> ObjectStore:
        """Return the opened target. Raises InvalidRequest for another kind of store or another endpoint that no setting
        names: an address in a bucket is no reason to send credentials there.
        """
        same_kind = self.url.partition(":")[0] == move.target.partition(":")[0]
        same = same_kind and (self.options.endpoint or "") == move.endpoint
        if not same and self.next_url.rstrip("/") != move.target:
            raise InvalidRequest(
                "the objects were moved: name their store in [next_store], or in [store] from now on",
                target=move.target,
            )
        return self.target(move.target, move.region or None, clock)


def place_of(settings: Settings) -> StorePlace:
    """Return the place that the settings give. Raises InvalidSettings for half a key pair."""
    options = store_options(settings)
    return StorePlace(
        settings.store.url,
        options,
        settings.next_store.url,
        next_store_options(settings, options),
        topic_stores(settings, options),
        ObjectKeys(settings.format.key_prefix, salt_bits=settings.format.salt_bits),
    )


def open_followed(settings: Settings) -> ObjectStore:
    """Return the store that has the objects: that of the settings, or the one to which they have moved."""
    return cast("ObjectStore", place_of(settings).open(SystemClock()))


def topic_stores(settings: Settings, own: StoreOptions) -> tuple[TopicStore, ...]:
    """Return the rules of ``store.topics``. Raises InvalidSettings for a URL that is inside of another one."""
    default, rules = settings.store.url.rstrip("/"), list[TopicStore]()
    for pattern, named in settings.store.topics.items():
        key, url, options = f"store.topics.{pattern}", named.url.rstrip("/"), own
        if not url:
            raise InvalidSettings([f"{key}.url: needed here and not set"])
        if url.partition(":")[0] != default.partition(":")[0]:  # another cloud takes neither these nor its credentials
            limits = replace(own, endpoint=None, region=None, path_style=None, credentials=None)
            options = replace(limits, sse="none", sse_kms_key_id=None, storage_class=None)
        if named.model_fields_set != {"url"}:
            options = next_store_options(settings, options, key, named)
        for other in (TopicStore("", default, own), *rules):
            inside = f"{url}/".startswith(f"{other.url}/") or f"{other.url}/".startswith(f"{url}/")
            if inside and url != other.url and options.endpoint == other.options.endpoint:
                raise InvalidSettings([f"{key}: give it a bucket or prefix that is neither in nor around {other.url}"])
        if url == default and options != own:
            raise InvalidSettings([f"{key}: other options need another URL than store.url"])
        rules.append(TopicStore(pattern, url, options))
    return tuple(rules)


def next_store_options(
    settings: Settings, own: StoreOptions, key: str = "next_store", named: NextStore | None = None
) -> StoreOptions:
    """Return the options of ``[next_store]``, with the limits of ``[store]``, and its credentials if there are none.

    ``named``: another section of this kind, at ``key``. Raises InvalidSettings for half a key pair.
    """
    named = named or settings.next_store
    if bool(named.access_key_id) != (named.secret_access_key is not None):
        raise InvalidSettings([f"{key}.access_key_id, {key}.secret_access_key: both or neither"])
    keys = own.credentials
    if named.secret_access_key is not None:
        keys = (
            settings.live.get(f"{key}.access_key_id", named.access_key_id),
            settings.live.get(f"{key}.secret_access_key", named.secret_access_key.get_secret_value()),
        )
    return replace(
        own,
        endpoint=named.endpoint or None,
        region=named.region or None,
        sse=named.sse,
        sse_kms_key_id=named.sse_kms_key_id or None,
        storage_class=named.storage_class or None,
        credentials=keys,
    )

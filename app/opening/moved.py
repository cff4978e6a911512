"""Opens a store that follows its objects when they move, by plain values that also reach other processes (0108)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import Listener, ignore
from ...runtime.settings import Settings
from ...state.errors import InvalidRequest, InvalidSettings
from ...storage.open import open_store
from .connection import store_options

if TYPE_CHECKING:
    from ...follower.followed_store import FollowedStore
    from ...follower.move import Move
    from ...storage.object_store import ObjectStore
    from ...storage.options import StoreOptions


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store, and the store with the URL ``next_url`` to which its objects may move; empty: nothing names one."""

    url: str
    options: StoreOptions = field(repr=False)
    next_url: str
    next_options: StoreOptions = field(repr=False)

    def open(self, clock: Clock, listener: Listener = ignore) -> FollowedStore:
        """Return the opened store. Raises InvalidRequest, AccessDenied, MissingExtra."""
        from ...follower.followed_store import FollowedStore

        store = open_store(self.url, self.options, clock=clock, listener=listener)
        return FollowedStore(store, partial(self._target_of, clock=clock), clock)

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
    return StorePlace(settings.store.url, options, settings.next_store.url, next_store_options(settings, options))


def open_followed(settings: Settings) -> ObjectStore:
    """Return the store that has the objects: that of the settings, or the one to which they have moved."""
    return cast("ObjectStore", place_of(settings).open(SystemClock()))


def next_store_options(settings: Settings, own: StoreOptions) -> StoreOptions:
    """Return the options of ``[next_store]``, with the limits of ``[store]``, and its credentials if there are none."""
    named = settings.next_store
    if bool(named.access_key_id) != (named.secret_access_key is not None):
        raise InvalidSettings(["next_store.access_key_id, next_store.secret_access_key: both or neither"])
    keys = own.credentials
    if named.secret_access_key is not None:
        keys = (
            settings.live.get("next_store.access_key_id", named.access_key_id),
            settings.live.get("next_store.secret_access_key", named.secret_access_key.get_secret_value()),
        )
    return replace(
        own,
        endpoint=named.endpoint or None,
        region=named.region or None,
        sse=named.sse,
        sse_kms_key_id=named.sse_kms_key_id or None,
        credentials=keys,
    )

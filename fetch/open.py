"""Wiring: a view, a cluster and a store the caller has -> a reader of both tiers."""

from __future__ import annotations

from ..broker.open import Broker
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..state.view import TierView
from ..storage.object_store import ObjectStore
from ..storage.segment.cache import ChunkCache
from ..storage.segment.encryption import KeyUnwrapper
from .local import BrokerTier
from .reader import LogReader
from .remote import RemoteTier

CACHE_BYTES = 256 * 1024 * 1024


def open_reader(
    view: TierView,
    broker: Broker,
    store: ObjectStore,
    *,
    clock: Clock,
    cache_bytes: int = CACHE_BYTES,
    keys: KeyUnwrapper | None = None,
    listener: Listener = ignore,
) -> LogReader:
    """``keys``: the key ring that opens encrypted segments. Closes nothing of what it is given."""
    remote = RemoteTier(store, ChunkCache(cache_bytes), clock, keys=keys, listener=listener)
    return LogReader(view, broker.control, BrokerTier(broker), remote, clock)

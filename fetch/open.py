"""Wiring: a view, a cluster and a store the caller has -> a reader of both tiers."""

from __future__ import annotations

from pathlib import Path

from ..broker.open import Broker
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..runtime.settings import Cache
from ..state.object_keys import ObjectKeys
from ..state.view import TierView
from ..storage.object_store import ObjectReader
from ..storage.segment.cache import ChunkCache
from ..storage.segment.disk_cache import open_disk_cache
from ..storage.segment.encryption import KeyUnwrapper
from .local import BrokerTier
from .reader import LogReader
from .remote import PLAIN_NAMES, RemoteTier

CHUNKS_FOLDER = "chunks"


def open_reader(
    view: TierView,
    broker: Broker,
    store: ObjectReader,
    *,
    clock: Clock,
    cache: Cache | None = None,
    state_dir: Path | None = None,
    keys: KeyUnwrapper | None = None,
    names: ObjectKeys = PLAIN_NAMES,
    listener: Listener = ignore,
) -> LogReader:
    """``cache``, ``state_dir`` and ``names`` as `open_remote` has them. Close it: it closes nothing it is given."""
    remote = open_remote(
        store, clock=clock, cache=cache, state_dir=state_dir, keys=keys, names=names, listener=listener
    )
    return LogReader(view, broker.control, BrokerTier(broker), remote, clock)


def open_remote(
    store: ObjectReader,
    *,
    clock: Clock,
    cache: Cache | None = None,
    state_dir: Path | None = None,
    keys: KeyUnwrapper | None = None,
    names: ObjectKeys = PLAIN_NAMES,
    listener: Listener = ignore,
) -> RemoteTier:
    """``cache``: None takes the defaults. Its disk lies in ``state_dir``; without one there is none. ``keys``: the key
    ring that opens encrypted segments. ``names``: how the cluster's agents name objects.

    Raises InvalidRequest when the folder of the disk cache holds something else.
    """
    wanted = cache or Cache()
    disk = None
    if wanted.disk and state_dir is not None:
        disk = open_disk_cache(state_dir / CHUNKS_FOLDER, wanted.disk, listener)
    chunks = ChunkCache(wanted.memory, disk)
    return RemoteTier(store, chunks, clock, keys=keys, names=names, prefetch=wanted.prefetch, listener=listener)

"""Wiring: settings, and a topic the caller has, to a running follower."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..schemas.codec import decode_fact
from ..state.view import MemoryView, ViewStore
from .follower import Follower
from .resume import ViewFolder
from .rocksdb_view import RocksView, ViewIdentity


def open_view(
    topic: TierTopic,
    cluster_id: str,
    clock: Clock,
    *,
    state_dir: Path | None = None,
    tier_partitions: Iterable[int] | None = None,
    listener: Listener = ignore,
) -> Follower:
    """A started follower: into ``state_dir``/view on disk, or in memory for a one-shot command.

    Close it when done. Raises Unavailable when another process follows into the same folder.
    """
    if state_dir is None:
        return _in_memory(topic, clock, tier_partitions, listener).start()
    identity = ViewIdentity(cluster_id, topic.topic_id, topic.mapped_partitions)
    folder = ViewFolder(state_dir / "view", decode_fact)

    def installed(store: ViewStore) -> None:
        assert isinstance(store, RocksView)
        folder.install(store)

    follower = Follower(
        topic,
        folder.resume(identity, clock.now_ms()),
        lambda: folder.fresh(identity),
        installed,
        clock,
        tier_partitions=tier_partitions,
        listener=listener,
    )
    return follower.start()


def _in_memory(topic: TierTopic, clock: Clock, tier_partitions: Iterable[int] | None, listener: Listener) -> Follower:
    return Follower(
        topic,
        MemoryView(decode_fact),
        lambda: MemoryView(decode_fact),
        lambda store: None,
        clock,
        tier_partitions=tier_partitions,
        listener=listener,
    )

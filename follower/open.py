"""Wiring: settings, and a topic the caller has, to a running follower."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..runtime.listener import Listener, ignore
from ..schemas.codec import decode_fact
from .follower import Follower
from .generations import InMemory, OnDisk
from .interest import Keep
from .rebuild import Seed
from .resume import ViewFolder
from .rocksdb_view import ViewIdentity


def open_view(
    topic: TierTopic,
    cluster_id: str,
    clock: Clock,
    *,
    state_dir: Path | None = None,
    tier_partitions: Iterable[int] | None = None,
    keep: Keep | None = None,
    seed: Seed | None = None,
    tail: bool = True,
    listener: Listener = ignore,
) -> Follower:
    """A started follower: into ``state_dir``/view on disk, or in memory for a one-shot command.

    ``keep``: which partitions' facts are wanted here (None: all), see `Follower.reconsider`. ``seed``: fills an empty
    view from a checkpoint. ``tail`` False: nothing happens but in `Follower.advance`, `wait_applied` and
    `require_fresh`. Close it when done. A view that is damaged, too old or of another cluster or topic is rebuilt.
    Raises Unavailable when another process follows into the same folder, BrokerUnavailable.
    """
    if state_dir is None:
        memory = InMemory(topic.mapped_partitions)
        return Follower(
            topic,
            memory.fresh(),
            memory,
            clock,
            tier_partitions=tier_partitions,
            keep=keep,
            seed=seed,
            tail=tail,
            listener=listener,
        ).start()
    folder = ViewFolder(state_dir / "view", decode_fact)
    folder.lock()
    try:
        disk = OnDisk(folder, ViewIdentity(cluster_id, topic.topic_id, topic.mapped_partitions))
        store = folder.resume(disk.identity, clock.now_ms())
    except BaseException:
        folder.close()
        raise
    follower = Follower(
        topic,
        store,
        disk,
        clock,
        lost=folder.refused,
        tier_partitions=tier_partitions,
        keep=keep,
        seed=seed,
        tail=tail,
        listener=listener,
    )
    try:
        return follower.start()
    except BaseException:
        follower.close()
        raise

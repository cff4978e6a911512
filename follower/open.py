"""Creates and starts a follower from settings and the caller's topic."""

from __future__ import annotations

from pathlib import Path

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from .follower import Follower
from .following import EVERYTHING, Following
from .generations import InMemory, ViewFolder
from .rocksdb_view import ViewIdentity


def open_view(
    topic: TierTopic, cluster_id: str, clock: Clock, following: Following = EVERYTHING, *, state_dir: Path | None = None
) -> Follower:
    """Return a started follower. Its view is in ``state_dir``/view, or in memory if ``state_dir`` is None.

    The caller must close the follower. A view that is damaged, too old or of another cluster or topic is rebuilt.
    Raises Unavailable if another process uses the same folder. Also raises BrokerUnavailable.
    """
    if state_dir is None:
        memory = InMemory(topic.mapped_partitions)
        return Follower(topic, memory.fresh(), memory, clock, following).start()
    folder = ViewFolder(state_dir / "view", ViewIdentity(cluster_id, topic.topic_id, topic.mapped_partitions))
    folder.lock()
    try:
        store = folder.resume(clock.now_ms())
    except BaseException:
        folder.close()
        raise
    follower = Follower(topic, store, folder, clock, following, lost=folder.refused)
    try:
        return follower.start()
    except BaseException:
        follower.close()
        raise

"""Finds remote segments that retention deletes as soon as an agent runs, as after the end of an archive."""

from __future__ import annotations

from collections.abc import Sequence

from ...follower.follower import Follower
from ...leader.open import overridden
from ...rules.decide import retention_of
from ...runtime.units import counted, show_size
from ...state.ids import TopicIdPartition
from ...state.retention import TopicConfig
from ..opening.connection import Connection

SETTLED_MS = 3_600_000
"""Milliseconds within which running agents delete what retention.ms takes."""


def soon_deleted(
    connection: Connection, follower: Follower, partitions: Sequence[tuple[str, TopicIdPartition]]
) -> str | None:
    """Return a sentence about the segments of these partitions that are older than retention; None if none is."""
    settings, control, now = connection.settings, connection.control, connection.clock.now_ms()
    names = {topic for topic, _ in partitions}
    configs = control.configs(names, broker=min(control.cluster().brokers)) if names else {}
    sizes, topics = list[int](), set[str]()
    for topic, partition in partitions:
        config = configs[topic]
        if not isinstance(config, TopicConfig):
            continue
        limit = retention_of(overridden(settings, topic, config)).total_ms
        if limit >= 0:
            oldest = now - limit - SETTLED_MS
            old = [each for each in follower.partition(partition).readable if 0 <= each.max_timestamp < oldest]
            sizes += [each.object_bytes for each in old]
            topics |= {topic for _ in old}
    if not sizes:
        return None
    return (
        f"{counted(len(sizes), 'segment')} of {', '.join(sorted(topics))} with {show_size(sum(sizes))} in the bucket "
        "are older than retention.ms: an agent deletes them at once"
    )

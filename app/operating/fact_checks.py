"""Checks of facts before an agent starts: facts that only a later release reads, segments that retention deletes."""

from __future__ import annotations

from collections.abc import Sequence

from ...broker.tier_topic import TierTopic
from ...follower.follower import Follower
from ...leader.open import overridden
from ...rules.decide import retention_of
from ...runtime.clock import Clock
from ...runtime.units import counted, show_size
from ...schemas.codec import decode_fact, may_be_later
from ...state.errors import ViewBehind
from ...state.facts import UnknownFact
from ...state.ids import TopicIdPartition
from ...state.offsets import Position
from ...state.retention import TopicConfig
from ..opening.connection import Connection

SILENCE_S = 20.0
"""Seconds without records after which reading the topic is abandoned."""
SETTLED_MS = 3_600_000
"""Milliseconds within which running agents delete what retention.ms takes."""


def later_facts(topic: TierTopic, clock: Clock) -> list[str]:
    """Return a sentence for each fact that only a later release can read, and that may not be ignored.

    Reads the whole topic, but decodes only such facts. Raises ViewBehind if reading makes no progress, and the
    errors of reading the topic.
    """
    numbers = range(topic.mapped_partitions)
    missing = {number: end for number in numbers if (end := topic.end(number)) > 0}
    sentences: dict[str, str] = {}
    reader, last_batch_s = topic.reader(dict.fromkeys(missing, Position(0))), clock.monotonic()
    try:
        while missing:
            batches = reader.poll(0.5)
            if not batches and clock.monotonic() - last_batch_s > SILENCE_S:
                raise ViewBehind("reading the tier-state topic makes no progress", tier_partition=min(missing))
            for batch in batches:
                last_batch_s = clock.monotonic()
                for entry in batch.entries:
                    sentences.pop(entry.key, None)
                    if entry.value is not None and may_be_later(entry.value):
                        fact = decode_fact(entry.key, entry.value)
                        if isinstance(fact, UnknownFact) and fact.later and not fact.ignorable:
                            sentences[entry.key] = f"{fact.reason}. position={entry.position} key={entry.key}"
                if batch.following >= missing.get(batch.tier_partition, batch.following + 1):
                    del missing[batch.tier_partition]
    finally:
        reader.close()
    return list(sentences.values())


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

"""Facts in the tier-state topic that only a later release can read: `check` finds them before an agent starts."""

from __future__ import annotations

from ...broker.tier_topic import TierTopic
from ...runtime.clock import Clock
from ...schemas.codec import decode_fact, may_be_later
from ...state.errors import ViewBehind
from ...state.facts import UnknownFact
from ...state.offsets import Position

SILENCE_S = 20.0
"""Seconds without records after which reading the topic is abandoned."""


def later_facts(topic: TierTopic, clock: Clock) -> list[str]:
    """Return a sentence for each such fact that may not be ignored. Reads the whole topic, but decodes only such facts.

    Raises ViewBehind if reading makes no progress, and the errors of reading the topic.
    """
    numbers = range(topic.mapped_partitions)
    missing = {number: end for number in numbers if (end := topic.end(number)) > 0}
    sentences: dict[str, str] = {}
    reader, last_batch_s = topic.reader(dict.fromkeys(missing, Position(0))), clock.monotonic()
    try:
        while missing:
            batches = reader.poll(0.5)
            if not batches and clock.monotonic() - last_batch_s > SILENCE_S:
                raise ViewBehind("the tier-state topic does not get on", tier_partition=min(missing))
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

"""Facts in the tier-state topic that only a later release reads: what `check` finds before an agent is started."""

from __future__ import annotations

from ..broker.tier_topic import TierTopic
from ..runtime.clock import Clock
from ..schemas.codec import decode_fact, may_be_later
from ..state.errors import ViewBehind
from ..state.facts import UnknownFact
from ..state.offsets import Position

SILENCE_S = 20.0
"""How long the topic may answer nothing before it is given up."""


def later_facts(topic: TierTopic, clock: Clock) -> list[str]:
    """One sentence for each that stands and may not be ignored. Reads the whole topic, and decodes only these.

    Raises ViewBehind when it does not get on, and what reading the topic raises.
    """
    numbers = range(topic.mapped_partitions)
    missing = {number: end for number in numbers if (end := topic.end(number)) > 0}
    found: dict[str, str] = {}
    reader, heard = topic.reader(dict.fromkeys(missing, Position(0))), clock.monotonic()
    try:
        while missing:
            batches = reader.poll(0.5)
            if not batches and clock.monotonic() - heard > SILENCE_S:
                raise ViewBehind("the tier-state topic does not get on", tier_partition=min(missing))
            for batch in batches:
                heard = clock.monotonic()
                for entry in batch.entries:
                    found.pop(entry.key, None)
                    if entry.value is not None and may_be_later(entry.value):
                        fact = decode_fact(entry.key, entry.value)
                        if isinstance(fact, UnknownFact) and fact.later and not fact.ignorable:
                            found[entry.key] = f"{fact.reason}. position={entry.position} key={entry.key}"
                if batch.following >= missing.get(batch.tier_partition, batch.following + 1):
                    del missing[batch.tier_partition]
    finally:
        reader.close()
    return list(found.values())

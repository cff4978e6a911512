"""Whether the topic still has the history that somebody is about to continue*.

A broker that is restored from a backup has lost the newest records, and its positions and leader epochs go back with
them: what is appended from then on stands where other records stood. A view, a checkpoint or an archive of the lost
future, continued with what the topic says now, would be of neither history. So whoever continues one first reads the
one record that it ended with. A record that compaction took is no evidence: then epochs are all that is compared.
"""

from __future__ import annotations

from ..broker.tier_topic import TierTopic
from ..state.anchor import Anchor
from ..state.errors import PositionLost


def check_same(topic: TierTopic, tier_partition: int, anchor: Anchor | None) -> None:
    """Raises PositionLost when the topic has another record at the anchor, or ends below it; and BrokerUnavailable."""
    said = None if anchor is None else parted(topic, tier_partition, anchor)
    if said is not None and anchor is not None:
        raise PositionLost(said, tier_partition=tier_partition, position=anchor.position)


def parted(topic: TierTopic, tier_partition: int, anchor: Anchor) -> str | None:
    """How the topic differs from the history of this anchor; None: in nothing that can be seen."""
    found = topic.anchor_at(tier_partition, anchor.position)
    if found is None:
        ended = topic.end(tier_partition) <= anchor.position
        return "the tier-state topic ends below this record, which it had" if ended else None
    return None if found == anchor else "the tier-state topic has another record there than it had: another history"

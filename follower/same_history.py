"""Whether the topic still has the history that a view, a checkpoint or an archive is about to continue*.

A broker that is restored from a backup has lost the newest records, and its positions and leader epochs go back with
them: later records take the positions of the lost ones. A view, a checkpoint or an archive of the lost future,
continued with the topic's current records, would belong to neither history. So the one record that it ended with is
read before it is continued.

A record that compaction took proves nothing, except to a view that was at the end less than the compaction lag ago: a
record that took its place since is younger than that, and would be there.
"""

from __future__ import annotations

from ..broker.tier_topic import TierTopic
from ..state.anchor import Anchor
from ..state.errors import PositionLost
from ..state.offsets import TimestampMs
from .as_of import MIN_COMPACTION_LAG_MS


def check_same(topic: TierTopic, tier_partition: int, anchor: Anchor | None, as_of: int, now_ms: TimestampMs) -> None:
    """Check a view or a checkpoint that was last at the end at ``as_of`` (ms), and may be rebuilt.

    Raises PositionLost when the topic has another record at the anchor, ends below it, or when the record was compacted
    away too long ago to be sure; and BrokerUnavailable.
    """
    if anchor is None:
        return
    why = parted(topic, tier_partition, anchor)
    if (
        why is None
        and now_ms - as_of > MIN_COMPACTION_LAG_MS
        and topic.anchor_at(tier_partition, anchor.position) is None
    ):
        why = "compaction took the record by which the tier-state topic would be known again"
    if why is not None:
        raise PositionLost(why, tier_partition=tier_partition, position=anchor.position)


def parted(topic: TierTopic, tier_partition: int, anchor: Anchor) -> str | None:
    """Return how the topic differs from the history of this anchor; None when no difference can be seen."""
    record = topic.anchor_at(tier_partition, anchor.position)
    if record is None:
        ended = topic.end(tier_partition) <= anchor.position
        return "the tier-state topic ends below this record, which it had" if ended else None
    return None if record == anchor else "the tier-state topic has another record there than it had: another history"

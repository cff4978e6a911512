"""Checks whether the topic still has the history that a view, a checkpoint or an archive is about to continue.

A broker that is restored from a backup lacks the newest records. Later records get the positions and leader epochs of
the lost ones. If a view, a checkpoint or an archive that has lost records continued with the topic's current records,
it would belong to neither history. So its last record is compared with the topic's record before it is continued.

If compaction removed that record, the comparison proves nothing, with one exception: a view that was at the end less
than the compaction lag ago. A record that replaced the lost one since then is too young to have been compacted.
(A model or a review found a loss without this rule.)
"""

from __future__ import annotations

from ..broker.tier_topic import TierTopic
from ..state.errors import PositionLost
from ..state.offsets import TimestampMs
from ..state.view import Anchor
from .as_of import MIN_COMPACTION_LAG_MS


def check_same(topic: TierTopic, tier_partition: int, anchor: Anchor | None, as_of: int, now_ms: TimestampMs) -> None:
    """Check the history of a view or a checkpoint that was last at the end at ``as_of`` (ms).

    Raises PositionLost if the topic has another record at the anchor, or ends below it, or if compaction removed the
    record and ``as_of`` is older than the compaction lag. Also raises BrokerUnavailable.
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
    """Return how the topic differs from the history of this anchor, or None if no difference is visible."""
    record = topic.anchor_at(tier_partition, anchor.position)
    if record is None:
        ended = topic.end(tier_partition) <= anchor.position
        return "the tier-state topic ends below this record, which it had" if ended else None
    return None if record == anchor else "the tier-state topic has another record there than it had: another history"

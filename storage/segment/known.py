"""Decides by the bucket whether a partition without a known log start is new, or whether its facts were lost.

Only keys under the current key prefix are checked: no fact is left that would name another one.
"""

from __future__ import annotations

from ...state.errors import TierStateLost
from ...state.later_release import require_readable
from ...state.object_keys import ObjectKeys, ObjectKind
from ...state.partition_view import PartitionView
from ..object_store import ObjectReader


def check_known(view: PartitionView, topic: str, store: ObjectReader, names: ObjectKeys) -> None:
    """Raise TierStateLost when the view is empty but the bucket is not: the state was lost, the partition is not new*.

    A new partition's log starts where the broker's does, and all remote segments lie below that. A term with that start
    lets them all be deleted, and readers answer without them. Costs one LIST, only while no log start is known. A view
    that is not fresh may lack the newest facts. Raises also what the store raises, and UpgradeNeeded: a later release
    wrote facts about the partition, and one of them may be the log start.
    """
    if view.log_starts:  # also those that hold on another branch of the log
        return
    require_readable(view, topic)
    place = view.partition
    way_out = f"{TierStateLost.WAY_OUT}; where only this partition is lost: tierstate recover {topic}:{place.partition}"
    if view.segments:
        raise TierStateLost(
            f"segments are known, but no log start; {way_out}",
            topic=topic,
            partition=place.partition,
            segments=len(view.segments),
        )
    folder = store.list(names.partition_prefix(topic, place.topic_id, place.partition))
    manifest_key = next((each.key for each in folder if each.key.endswith(ObjectKind.MANIFEST)), None)
    if manifest_key is not None:
        raise TierStateLost(
            f"no fact speaks of this partition, but the bucket has segments of it; {way_out}",
            topic=topic,
            partition=place.partition,
            manifest=manifest_key,
        )

"""A partition of which no fact says where its log starts: is it new, or was what was said of it lost? The bucket knows.

Only keys under the prefix in use are looked at: no fact is left that would remember another one.
"""

from __future__ import annotations

from ...state.errors import TierStateLost
from ...state.later_release import require_readable
from ...state.object_keys import ObjectKeys, ObjectKind
from ...state.partition_view import PartitionView
from ..object_store import ObjectReader


def check_known(view: PartitionView, topic: str, store: ObjectReader, names: ObjectKeys) -> None:
    """An empty view beside a full bucket is a lost state, not a new partition*.

    Whoever takes it for a new one says the broker's own start for the log's, and whatever is remote lies below that:
    a term that says so lets all of it be deleted, a reader answers without it. One LIST, and only while no log start
    is known. Raises TierStateLost, and what the store does. A view that is not fresh may lack what was just said.
    UpgradeNeeded: a later release wrote facts of it, and one of them may be the log start.
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
    found = next((each.key for each in folder if each.key.endswith(ObjectKind.MANIFEST)), None)
    if found is not None:
        raise TierStateLost(
            f"no fact speaks of this partition, but the bucket has segments of it; {way_out}",
            topic=topic,
            partition=place.partition,
            manifest=found,
        )

"""Checks in the bucket whether a partition without a known log start is new, or whether its facts were lost.

Only keys under the current key prefix are checked, because no fact remains that could name another prefix.
"""

from __future__ import annotations

from ...state.errors import TierStateLost
from ...state.object_keys import ObjectKeys, ObjectKind
from ...state.partition_view import PartitionView, require_readable
from ..object_store import ObjectReader


def check_known(view: PartitionView, topic: str, store: ObjectReader, names: ObjectKeys) -> None:
    """Raise TierStateLost if the view has no log start but it or the bucket has segments: then facts were lost.

    A partition that is taken for new gets the broker's log start, and all its remote segments are below that. A term
    with that start would let them be deleted, and readers would not see them. This costs one LIST, only while no log
    start is known. A view that is not current may lack the newest facts. Also raises the errors of the store, and
    UpgradeNeeded if a later release wrote facts about the partition: the log start may be among them.
    """
    if view.log_starts:  # also of another branch of the log
        return
    require_readable(view, topic)
    place = view.partition
    way_out = f"{TierStateLost.WAY_OUT}; where only this partition is lost: tierstate recover {topic}:{place.partition}"
    if view.segments:
        problem, facts = "segments are known, but no log start", {"segments": str(len(view.segments))}
    else:
        folder = store.list(names.partition_prefix(topic, place.topic_id, place.partition))
        manifest_key = next((each.key for each in folder if each.key.endswith(ObjectKind.MANIFEST)), None)
        if manifest_key is None:
            return
        problem = "no fact speaks of this partition, but the bucket has segments of it"
        facts = {"manifest": manifest_key}
    raise TierStateLost(f"{problem}; {way_out}", topic=topic, partition=place.partition, **facts)

"""Finds the segments that a lost history of the tier-state topic copied, and those that it deleted. Pure.

The topic's current facts decide. A segment in the bucket that they do not name was copied in the lost history, or was
swept in the current one: then its manifest is deleted. A segment that is readable by the facts, but not in the bucket,
was deleted in the lost history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..state.ids import TopicIdPartition
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment
from .recovery import FoundSegment


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The result for one partition. ``left``: segments that are complete in the bucket and that no fact names.
    ``gone``: segments that are readable by the facts and not complete in the bucket.
    """

    view: PartitionView
    left: tuple[RemoteSegment, ...]
    gone: tuple[RemoteSegment, ...]

    @property
    def partition(self) -> TopicIdPartition:
        return self.view.partition


def aftermath_of(views: Iterable[PartitionView], findings: Iterable[FoundSegment]) -> list[Aftermath]:
    """Return the result for each partition. ``findings``: segments of this tier-state topic, listed before the views
    were read. Otherwise segments that are copied at this moment would look like segments of the lost history.
    """
    by_partition: dict[TopicIdPartition, list[RemoteSegment]] = {}
    for each in findings:
        by_partition.setdefault(each.segment.partition, []).append(each.segment)
    view_of = {view.partition: view for view in views}
    return [
        _aftermath(view_of.get(partition) or PartitionView(partition), by_partition.get(partition, []))
        for partition in sorted(view_of.keys() | by_partition.keys())
    ]


def _aftermath(view: PartitionView, segments: list[RemoteSegment]) -> Aftermath:
    segment_ids = {each.segment_id for each in segments}
    return Aftermath(
        view,
        tuple(each for each in segments if each.segment_id not in view.segments),
        tuple(each for each in view.readable if each.segment_id not in segment_ids),
    )

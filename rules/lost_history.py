"""What a lost history leaves behind: what only it knew, and what it deleted. Pure.

Judged by the topic as it is now: what it names counts. A segment in the bucket that it does not name was copied in the
lost history (or swept from this one, then its manifest is gone); a segment that it calls readable and that is not in
the bucket was deleted there.
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
    """Of one partition. ``left``: whole in the bucket, and known to nobody any more. ``gone``: readable, says the
    topic, and not whole in the bucket.
    """

    view: PartitionView
    left: tuple[RemoteSegment, ...]
    gone: tuple[RemoteSegment, ...]

    @property
    def partition(self) -> TopicIdPartition:
        return self.view.partition


def aftermath_of(views: Iterable[PartitionView], found: Iterable[FoundSegment]) -> list[Aftermath]:
    """``found``: of this tier-state topic, listed before the views were read: else what is copied right now, and
    named in the topic since, would look lost.
    """
    by_partition: dict[TopicIdPartition, list[RemoteSegment]] = {}
    for each in found:
        by_partition.setdefault(each.segment.partition, []).append(each.segment)
    known = {view.partition: view for view in views}
    return [
        _aftermath(known.get(partition) or PartitionView(partition), by_partition.get(partition, []))
        for partition in sorted(known.keys() | by_partition.keys())
    ]


def _aftermath(view: PartitionView, found: list[RemoteSegment]) -> Aftermath:
    here = {each.segment_id for each in found}
    return Aftermath(
        view,
        tuple(each for each in found if each.segment_id not in view.segments),
        tuple(each for each in view.readable if each.segment_id not in here),
    )

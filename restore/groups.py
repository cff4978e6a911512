"""Set the committed offsets of groups in the target: those of a backup, through the offset map of a restored topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..app.operating.cluster_backup import Backup
from ..broker.administration import commit
from ..broker.raw import RawClient
from ..runtime.clock import Clock
from ..state.errors import InvalidRequest
from ..state.offsets import Offset
from .ledger import Progress
from .offset_map import translated


@dataclass(frozen=True, slots=True)
class GroupMove:
    """``offset``: of the group in the source. ``target``: where it goes on. ``lost``: offsets between what was restored
    and what the group had read, 0 if all of it was restored."""

    group: str
    partition: int
    offset: Offset
    target: Offset
    lost: int


def moves(
    backup: Backup, topic: str, topic_id: str, maps: Mapping[int, Progress], groups: Collection[str]
) -> Iterator[GroupMove]:
    """Yield the new offsets of these groups (none named: of all with an offset on the topic). Partitions without a map
    are left out. Raises InvalidRequest if the backup has another topic of this name, or lacks a named group.
    """
    described = backup.topics.get(topic)
    if described is not None and described.topic_id != topic_id:
        raise InvalidRequest("the backup is of another topic of this name", topic=topic, topic_id=described.topic_id)
    for group in sorted(groups or backup.groups):
        offsets = backup.groups.get(group, {}).get(topic)
        if offsets is None and groups:
            raise InvalidRequest("the backup has no offset of this group on the topic", group_id=group, topic=topic)
        for partition, offset in sorted((offsets or {}).items()):
            progress = maps.get(partition)
            target = None if progress is None else translated(progress.ranges, offset)
            if progress is None:
                continue
            target = progress.target_end if target is None else target
            yield GroupMove(group, partition, offset, target, max(0, offset - progress.source_end))


def set_offsets(raw: RawClient, clock: Clock, topic: str, group_moves: Iterable[GroupMove]) -> None:
    """Commit the new offsets, one request for each group. Raises InvalidRequest if a group has members."""
    by_group: dict[str, dict[tuple[str, int], Offset]] = {}
    for each in group_moves:
        by_group.setdefault(each.group, {})[topic, each.partition] = each.target
    for group, offsets in by_group.items():
        commit(raw, clock, group, offsets)

"""A partition's folder on a broker's disk: which segments, of which topic, in which epochs."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..state.epochs import Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset
from .epoch_checkpoint import parse_epoch_checkpoint
from .folder_segments import FolderSegments, base_offsets
from .small_files import SmallFiles

_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_RETIRED = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """One look. ``base_offsets`` ascending, the last one active; ``topic_id`` None before Kafka 2.8."""

    path: Path
    topic: str
    partition: int
    topic_id: TopicId | None
    base_offsets: tuple[Offset, ...]
    lineage: Lineage

    def log_path(self, base_offset: int) -> Path:
        return self.path / f"{base_offset:020d}.log"


def folder_name(path: Path) -> tuple[str, int] | None:
    """Topic and partition of a live folder's name; None for retired folders and for what is no partition."""
    found = _FOLDER.fullmatch(path.name)
    if found is None or _RETIRED.fullmatch(path.name):
        return None
    return found["topic"], int(found["partition"])


def parse_topic_id(data: bytes, source: str) -> TopicId:
    """Of ``partition.metadata``. Raises CorruptData naming ``source``."""
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return TopicId(value.strip())
            except InvalidRequest as error:
                raise CorruptData("topic id cannot be read", file=source, says=repr(value)) from error
    raise CorruptData("no topic id in partition.metadata", file=source)


class FolderFiles:
    """The small files of partition folders: a folder in which they stay the same is looked at without reading them."""

    def __init__(self) -> None:
        self._topic_ids = SmallFiles(parse_topic_id)
        self._lineages = SmallFiles(parse_epoch_checkpoint)
        self.segments = FolderSegments()

    def topic_id(self, folder: str) -> TopicId | None:
        """None when there is no ``partition.metadata``: before Kafka 2.8. Raises CorruptData."""
        return self._topic_ids.get(metadata_file(folder))

    def lineage(self, folder: str) -> Lineage:
        """Of the leader epoch checkpoint. Raises CorruptData."""
        return self._lineages.get(_checkpoint(folder)) or Lineage()

    def keep(self, folders: Collection[str]) -> None:
        """Forget all others."""
        self._topic_ids.keep({metadata_file(folder) for folder in folders})
        self._lineages.keep({_checkpoint(folder) for folder in folders})
        self.segments.keep(folders)


def metadata_file(folder: str) -> str:
    """Where a folder's topic id stands."""
    return f"{folder}/partition.metadata"


def _checkpoint(folder: str) -> str:
    return f"{folder}/leader-epoch-checkpoint"


def open_partition(path: Path) -> PartitionFolder:
    """Raises InvalidRequest for a folder that is no live partition, CorruptData for files that are damaged.

    Only plain ``<base offset>.log`` files count: not ``.deleted``, ``.cleaned`` or ``.swap`` ones.
    """
    named = folder_name(path)
    if named is None or not path.is_dir():
        raise InvalidRequest("not a partition folder (topic-partition)", path=path)
    files = FolderFiles()
    return look_into(path, *named, files.topic_id(str(path)), files)


def look_into(path: Path, topic: str, partition: int, topic_id: TopicId | None, files: FolderFiles) -> PartitionFolder:
    """`open_partition` of what is known to be a live folder, and whose. FileNotFoundError: it is gone."""
    folder = str(path)
    return PartitionFolder(path, topic, partition, topic_id, tuple(base_offsets(folder)), files.lineage(folder))

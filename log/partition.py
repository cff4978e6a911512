"""Read a partition's folder on a broker's disk: its segments, its topic and its leader epochs."""

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
    """A folder's state. ``base_offsets`` ascend; the last segment is active. ``topic_id`` is None before Kafka 2.8."""

    path: Path
    topic: str
    partition: int
    topic_id: TopicId | None
    base_offsets: tuple[Offset, ...]
    lineage: Lineage

    def log_path(self, base_offset: int) -> Path:
        return self.path / f"{base_offset:020d}.log"


def folder_name(path: Path) -> tuple[str, int] | None:
    """Return topic and partition from a live folder's name, or None for retired folders and other names."""
    match = _FOLDER.fullmatch(path.name)
    if match is None or _RETIRED.fullmatch(path.name):
        return None
    return match["topic"], int(match["partition"])


def parse_topic_id(data: bytes, source: str) -> TopicId:
    """Return the topic id in ``partition.metadata``. Raises CorruptData naming ``source``."""
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return TopicId(value.strip())
            except InvalidRequest as error:
                raise CorruptData("topic id cannot be read", file=source, says=repr(value)) from error
    raise CorruptData("no topic id in partition.metadata", file=source)


class FolderFiles:
    """Reads the small files of partition folders and lists their segments. Rereads a small file only if it changed."""

    def __init__(self) -> None:
        self._topic_ids = SmallFiles(parse_topic_id)
        self._lineages = SmallFiles(parse_epoch_checkpoint)
        self.segments = FolderSegments()

    def topic_id(self, folder: str) -> TopicId | None:
        """Return the topic id, or None if there is no ``partition.metadata`` (Kafka < 2.8). Raises CorruptData."""
        return self._topic_ids.get(metadata_file(folder))

    def lineage(self, folder: str) -> Lineage:
        """Return the lineage in the leader epoch checkpoint; empty if there is no checkpoint. Raises CorruptData."""
        return self._lineages.get(_checkpoint(folder)) or Lineage()

    def keep(self, folders: Collection[str]) -> None:
        """Forget all folders except these."""
        self._topic_ids.keep({metadata_file(folder) for folder in folders})
        self._lineages.keep({_checkpoint(folder) for folder in folders})
        self.segments.keep(folders)


def metadata_file(folder: str) -> str:
    """Return the path of the file that holds a folder's topic id."""
    return f"{folder}/partition.metadata"


def _checkpoint(folder: str) -> str:
    return f"{folder}/leader-epoch-checkpoint"


def open_partition(path: Path) -> PartitionFolder:
    """Read a partition folder. Raises InvalidRequest for any other path, and CorruptData for damaged files.

    Only plain ``<base offset>.log`` files count: not ``.deleted``, ``.cleaned`` or ``.swap`` ones.
    """
    named = folder_name(path)
    if named is None or not path.is_dir():
        raise InvalidRequest("not a partition folder (topic-partition)", path=path)
    files = FolderFiles()
    return look_into(path, *named, files.topic_id(str(path)), files)


def look_into(path: Path, topic: str, partition: int, topic_id: TopicId | None, files: FolderFiles) -> PartitionFolder:
    """Read the live folder of a known partition. Raises FileNotFoundError if it was deleted, and CorruptData."""
    folder = str(path)
    return PartitionFolder(path, topic, partition, topic_id, tuple(base_offsets(folder)), files.lineage(folder))

"""A partition's folder on a broker's disk: which segments, of which topic, in which epochs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..state.epochs import Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.offsets import Offset
from .epoch_checkpoint import parse_epoch_checkpoint

_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_RETIRED = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")
_LOG = re.compile(r"(\d{20})\.log")
SMALL_BYTES = 65_536


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


def read_topic_id(path: Path) -> TopicId | None:
    """From ``partition.metadata``; None when there is none. Raises CorruptData."""
    file = f"{path}/partition.metadata"
    try:
        text = whole(file).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id":
            try:
                return TopicId(value.strip())
            except InvalidRequest as error:
                raise CorruptData("topic id cannot be read", file=file, says=repr(value)) from error
    raise CorruptData("no topic id in partition.metadata", file=file)


def open_partition(path: Path) -> PartitionFolder:
    """Raises InvalidRequest for a folder that is no live partition, CorruptData for files that are damaged.

    Only plain ``<base offset>.log`` files count: not ``.deleted``, ``.cleaned`` or ``.swap`` ones.
    """
    named = folder_name(path)
    if named is None or not path.is_dir():
        raise InvalidRequest("not a partition folder (topic-partition)", path=path)
    return look_into(path, *named, read_topic_id(path))


def look_into(path: Path, topic: str, partition: int, topic_id: TopicId | None) -> PartitionFolder:
    """`open_partition` of what is known to be a live folder, and whose. FileNotFoundError: it is gone."""
    folder = str(path)
    bases = sorted(Offset(int(m[1])) for name in os.listdir(folder) if (m := _LOG.fullmatch(name)))
    checkpoint = f"{folder}/leader-epoch-checkpoint"
    try:
        lineage = parse_epoch_checkpoint(whole(checkpoint), checkpoint)
    except FileNotFoundError:
        lineage = Lineage()
    return PartitionFolder(path, topic, partition, topic_id, tuple(bases), lineage)


def whole(file: str) -> bytes:
    """Of a small file. An agent reads thousands of them a minute: Python's own files cost four times as much."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [piece := os.read(descriptor, SMALL_BYTES)]
        while len(piece) == SMALL_BYTES:
            pieces.append(piece := os.read(descriptor, SMALL_BYTES))
    finally:
        os.close(descriptor)
    return b"".join(pieces)

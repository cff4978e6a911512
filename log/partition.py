"""Read a partition's folder on a broker's disk: its segments, its topic and its leader epochs.

The small files (`partition.metadata`, `leader-epoch-checkpoint`) are read again only if they changed, and only changed
folders are listed again. A folder changed if its stamp (inode, change time, size) differs. The broker does not change a
rolled segment, so its size and its time index are read once. Only a truncation can make a rolled segment active again,
and a new leader epoch follows it. Then all segments are read again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

from ..runtime.clock import SystemClock
from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import CorruptData, InvalidRequest
from ..state.ids import TopicId
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, TimestampMs
from .indexes import TIME_ENTRY_BYTES

Stamp = tuple[int, int, int]
"""Inode, change time (ns) and size. The broker replaces a small file and never writes into the existing one."""

V = TypeVar("V")


def stamp_of(file: str) -> Stamp | None:
    """Return a file's stamp, or None if there is no such file. Raises OSError."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


class SmallFiles(Generic[V]):
    """Caches the parsed content of files of one kind: an unchanged file costs one `stat`. Thread-safe. The content of
    each requested file is cached until `keep` drops it.
    """

    def __init__(self, parse: Callable[[bytes, str], V]) -> None:
        """``parse`` takes a file's bytes and its name."""
        self._parse = parse
        self._cache: dict[str, tuple[Stamp, V]] = {}

    def get(self, file: str) -> V | None:
        """Return the parsed content, or None if there is no such file. Raises the errors of ``parse``, and OSError."""
        stamp = stamp_of(file)  # before the read: a file replaced during the read is read again
        if stamp is None:
            return None
        cached = self._cache.get(file)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        try:
            value = self._parse(Path(file).read_bytes(), file)
        except FileNotFoundError:
            return None
        self._cache[file] = (stamp, value)
        return value

    def keep(self, files: Collection[str]) -> None:
        """Forget all files except these."""
        for file in [file for file in self._cache.copy() if file not in files]:
            self._cache.pop(file, None)


_LOG = re.compile(r"(\d{20})\.log")
SETTLED_S = 0.1
"""Seconds. Changes this far apart have different change times in every file system: its clock ticks every 10 ms."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A listing. ``stamp`` was first seen at ``since`` (monotonic s). ``whole``: no later change keeps the stamp."""

    stamp: Stamp | None
    since: float
    whole: bool
    epoch: LeaderEpoch | None
    segments: LocalSegments


class FolderSegments:
    """Lists the segments of folders. Thread-safe. Caches the listing of each requested folder until `keep` drops it."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._looks: dict[str, _Look] = {}

    def get(self, folder: str, epoch: LeaderEpoch | None) -> LocalSegments:
        """Return a folder's segments. ``epoch``: the last epoch of its checkpoint. Raises FileNotFoundError if the
        folder or a segment was deleted."""
        before, stamp, now = self._looks.get(folder), stamp_of(folder), self._clock.monotonic()
        same = before is not None and before.epoch == epoch
        since = before.since if before is not None and before.stamp == stamp else now
        if before is not None and same and before.whole and before.stamp == stamp:
            active = before.segments[-1].base_offset
            segments = before.segments.with_active(_segment(folder, active, active))
        else:
            segments = _listed(folder, before.segments if before is not None and same else LocalSegments())
        whole = bool(segments) and now - since >= SETTLED_S
        self._looks[folder] = _Look(stamp, since, whole, epoch, segments)
        return segments

    def keep(self, folders: Collection[str]) -> None:
        """Forget all folders except these."""
        for folder in [folder for folder in self._looks.copy() if folder not in folders]:
            self._looks.pop(folder, None)


def base_offsets(folder: str) -> list[Offset]:
    """Return the base offsets of a folder's segments, ascending. Only plain ``<base offset>.log`` files count."""
    return sorted(Offset(int(m[1])) for name in os.listdir(folder) if (m := _LOG.fullmatch(name)))


def _listed(folder: str, before: LocalSegments) -> LocalSegments:
    bases = base_offsets(folder)
    segments = {(each.base_offset, each.next_base): each for each in before.rolled}
    rolled = tuple(segments.get(pair) or _segment(folder, *pair) for pair in pairwise(bases))
    kept = before if rolled == before.rolled else LocalSegments(rolled)
    return kept.with_active(_segment(folder, bases[-1], bases[-1])) if bases else LocalSegments()


def _segment(folder: str, base: Offset, following: Offset) -> LocalSegment:
    segment = f"{folder}/{base:020d}"
    log = os.stat(f"{segment}.log")
    return LocalSegment(base, following, log.st_size, _max_timestamp(f"{segment}.timeindex", log.st_mtime))


def _max_timestamp(index: str, modified: float) -> TimestampMs:
    """Return the time index's last timestamp, or the log's modification time if there is none > 0, as Kafka does."""
    last = b""
    with suppress(FileNotFoundError), open(index, "rb", buffering=0) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TIME_ENTRY_BYTES))
        last = file.read(TIME_ENTRY_BYTES)
    stamp = int.from_bytes(last[:8], "big", signed=True) if len(last) == TIME_ENTRY_BYTES else 0
    return TimestampMs(stamp if stamp > 0 else int(modified * 1000))


VERSION = "0"
_NUMBER = re.compile(r"[0-9]{1,19}")
"""No number is longer, and Python refuses to convert more than 4,300 digits."""
_MAX_EPOCH, _MAX_OFFSET = 2**31 - 1, 2**63 - 1


def parse_epoch_checkpoint(data: bytes | str, source: str) -> Lineage:
    """Return the lineage; it is empty for an empty file, which a crash can leave. Like Kafka, accept CRLF line ends.

    The file has a version, a count, and lines of ``epoch offset`` (`LeaderEpochCheckpointFile`). Raises CorruptData
    naming ``source`` and the line.
    """
    text = data.decode("ascii", "replace") if isinstance(data, bytes) else data
    if not text:
        return Lineage()
    lines = text.replace("\r\n", "\n").split("\n")
    if len(lines) < 3 or lines[0] != VERSION or not _NUMBER.fullmatch(lines[1]) or lines[-1] != "":
        raise CorruptData("not a leader epoch checkpoint of version 0", file=source)
    rows = lines[2:-1]
    if len(rows) != int(lines[1]):
        raise CorruptData("checkpoint has another number of entries", file=source, says=lines[1], has=len(rows))
    entries = []
    for number, row in enumerate(rows, start=3):
        parts = row.split(" ")
        if len(parts) != 2 or not all(_NUMBER.fullmatch(part) for part in parts):
            raise CorruptData("checkpoint entry is not an epoch and an offset", file=source, line=number)
        epoch, offset = map(int, parts)
        if epoch > _MAX_EPOCH or offset > _MAX_OFFSET:
            raise CorruptData("checkpoint entry is beyond what Kafka can have", file=source, line=number)
        entries.append(EpochEntry(LeaderEpoch(epoch), Offset(offset)))
    try:
        return Lineage(tuple(entries))
    except InvalidRequest as error:
        raise CorruptData(error.message, file=source, **error.facts) from error


def format_epoch_checkpoint(lineage: Lineage) -> bytes:
    """Return the content of the file."""
    rows = "".join(f"{entry.epoch} {entry.start_offset}\n" for entry in lineage.entries)
    return f"{VERSION}\n{len(lineage.entries)}\n{rows}".encode()


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
    return PartitionFolder(
        path, *named, files.topic_id(str(path)), tuple(base_offsets(str(path))), files.lineage(str(path))
    )

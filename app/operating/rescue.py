"""Frees space on the full disk of a broker that is down: removes leading log segments whose copies are proven.

The lock of the broker's folder is held, so the broker cannot run. When it starts later, its log begins after the
removed segments: Kafka takes the base offset of the first segment if the log start checkpoint is lower (`LogLoader`).
No fact is written: readers get the removed records from the remote tier.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...leader.object_proof import require_decodable
from ...log.partition import PartitionFolder, folder_name, open_partition
from ...rules.trim import doubt_of
from ...state.errors import CorruptData, InvalidRequest, TierstateError, Unavailable
from ...state.ids import TopicIdPartition
from ...state.offsets import Offset
from ...state.segment import RemoteSegment
from ...state.view import TierView
from ...storage.directory import fsync_folder
from ...storage.object_store import ObjectReader
from ...storage.segment.encryption import KeyUnwrapper
from ...storage.segment.reader import SegmentReader

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
"""Files of a segment to remove, in this order: Kafka deletes an index whose log is missing. Producer snapshots stay."""


@dataclass(frozen=True, slots=True)
class LeadingSegment:
    """A local segment that is first once earlier ones are removed, and its copy. ``disk_bytes``: size of its files."""

    path: Path
    next_base: Offset
    copy: RemoteSegment
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class RescuedPartition:
    """``segments``: segments to remove once they are proven, in order. ``why``: why the next segment is kept."""

    topic: str
    partition: int
    segments: tuple[LeadingSegment, ...]
    why: str


@contextmanager
def hold_broker_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a broker's log folder. Raises InvalidRequest for other folders, Unavailable while Kafka runs."""
    if not (folder / "meta.properties").is_file():
        raise InvalidRequest("not a log folder of a broker: it has no meta.properties", folder=folder)
    with (folder / ".lock").open("r+b" if (folder / ".lock").exists() else "w+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Unavailable("the broker of this folder is running: its agent trims the log", folder=folder) from error
        yield


def find_leading_segments(folder: Path, view: TierView) -> Iterator[RescuedPartition]:
    """Yield each partition of the folder that has facts. No log and no object is read."""
    partitions = set(view.partitions())
    for path in sorted(folder.iterdir()):
        place = folder_name(path)
        if place is None or not path.is_dir():
            continue
        try:
            log = open_partition(path)
            if log.topic_id is None or TopicIdPartition(log.topic_id, log.partition) not in partitions:
                continue
            segments, why = _leading(log, view)
        except TierstateError as error:
            segments, why = (), str(error)
        yield RescuedPartition(*place, segments, why)


def _leading(folder: PartitionFolder, view: TierView) -> tuple[tuple[LeadingSegment, ...], str]:
    assert folder.topic_id is not None
    partition_view = view.partition(TopicIdPartition(folder.topic_id, folder.partition))
    doubt = doubt_of(partition_view)
    if doubt is not None or partition_view.later:
        return (), doubt.text if doubt is not None else "a later release wrote facts about it"
    segments = list[LeadingSegment]()
    for base, following in pairwise(folder.base_offsets):
        owner = partition_view.coverage.at(base)
        if owner is None or owner.segment.offsets.start != base or owner.offsets.end != following - 1:
            return tuple(segments), f"no copy has exactly the offsets {base}..{following - 1}"
        path = folder.log_path(base)
        size = sum(each.stat().st_size for each in _files(path))
        segments.append(LeadingSegment(path, following, owner.segment, size))
    return tuple(segments), "only the active segment is left"


def prove(segment: LeadingSegment, store: ObjectReader, keys: KeyUnwrapper | None) -> None:
    """Read back every byte of the copy, and compare it with the local segment. Raises CorruptData, ObjectNotFound."""
    with segment.path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").digest()
    if sha256 != segment.copy.log_sha256:
        raise CorruptData("the local segment is not the one that was copied: its SHA-256 differs", file=segment.path)
    copy = SegmentReader.open(store, segment.copy.object_key, keys=keys)
    require_decodable(segment.copy, copy.manifest)
    copy.verify(segment.copy)


def remove(segment: LeadingSegment) -> None:
    """Remove the segment's files and sync the folder, so that no segment is removed before the segment below it."""
    for file in _files(segment.path):
        file.unlink()
    fsync_folder(segment.path.parent)


def _files(log: Path) -> Sequence[Path]:
    return [file for suffix in SUFFIXES if (file := log.with_suffix(suffix)).exists()]

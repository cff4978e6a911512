"""The broker's disks as the agent sees them: the seam, and the real thing over ``log.dirs``.

Only plain ``<topic>-<partition>`` folders are live; ``-delete``, ``-stray``, ``-future`` ones are ignored, and so are
files that the broker is about to remove or replace (``.deleted``, ``.cleaned``, ``.swap``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..runtime.listener import Listener, ignore
from ..state.epochs import Lineage
from ..state.errors import Fenced, Unavailable
from ..state.ids import TopicIdPartition
from ..state.local_segments import LocalSegments
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import HEADER_BYTES
from .broker_folders import BrokerFolders
from .folder_events import FolderEvents, Touched
from .partition import FolderFiles, folder_name, metadata_file
from .quiet_reader import QuietReader
from .segment import LogSegment
from .small_files import Stamp, stamp_of
from .transaction_check import OpenBefore, open_before
from .transactions import decide

LOOKS = 5
"""How often a folder is looked at again when the broker retires a segment meanwhile."""
MARKERS_READ_BYTES = 256 * 1024
"""Read at once of a later segment: most transactions end right behind the one they began in."""


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    """One look at a partition's folder. ``segments`` ascending, the last one active; its ``next_base`` is its base."""

    partition: TopicIdPartition
    name: str
    folder: Path
    segments: LocalSegments
    lineage: Lineage


class SegmentFiles(Protocol):
    """Every file of one rolled segment, open: a broker that deletes them meanwhile changes nothing.

    ``before``: the transactions that are open where it begins.
    """

    log: QuietReader
    log_bytes: int
    path: Path
    lineage: Lineage
    offset_index: bytes | None
    time_index: bytes | None
    producer_snapshot: bytes
    transaction_index: bytes | None
    before: OpenBefore

    def head(self) -> bytes:
        """The first bytes of the log, at least a batch header's when there are any."""
        ...

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Of these transactions, open where it ends (producer id to first offset), those whose next marker, in a later
        local segment, is an abort's. Raises CorruptData, Fenced."""
        ...

    def confirm(self) -> None:
        """The folder still holds this segment, under this topic id. Raises Fenced."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalLog(Protocol):
    """Thread-safe; every call looks anew."""

    def partitions(self) -> Mapping[TopicIdPartition, str]:
        """Every live partition on the disks, with its topic's name; the very same object while it is the same."""
        ...

    def listed(self) -> Mapping[TopicIdPartition, str]:
        """The last answer of `partitions`, without a look at the disks."""
        ...

    def touched(self) -> Touched:
        """What changed on the disks since the last call, as far as the system tells: a hint, and never more."""
        ...

    def snapshot(self, partition: TopicIdPartition, name: str) -> LocalSnapshot:
        """Raises Fenced when the partition, under this topic id, is not on these disks."""
        ...

    def open_segment(
        self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> SegmentFiles:
        """Open every file of a rolled segment. Raises Fenced when it is not there any more."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """A live folder, and the file that said whose, as it was then: another one is of another folder, which nobody
    watches yet, even where it says the same."""

    metadata: str
    stamp: Stamp | None
    topic: str
    partition: TopicIdPartition


class LogDirs:
    """The real `LocalLog`, over those folders that the broker runs with: `BrokerFolders`."""

    def __init__(self, folders: Sequence[Path], *, alone: bool = True, listener: Listener = ignore) -> None:
        """As `BrokerFolders`, with what it raises."""
        self.broker_folders = BrokerFolders(folders, alone=alone, listener=listener)
        identity = self.broker_folders.identity
        self.cluster_id, self.node_id = identity.cluster_id, identity.node_id
        self._files = FolderFiles()
        self._known: dict[str, _Known] = {}
        self._listed: Mapping[TopicIdPartition, str] = {}
        self._watch: FolderEvents | None = None
        self._looking = threading.Lock()

    def partitions(self) -> Mapping[TopicIdPartition, str]:
        with self._looking:
            found: dict[str, _Known] = {}
            new: list[str] = []
            self.broker_folders.look()
            try:
                for entry in self._entries():
                    known = self._known.get(entry.path)
                    if known is not None and known.stamp == stamp_of(known.metadata):
                        found[entry.path] = known
                    elif entry.is_dir() and folder_name(Path(entry.name)) is not None:
                        new.append(entry.path)  # one whose topic id the broker is about to write is watched already
                        if (live := self._live(entry)) is not None:
                            found[entry.path] = live
            except OSError as error:
                raise _unreadable(error) from error
            if self._watch is not None:
                self._watch.watch_roots(self.broker_folders.live)
                self._watch.watch(new)
            if found != self._known:
                self._known = found
                self._files.keep(found)
                self._listed = {known.partition: known.topic for known in found.values()}
            return self._listed

    def listed(self) -> Mapping[TopicIdPartition, str]:
        return self._listed

    def touched(self) -> Touched:
        with self._looking:
            if self._watch is None:  # what happened before the first call is not known
                self._watch = FolderEvents(self.broker_folders.live)
                self._watch.watch(self._known)
                return replace(self._watch.touched(), folders=True)
            return self._watch.touched()

    def _live(self, folder: os.DirEntry[str]) -> _Known | None:
        """None while its topic id is unknown."""
        metadata = metadata_file(folder.path)
        stamp = stamp_of(metadata)  # before it is read: one that is replaced now is read again
        named, topic_id = folder_name(Path(folder.name)), self._files.topic_id(folder.path)
        if named is None or topic_id is None:
            return None
        return _Known(metadata, stamp, named[0], TopicIdPartition(topic_id, named[1]))

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        for folder in self.broker_folders.live:
            with os.scandir(folder) as entries:
                yield from entries

    def _folder(self, partition: TopicIdPartition, name: str) -> Path:
        for folder in self.broker_folders.live:
            path = folder / f"{name}-{partition.partition}"
            if self._files.topic_id(str(path)) == partition.topic_id:
                return path
        raise Fenced("the partition is not on these disks", partition=partition, topic=name)

    def snapshot(self, partition: TopicIdPartition, name: str) -> LocalSnapshot:
        for _ in range(LOOKS):
            try:
                path = self._folder(partition, name)
                epoch = self._files.lineage(str(path)).last_epoch
                segments = self._files.segments.get(str(path), epoch)
                lineage = self._files.lineage(str(path))  # after the segments: they are of no later epoch
            except FileNotFoundError:
                continue  # the broker retired a segment while we looked, or the whole folder: then `_folder` says so
            except OSError as error:
                raise _unreadable(error) from error
            if lineage.last_epoch == epoch:
                return LocalSnapshot(partition, name, path, segments, lineage)
        raise Unavailable("the partition's folder does not stand still", partition=partition, topic=name)

    def open_segment(
        self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> SegmentFiles:
        return OpenSegment(self, partition, name, base_offset, next_base)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self.broker_folders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable("the broker's disk cannot be read", file=error.filename, reason=error.strerror)


class OpenSegment:
    """The real `SegmentFiles`."""

    def __init__(
        self, dirs: LogDirs, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> None:
        self._dirs, self._partition, self._name = dirs, partition, name
        self._base, self._next = base_offset, next_base
        before = dirs.snapshot(partition, name)
        self.lineage = before.lineage
        self.path = before.folder / f"{base_offset:020d}.log"
        self._folder = before.folder
        self._local = before.segments
        with ExitStack() as opened:
            try:
                file = opened.enter_context(self.path.open("rb"))
                self.log_bytes = os.fstat(file.fileno()).st_size
            except FileNotFoundError as error:
                raise Fenced("the segment left the disk meanwhile", file=self.path) from error
            except OSError as error:
                raise _unreadable(error) from error
            self.log = QuietReader(file.fileno(), self.log_bytes, str(self.path))
            opened.callback(self.log.close)
            self.offset_index = self._optional(base_offset, ".index")
            self.time_index = self._optional(base_offset, ".timeindex")
            self.producer_snapshot = self._optional(next_base, ".snapshot") or b""
            self.transaction_index = self._optional(base_offset, ".txnindex") or None
            self.before = self._open_before(base_offset)
            self.confirm()
            self._opened = opened.pop_all()

    def _optional(self, base: int, suffix: str) -> bytes | None:
        try:
            return (self._folder / f"{base:020d}{suffix}").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(error) from error

    def head(self) -> bytes:
        return self.log.read(min(HEADER_BYTES, self.log_bytes), 0)

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Reads their batches up to the last of these markers; none of segments in which no transaction ends."""
        left, found = dict(opened), list[AbortedRange]()
        later = (each.base_offset for each in self._local[self._local.number_at(self._base) + 1 :])
        for base, following in pairwise(chain(later, [None])):
            if not left:
                break
            if following is not None and left.items() <= self._open_before(following).transactions.items():
                continue
            segment = LogSegment(self._folder / f"{base:020d}.log", active=following is None)
            try:
                found += decide(left, segment.pieces(MARKERS_READ_BYTES), str(segment.path))
            except FileNotFoundError as error:
                raise Fenced("a later segment left the disk meanwhile", file=segment.path) from error
            except OSError as error:
                raise _unreadable(error) from error
        return tuple(found)

    def _open_before(self, base: int) -> OpenBefore:
        return open_before(base, self._optional(base, ".snapshot"), f"{base:020d}.snapshot")

    def confirm(self) -> None:
        now = self._dirs.snapshot(self._partition, self._name)
        found = now.segments.rolled[(at := now.segments.number_at(self._base)) : at + 1]
        # also its end: a look that missed the segment in between would make this one stand for offsets it has not got
        bounds = [(each.base_offset, each.next_base) for each in found]
        if now.folder != self._folder or bounds != [(self._base, self._next)]:
            raise Fenced("the segment left the folder", file=self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

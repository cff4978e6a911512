"""The agent's access to the broker's disks: the interface `LocalLog`, and its implementation over ``log.dirs``.

Only plain ``<topic>-<partition>`` folders are live. ``-delete``, ``-stray`` and ``-future`` folders are ignored, and so
are files that the broker is about to remove or replace (``.deleted``, ``.cleaned``, ``.swap``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Protocol, Self

from ..runtime.listener import Listener, ignore
from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import Fenced, Unavailable
from ..state.ids import BrokerId, TopicIdPartition
from ..state.lineage import continued_down
from ..state.local_segments import LocalSegments
from ..state.offsets import Offset
from ..state.segment import AbortedRange
from .batch import HEADER_BYTES
from .broker_folders import BrokerFolders
from .folder_events import FolderEvents, Touched
from .partition import FolderFiles, Stamp, folder_name, metadata_file, stamp_of
from .quiet_reader import QuietReader
from .segment import LogSegment
from .transaction_index import OpenBefore, open_before
from .transactions import decide

LOOKS = 5
"""Maximum number of reads of a folder. A read is repeated if the broker deletes files or adds an epoch meanwhile."""
MARKERS_READ_BYTES = 256 * 1024
"""Bytes of a later segment per read. The value is small because most transactions end soon after their segment."""


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    """A partition folder's state. ``segments`` ascend; the last one is active, with ``next_base`` equal to its base.

    ``lineage``: the ``checkpoint``, continued down to the log start (`continued_down`).
    """

    partition: TopicIdPartition
    name: str
    folder: Path
    segments: LocalSegments
    lineage: Lineage
    checkpoint: Lineage


class SegmentFiles(Protocol):
    """All files of one rolled segment. They stay readable if the broker deletes them: the log is open, the other files
    are in memory. ``producer_snapshot`` is that of the next segment's base offset.

    ``before``: the transactions that are open at the segment's base offset.
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
        """Return the first bytes of the log: a complete batch header, unless the log is shorter."""

    def aborted_later(self, opened: Mapping[int, Offset]) -> tuple[AbortedRange, ...]:
        """Return the transactions in ``opened`` whose next marker in a later local segment is an abort marker.

        ``opened`` maps the producer ids of transactions that are open at the segment's end to their first offsets.
        Raises CorruptData for damaged batches, and Fenced if a later segment was deleted.
        """

    def confirm(self) -> None:
        """Raise Fenced unless the folder still holds this segment with the same end, under the same topic id."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


class LocalLog(Protocol):
    """The partitions whose logs an agent reads: those on a broker's disks, or those that it fetches from their leaders.

    Thread-safe. Methods read the disks, or ask the brokers, unless their docstring excludes it.
    """

    @property
    def agent_id(self) -> BrokerId:
        """Return the broker whose disks the agent reads, or `COPIER`."""

    @property
    def broker(self) -> BrokerId:
        """Return the broker to ask what each broker of the cluster knows."""

    def broker_of(self, partition: TopicIdPartition) -> BrokerId:
        """Return the broker whose log of the partition is read here, as of the last `partitions`.

        Raises Fenced if the partition was not listed.
        """

    def require_owned(self, partition: TopicIdPartition) -> None:
        """Raise Fenced unless the agent may begin a term of the partition now. Reads and asks nothing."""

    def partitions(self) -> Mapping[TopicIdPartition, str]:
        """Return the topic name of every live partition. Returns the same object as before if nothing changed."""

    def listed(self) -> Mapping[TopicIdPartition, str]:
        """Return the last result of `partitions`, without reading the disks."""

    def touched(self) -> Touched:
        """Return the changes since the last call. This is only a hint: the operating system may not report all."""

    def snapshot(self, partition: TopicIdPartition, name: str, log_start: Offset | None = None) -> LocalSnapshot:
        """Return the partition's state. Raises Fenced if the partition is not on these disks under this topic id.

        ``log_start``: the broker's. The lineage reaches down to it (`continued_down`); None: to the last one passed
        here. Raises Unavailable if the folder changed during each of `LOOKS` reads.
        """

    def open_segment(
        self, partition: TopicIdPartition, name: str, base_offset: Offset, next_base: Offset
    ) -> SegmentFiles:
        """Open the rolled segment ``[base_offset, next_base)``. Raises Fenced if the folder no longer holds it."""


@dataclass(frozen=True, slots=True)
class _LiveFolder:
    """A live folder, and the stamp of its ``metadata`` file, which holds the topic id. A different stamp means that the
    folder was replaced. The new folder is not watched yet, even if the file's content is equal."""

    metadata: str
    stamp: Stamp | None
    topic: str
    partition: TopicIdPartition


class LogDirs:
    """Implements `LocalLog` on the folders that the broker uses (`BrokerFolders`)."""

    def __init__(self, folders: Sequence[Path], *, alone: bool = True, listener: Listener = ignore) -> None:
        """Take the arguments of `BrokerFolders` and raise the same errors."""
        self.broker_folders = BrokerFolders(folders, alone=alone, listener=listener)
        identity = self.broker_folders.identity
        self.cluster_id, self.node_id = identity.cluster_id, identity.node_id
        self.broker = self.agent_id = identity.node_id
        self._files = FolderFiles()
        self._live_folders: dict[str, _LiveFolder] = {}
        self._listed: Mapping[TopicIdPartition, str] = {}
        self._log_starts: dict[TopicIdPartition, Offset] = {}
        self._watch: FolderEvents | None = None
        self._looking = threading.Lock()

    def broker_of(self, partition: TopicIdPartition) -> BrokerId:
        return self.node_id

    def require_owned(self, partition: TopicIdPartition) -> None:
        """Do nothing: no other agent works on these disks, because they are locked."""

    def partitions(self) -> Mapping[TopicIdPartition, str]:
        with self._looking:
            folders: dict[str, _LiveFolder] = {}
            new: list[str] = []
            self.broker_folders.look()
            try:
                for entry in self._entries():
                    folder = self._live_folders.get(entry.path)
                    if folder is not None and folder.stamp == stamp_of(folder.metadata):
                        folders[entry.path] = folder
                    elif entry.is_dir() and folder_name(Path(entry.name)) is not None:
                        new.append(entry.path)  # also watched while the broker has not yet written the topic id
                        if (live := self._live(entry)) is not None:
                            folders[entry.path] = live
            except OSError as error:
                raise _unreadable(error) from error
            if self._watch is not None:
                self._watch.watch_roots(self.broker_folders.live)
                self._watch.watch(new)
            if folders != self._live_folders:
                self._live_folders = folders
                self._files.keep(folders)
                self._listed = {folder.partition: folder.topic for folder in folders.values()}
                for partition in self._log_starts.copy().keys() - self._listed.keys():
                    self._log_starts.pop(partition, None)
            return self._listed

    def listed(self) -> Mapping[TopicIdPartition, str]:
        return self._listed

    def touched(self) -> Touched:
        with self._looking:
            if self._watch is None:  # changes before the first call are unknown
                self._watch = FolderEvents(self.broker_folders.live)
                self._watch.watch(self._live_folders)
                return replace(self._watch.touched(), folders=True)
            return self._watch.touched()

    def _live(self, folder: os.DirEntry[str]) -> _LiveFolder | None:
        """Return the folder with its topic id and partition, or None while the topic id is unknown."""
        metadata = metadata_file(folder.path)
        stamp = stamp_of(metadata)  # before the read, so that a file replaced during the read is read again
        named, topic_id = folder_name(Path(folder.name)), self._files.topic_id(folder.path)
        if named is None or topic_id is None:
            return None
        return _LiveFolder(metadata, stamp, named[0], TopicIdPartition(topic_id, named[1]))

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

    def snapshot(self, partition: TopicIdPartition, name: str, log_start: Offset | None = None) -> LocalSnapshot:
        if log_start is not None:
            self._log_starts[partition] = log_start
        for _ in range(LOOKS):
            try:
                path = self._folder(partition, name)
                epoch = self._files.lineage(str(path)).last_epoch
                segments = self._files.segments.get(str(path), epoch)
                checkpoint = self._files.lineage(str(path))  # after the segments: no segment has a later epoch
                lineage = self._continued(partition, path, segments, checkpoint)
            except FileNotFoundError:
                continue  # the broker deleted a segment during the read, or the folder: then `_folder` raises Fenced
            except OSError as error:
                raise _unreadable(error) from error
            if checkpoint.last_epoch == epoch:
                return LocalSnapshot(partition, name, path, segments, lineage, checkpoint)
        raise Unavailable("the partition's folder does not stand still", partition=partition, topic=name)

    def _continued(
        self, partition: TopicIdPartition, folder: Path, segments: LocalSegments, checkpoint: Lineage
    ) -> Lineage:
        def epoch_of(offset: Offset) -> LeaderEpoch:
            at = segments.number_at(offset)
            path = folder / f"{segments[at].base_offset:020d}.log"
            return LogSegment(path, active=at == len(segments.rolled)).epoch_at(offset)

        log_start = self._log_starts.get(partition)
        return checkpoint if log_start is None or not segments else continued_down(checkpoint, log_start, epoch_of)

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

    def __exit__(self, *raised: object) -> None:
        self.close()


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable("the broker's disk cannot be read", file=error.filename, reason=error.strerror)


class OpenSegment:
    """Implements `SegmentFiles` on the files of a broker's folder."""

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
        """Read later batches up to the last marker that is needed. Skips segments in which no transaction ends."""
        left, aborted = dict(opened), list[AbortedRange]()
        later = (each.base_offset for each in self._local[self._local.number_at(self._base) + 1 :])
        for base, following in pairwise(chain(later, [None])):
            if not left:
                break
            if following is not None and left.items() <= self._open_before(following).transactions.items():
                continue
            segment = LogSegment(self._folder / f"{base:020d}.log", active=following is None)
            try:
                aborted += decide(left, segment.pieces(MARKERS_READ_BYTES), str(segment.path))
            except FileNotFoundError as error:
                raise Fenced("a later segment left the disk meanwhile", file=segment.path) from error
            except OSError as error:
                raise _unreadable(error) from error
        return tuple(aborted)

    def _open_before(self, base: int) -> OpenBefore:
        return open_before(base, self._optional(base, ".snapshot"), f"{base:020d}.snapshot")

    def confirm(self) -> None:
        current = self._dirs.snapshot(self._partition, self._name)
        segments = current.segments.rolled[(at := current.segments.number_at(self._base)) : at + 1]
        # compare the end too: if a read missed the next segment, this one would claim offsets that it does not have
        bounds = [(each.base_offset, each.next_base) for each in segments]
        if current.folder != self._folder or bounds != [(self._base, self._next)]:
            raise Fenced("the segment left the folder", file=self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()

"""List the segments of partition folders. Only changed folders are listed again.

A folder changed if its stamp (inode, change time, size) differs. The broker does not change a rolled segment, so its
size and its time index are read once. Only a truncation can make a rolled segment active again, and a new leader epoch
follows it. Then all segments are read again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from ..runtime.clock import Clock, SystemClock
from ..state.epochs import LeaderEpoch
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, TimestampMs
from .small_files import Stamp, stamp_of
from .time_index import ENTRY_BYTES

_LOG = re.compile(r"(\d{20})\.log")
SYSTEM_CLOCK = SystemClock()
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

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._looks: dict[str, _Look] = {}

    def get(self, folder: str, epoch: LeaderEpoch | None) -> LocalSegments:
        """Return a folder's segments. ``epoch``: the last epoch of its checkpoint. Raises FileNotFoundError if the
        folder or a segment was deleted."""
        before, stamp, now = self._looks.get(folder), stamp_of(folder), self._clock.monotonic()
        same = before is not None and before.epoch == epoch
        since = before.since if before is not None and before.stamp == stamp else now
        if before is not None and same and before.whole and before.stamp == stamp:
            segments = before.segments.with_active(_active(folder, before.segments[-1].base_offset))
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
    return kept.with_active(_active(folder, bases[-1])) if bases else LocalSegments()


def _active(folder: str, base: Offset) -> LocalSegment:
    return _segment(folder, base, base)


def _segment(folder: str, base: Offset, following: Offset) -> LocalSegment:
    segment = f"{folder}/{base:020d}"
    log = os.stat(f"{segment}.log")
    return LocalSegment(base, following, log.st_size, _max_timestamp(f"{segment}.timeindex", log.st_mtime))


def _max_timestamp(index: str, modified: float) -> TimestampMs:
    """Return the time index's last timestamp, or the log's modification time if there is none > 0, as Kafka does."""
    last = b""
    with suppress(FileNotFoundError):
        descriptor = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
        try:
            last = os.pread(descriptor, ENTRY_BYTES, max(0, os.fstat(descriptor).st_size - ENTRY_BYTES))
        finally:
            os.close(descriptor)
    stamp = int.from_bytes(last[:8], "big", signed=True) if len(last) == ENTRY_BYTES else 0
    return TimestampMs(stamp if stamp > 0 else int(modified * 1000))

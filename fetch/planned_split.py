"""The parts of a plan, and their bytes for executors.

The bytes are plain values, and each segment pickled once, with numbers in place of class names. Spark's driver holds
every split of a query, pickled separately, until the query ends. A split takes two thirds of the bytes that `pickle`
alone would need (0.6 kB, most of it the segment's descriptor), and a fifth of the CPU time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from ..state.epochs import EpochEntry, LeaderEpoch, Lineage
from ..state.errors import InvalidRequest, PlannedRangeLost
from ..state.ids import FactId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.offsets import Offset, OffsetRange
from ..state.routing import Isolation
from ..state.segment import AbortedRange, AbortedRanges, Compression, RemoteSegment, Term


class Skipped(NamedTuple):
    """Offsets ``[start, end)`` of a partition that neither tier has, which a person accepted as lost."""

    partition: int
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a split: ``segment`` serves exactly ``offsets``. None: the local tier serves them."""

    offsets: OffsetRange
    segment: RemoteSegment | None


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """The records of ``[start, end)`` of one partition. ``parts`` cover it, ascending, except for `skipped` offsets.

    ``plan``: a gateway's name for the plan that contains the split; empty if no gateway made it.
    """

    topic: str
    topic_id: TopicId
    partition: int
    start: Offset
    end: Offset
    isolation: Isolation
    leader_epoch: LeaderEpoch | None
    parts: tuple[PlannedPart, ...]
    plan: str = ""

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Return the accepted gaps of this split, ascending."""
        starts = [*(part.offsets.start for part in self.parts), self.end]
        ends = [self.start, *(Offset(part.offsets.end + 1) for part in self.parts)]
        gaps = zip(ends, starts, strict=True)
        return tuple(Skipped(self.partition, start, end) for start, end in gaps if start < end)


def range_lost(split: PlannedSplit, start: Offset, reason: str) -> PlannedRangeLost:
    """Return the error of a split whose records from ``start`` on cannot be read as planned."""
    return PlannedRangeLost(
        "a planned range cannot be read as planned",
        topic=split.topic,
        partition=split.partition,
        start=start,
        end=split.end,
        leader_epoch=split.leader_epoch,
        reason=reason,
    )


PROTOCOL = 5
CLASSES: tuple[type, ...] = (
    RemoteSegment,
    RemoteSegmentId,
    TopicId,
    TopicIdPartition,
    OffsetRange,
    Lineage,
    EpochEntry,
    Compression,
    AbortedRanges,
    AbortedRange,
    Term,
    FactId,
)
"""The classes of a segment's descriptor."""
_NUMBERS = {kind: number for number, kind in enumerate(CLASSES)}
_KINDS_OF_CLASSES = frozenset(type(kind) for kind in CLASSES)


class SplitWriter:
    """Packs the splits of one plan, in the plan's order. Not thread-safe."""

    def __init__(self) -> None:
        self._last: tuple[RemoteSegment, bytes] | None = None

    def packed(self, splits: Iterable[PlannedSplit]) -> bytes:
        """Return bytes from which `unpacked` makes equal splits."""
        return pickle.dumps([self._plain(split) for split in splits], PROTOCOL)

    def _plain(self, split: PlannedSplit) -> tuple[Any, ...]:
        parts = [
            (part.offsets.start, part.offsets.end, None if part.segment is None else self.segment(part.segment))
            for part in split.parts
        ]
        place = split.topic, str(split.topic_id), split.partition
        return (*place, split.start, split.end, split.isolation.value, split.leader_epoch, parts, split.plan)

    def segment(self, segment: RemoteSegment) -> bytes:
        """Return the segment's pickle. Neighbouring parts of one segment share it."""
        if self._last is None or self._last[0] is not segment:
            into = BytesIO()
            _SegmentPickler(into, PROTOCOL).dump(segment)
            self._last = segment, into.getvalue()
        return self._last[1]


def unpacked(packed: bytes) -> tuple[PlannedSplit, ...]:
    """Return the splits of `SplitWriter.packed`, from the same version of tierstate. Raises InvalidRequest."""
    try:
        return tuple(_split(*plain) for plain in pickle.loads(packed))
    except (pickle.UnpicklingError, IndexError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidRequest("splits of another version of tierstate than this executor's", reason=reason) from error


def _split(*plain: Any) -> PlannedSplit:
    topic, topic_id, partition, start, end, isolation, leader_epoch, parts, plan = plain
    planned_parts = tuple(
        PlannedPart(OffsetRange(first, last), None if segment is None else _SegmentUnpickler(BytesIO(segment)).load())
        for first, last, segment in parts
    )
    return PlannedSplit(
        topic, TopicId(topic_id), partition, start, end, Isolation(isolation), leader_epoch, planned_parts, plan
    )


class _SegmentPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> int | None:
        return _NUMBERS.get(obj) if type(obj) in _KINDS_OF_CLASSES else None


class _SegmentUnpickler(pickle.Unpickler):
    def persistent_load(self, pid: int) -> Any:
        return CLASSES[pid]

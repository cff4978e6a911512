"""The parts of a plan, and their bytes, which are sent to its readers. Class names are numbers in these bytes.

Spark's driver holds every split of a query, pickled separately, until the query ends. Numbers in place of class names
save a third of `pickle`'s bytes. A split then takes 0.6 kB, most of it the segment's descriptor.
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
    Isolation,
    PlannedPart,
    PlannedSplit,
)
_NUMBERS = {kind: number for number, kind in enumerate(CLASSES)}
_KINDS_OF_CLASSES = frozenset(type(kind) for kind in CLASSES)


def packed(splits: Iterable[PlannedSplit]) -> bytes:
    """Return bytes from which `unpacked` makes equal splits."""
    into = BytesIO()
    _Pickler(into, 5).dump(tuple(splits))
    return into.getvalue()


def unpacked(data: bytes) -> tuple[PlannedSplit, ...]:
    """Return the splits of `packed`, from the same version of tierstate. Raises InvalidRequest."""
    try:
        splits = _Unpickler(BytesIO(data)).load()
        if not all(isinstance(each, PlannedSplit) for each in splits):
            raise TypeError("not splits")
    except (pickle.UnpicklingError, IndexError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidRequest("splits of another version of tierstate than this executor's", reason=reason) from error
    return tuple(splits)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> int | None:
        return _NUMBERS.get(obj) if type(obj) in _KINDS_OF_CLASSES else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: int) -> Any:
        return CLASSES[pid]

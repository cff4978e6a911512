"""What a sweep by hand found, what of it goes, and why. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..leader.sweeper import Look
from ..rules.decide import paused
from ..rules.sweep import Finding, Leftover, only_copy
from ..rules.trim import doubt_of
from ..state.errors import Fenced, InvalidRequest
from ..state.object_keys import base_of
from ..state.object_name import not_own
from ..state.partition_view import PartitionView
from ..state.routing import LocalBounds
from ..state.segment import SegmentState

ABANDONED, CONDEMNED, ORPHAN, UNKNOWN, UPLOAD = "abandoned", "condemned", "orphan", "unknown", "upload"
BY_AGENT = "the agent sweeps it once it has seen it so for sweep.grace"


@dataclass(frozen=True, slots=True)
class Row:
    """One object, upload or (abandoned) segment. ``item`` None: agents alone see to it. ``sweep``: it goes."""

    topic: str
    view: PartitionView
    kind: str
    key: str
    bytes: int | None
    why: str
    item: Finding | Leftover | None = None
    sweep: bool = False

    @property
    def condemned(self) -> bool:
        """By a fact. What is not goes only when somebody lists it."""
        return self.item is not None and self.item.condemned

    def as_json(self, swept: bool) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.view.partition.partition,
            "topic_id": self.view.partition.topic_id,
            "kind": self.kind,
            "object_key": self.key,
            "bytes": self.bytes,
            "segment_id": self.item.segment_id if self.item else None,
            "why": self.why,
            "sweep": self.sweep,
            "swept": swept,
        }


def rows_of(topic: str, found: Look, bounds: LocalBounds | None, explicit: Collection[str]) -> list[Row]:
    """What a person is shown of one partition. ``bounds`` None: no broker answered."""
    view = found.view
    rows = _abandoned(topic, found, bounds)
    for each in found.findings:
        kind = CONDEMNED if each.condemned else UNKNOWN if each.segment_id is None else ORPHAN
        sweep = each.condemned or each.found.key in explicit
        rows.append(Row(topic, view, kind, each.found.key, each.found.size, each.why, each, sweep))
    for left in found.leftovers:
        sweep = left.condemned or left.upload.key in explicit
        rows.append(Row(topic, view, UPLOAD, left.upload.key, None, left.why, left, sweep))
    return rows


def _abandoned(topic: str, found: Look, bounds: LocalBounds | None) -> list[Row]:
    sizes: Counter[str] = Counter()
    for each in found.listed:
        sizes[base_of(each.key)] += each.size
    rows = []
    for segment in found.view.in_state(SegmentState.ABANDONED):
        if segment.subject is None:
            continue
        kept = only_copy(found.view, segment, bounds) if bounds else "no broker says whether it is the only copy"
        kept = not_own(segment.subject) or kept
        base = segment.subject.object_key
        rows.append(Row(topic, found.view, ABANDONED, base, sizes[base], kept or BY_AGENT))
    return rows


def check_explicit(rows: Collection[Row], looks: Collection[Look], explicit: Collection[str]) -> None:
    """All or nothing: raises InvalidRequest for the first listed key that is not there or that a fact names."""
    found = {row.key for row in rows if row.item is not None}
    for key in sorted(set(explicit) - found):
        there = any(each.key == key for look in looks for each in look.listed)
        said = "facts name this object: it is no orphan" if there else "no such object in these partitions"
        raise InvalidRequest(said, object_key=key)


def check_may_act(view: PartitionView) -> PartitionView:
    """``view``. Raises Fenced when nothing of the partition may be deleted now."""
    doubt = doubt_of(view)
    if doubt is not None:
        raise Fenced(str(doubt), topic=view.topic, partition=view.partition)
    if paused(view) is not None:
        raise Fenced("the partition is paused: `tierstate resume` it first", topic=view.topic, partition=view.partition)
    return view


def totals(rows: Collection[Row]) -> Mapping[str, dict[str, int]]:
    """Objects (of abandoned: segments) and bytes by kind."""
    kinds = (ABANDONED, CONDEMNED, ORPHAN, UNKNOWN, UPLOAD)
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in kinds}
    return {kind: {"count": len(some), "bytes": sum(row.bytes or 0 for row in some)} for kind, some in by_kind.items()}

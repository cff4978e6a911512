"""How far the local tier may be trimmed, and why not further. Pure.

Trimming is the only act that can lose data for good, so every condition is one line here, and the first that holds is
the reason people are shown. Rules marked * close a loss that a model or a review found (`docs/tier-state.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..state.offsets import Offset, TimestampMs
from ..state.partition_view import PartitionView
from ..state.retention import LocalSegment, TopicRetention, local_retention_end
from ..state.routing import LocalBounds


@dataclass(frozen=True, slots=True)
class TrimPolicy:
    """The ``[trim]`` settings, and what the topic's configuration says."""

    delay_ms: int
    allow_unclean: bool
    unclean_elections: bool


@dataclass(frozen=True, slots=True)
class TrimBefore:
    """The local tier may be trimmed below ``offset`` (a segment border). ``held_by``: groups that keep the rest."""

    offset: Offset
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoTrim:
    """Why the local tier stays as it is. ``held_by``: the consumer groups, when they are the reason."""

    reason: str
    held_by: tuple[str, ...] = ()


def trim_before(
    view: PartitionView,
    bounds: LocalBounds,
    segments: Sequence[LocalSegment],
    retention: TopicRetention,
    policy: TrimPolicy,
    holds: Mapping[str, Offset],
    now: TimestampMs,
) -> TrimBefore | NoTrim:
    """``holds``: consumer group to the lowest offset it still needs from the broker (empty: nobody holds)."""
    doubt = doubt_of(view)
    if doubt is not None:
        return NoTrim(doubt)
    if policy.unclean_elections and not policy.allow_unclean:
        return NoTrim("unclean.leader.election.enable=true on the topic (trim.allow_unclean is off)")
    kept_from = local_retention_end(segments, retention, now)
    if kept_from is None or kept_from <= bounds.local_start:
        return NoTrim("local retention keeps every local segment")
    durable = _durable_end(view, bounds, now - policy.delay_ms)
    limits = {
        "local retention": kept_from,
        "not copied yet, or within trim.delay": Offset(durable + 1),
        "last stable offset": bounds.last_stable_offset,
    }
    reason, limit = min(limits.items(), key=lambda item: item[1])
    held_by = tuple(sorted(group for group, offset in holds.items() if offset < limit))
    if held_by:
        first = min(held_by, key=lambda group: holds[group])
        reason, limit = f"consumer group {first} still reads there", holds[first]
    # the broker deletes whole segments only: a limit inside one is the border below it
    borders = [segment.next_base for segment in segments[:-1] if segment.next_base <= limit]
    if not borders or borders[-1] <= bounds.local_start:
        return NoTrim(reason, held_by)
    return TrimBefore(borders[-1], held_by)


def doubt_of(view: PartitionView) -> str | None:
    """What somebody must clear up before anything is trimmed; asked again right before DeleteRecords."""
    if view.degraded:
        return f"degraded: {view.degraded[0]}"
    if view.holds:
        return f"held: {view.holds[0].reason}"
    if view.contradictions:
        return f"contradiction: {view.contradictions[0]}"
    if view.lineage_unknown:
        return "lineage unknown: remote segments exist that the current lineage cannot place"
    if view.log_start is None:
        return "no term has written a log start yet"
    return None


def _durable_end(view: PartitionView, bounds: LocalBounds, copied_before: int) -> Offset:
    """Last offset of the gap-free prefix from max(log start, local start)* whose segments are older than the delay."""
    end = Offset(max(view.log_start or 0, bounds.local_start) - 1)
    while (owner := view.coverage.at(end + 1)) is not None and owner.segment.copied_at <= copied_before:
        end = owner.offsets.end
    return end

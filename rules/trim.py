"""Decides how far the local tier may be trimmed, and why not further. Pure.

Trimming is the only step that can lose data forever. So every condition is one line here, and the first condition that
prevents a trim is the reason shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..state.facts import LocalTrimIntended
from ..state.lineage import begun_after
from ..state.local_segments import LocalSegment, LocalSegments
from ..state.offsets import Offset, TimestampMs, moment
from ..state.partition_view import PartitionView
from ..state.retention import TopicRetention, local_retention_end
from ..state.routing import LocalBounds
from .candidates import why_not_stable
from .clocks import APART_MS
from .observed import GroupsSeen, Observed
from .reasons import Reason, Why, about_size, lasting

TRIM_AT_ONCE_BYTES = 1 << 30
"""The approximate size of one trim, which has at least one segment. The objects that replace the segments are verified
first, and may have to be read. The next trim follows immediately.
"""


@dataclass(frozen=True, slots=True)
class TrimPolicy:
    """The ``[trim]`` settings, and ``unclean.leader.election.enable`` of the topic."""

    delay_ms: int
    allow_unclean: bool
    unclean_elections: bool


@dataclass(frozen=True, slots=True)
class TrimBefore:
    """The decision to trim the local tier below ``offset`` (a segment boundary). ``held_by``: groups that hold more."""

    offset: Offset
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoTrim:
    """The decision not to trim the local tier, with its reason. ``held_by``: consumer groups that are the reason."""

    why: Why
    held_by: tuple[str, ...] = ()


def trim_before(
    view: PartitionView,
    seen: Observed,
    retention: TopicRetention,
    policy: TrimPolicy,
    now: TimestampMs,
    pinned_s: float = 0.0,
) -> TrimBefore | NoTrim:
    """Return how far to trim, or the first reason not to trim. ``pinned_s``: as in `next_candidate`."""
    bounds, segments, groups = seen.bounds, seen.segments, seen.groups
    holds = groups.holds
    if holds is None:
        because = f": {groups.unknown}" if groups.unknown else ""
        return NoTrim(Why(Reason.GROUPS_UNKNOWN, "consumer groups could not be listed completely" + because))
    if (doubt := doubt_of(view)) is not None:
        return NoTrim(doubt)
    if policy.unclean_elections and not policy.allow_unclean:
        text = "unclean.leader.election.enable=true on the topic, and trim.allow_unclean is off"
        return NoTrim(Why(Reason.UNCLEAN_ELECTIONS, text))
    kept_from = local_retention_end(segments, retention, now)
    if kept_from is None or kept_from <= bounds.local_start:
        return NoTrim(_why_all_stays(bounds, segments, retention, now))
    durable = _durable_end(view, bounds, now - policy.delay_ms)
    limit = min(kept_from, Offset(durable + 1), bounds.last_stable_offset)
    held_by = tuple(sorted(group for group, offset in holds.items() if offset < limit))
    unheld = limit
    if held_by:
        limit = min(holds[group] for group in held_by)
    # the broker deletes complete segments only: a limit inside a segment means its lower boundary
    local = LocalSegments.of(segments)
    rolled = local.rolled[local.number_at(bounds.local_start) : local.number_at(limit)]
    if not rolled:
        if held_by:
            return NoTrim(_why_held(groups, holds, held_by, segments, unheld), held_by)
        if bounds.last_stable_offset <= durable:
            unstable = next(each for each in segments if each.next_base > limit)
            return NoTrim(why_not_stable(unstable, bounds, pinned_s))
        return NoTrim(_why_not_durable(view, segments, Offset(durable + 1), policy.delay_ms, now))
    return TrimBefore(_end_at_once(rolled), held_by)


def doubt_of(view: PartitionView) -> Why | None:
    """Return the problem that a person must solve before any trim, or None. Called again right before DeleteRecords."""
    if view.degraded:
        return why_degraded(view)
    if view.holds:
        hold = view.holds[0]
        text = f"held: {hold.reason} ({_count(len(view.holds), 'hold')}, the first of {moment(hold.at)})"
        return Why(Reason.HELD, text)
    if view.contradictions:
        return Why(Reason.CONTRADICTION, f"contradiction: {view.contradictions[0]}{_more(view.contradictions)}")
    if view.lineage_unknown:
        first = next(iter(view.lineage.entries), None)
        begins = "no epoch" if first is None else f"epoch {first.epoch} at offset {first.start_offset}"
        text = "lineage unknown: remote segments exist that the current lineage cannot place: it begins with"
        return Why(Reason.LINEAGE_UNKNOWN, f"{text} {begins}")
    if view.log_start is None:
        return Why(Reason.NO_LOG_START, "no term has written a log start yet")
    return None


def doubt_of_orders(view: PartitionView) -> Why | None:
    """Return the doubt that stops even an order to delete, or None. An unknown lineage does not stop it: the order
    covers all below an offset, in whatever log, and nothing becomes readable. Otherwise no such order would ever end.
    """
    doubt = doubt_of(view)
    if doubt is not None and doubt.kind is Reason.LINEAGE_UNKNOWN and view.log_start is not None:
        return None
    return doubt


def why_degraded(view: PartitionView) -> Why:
    """Return the reason for a view with a fact that this version cannot read."""
    return Why(Reason.DEGRADED, f"degraded: {view.degraded[0]}{_more(view.degraded)}")


def _more(texts: Sequence[str]) -> str:
    return f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def _why_all_stays(
    bounds: LocalBounds, segments: Sequence[LocalSegment], retention: TopicRetention, now: TimestampMs
) -> Why:
    """Return the reason if local retention keeps all segments that the broker still has."""
    local = LocalSegments.of(segments)
    first = local.number_at(bounds.local_start)
    if first == len(local.rolled):
        active = f", {segments[-1].size_bytes:,} bytes" if segments else ""
        text = f"only the active segment is left on the broker, from {bounds.local_start} on{active}"
        return Why(Reason.ONLY_ACTIVE, text)
    oldest, limits = local[first], []
    if retention.local_ms >= 0:
        age = lasting(max(0, now - oldest.max_timestamp))
        limits.append(f"it is {age} old, not older than local.retention.ms, {lasting(retention.local_ms)}")
    if retention.local_bytes >= 0:
        total = local.size_bytes
        rest = total - local.rolled_bytes(0, first + 1)
        limit = f"less than local.retention.bytes, {about_size(retention.local_bytes)}"
        limits.append(
            f"segments go whole, and without it {about_size(rest)} of {about_size(total)} would stay, {limit}"
        )
    offsets = f"{oldest.base_offset}..{oldest.next_base - 1}"
    text = f"local retention keeps the oldest local segment, {offsets}: {'; '.join(limits) or 'without limits'}"
    return Why(Reason.LOCAL_RETENTION, text)


def _why_held(
    groups: GroupsSeen,
    holds: Mapping[str, Offset],
    held_by: tuple[str, ...],
    segments: Sequence[LocalSegment],
    could: Offset,
) -> Why:
    """Return the reason if consumer groups hold the trim. It names only offsets that a group reported."""
    first = min(held_by, key=lambda group: holds[group])
    local = LocalSegments.of(segments)
    held_bytes = local.rolled_bytes(local.number_at(holds[first]), local.number_at(could))
    others = f", and {_count(len(held_by) - 1, 'more group')}" if len(held_by) > 1 else ""
    where = f"still reads there, at offset {holds[first]}"
    if first in groups.uncommitted:
        where = "has a member there and committed nothing"
    asked_at = f" (asked {moment(groups.asked_at)})" if groups.asked_at is not None else ""
    text = f"consumer group {first} {where}{asked_at}{others}: {held_bytes:,} bytes below {could} could go otherwise"
    return Why(Reason.GROUP_HOLDS, text)


def _end_at_once(rolled: Sequence[LocalSegment]) -> Offset:
    """Return the end of the first segments that have at most `TRIM_AT_ONCE_BYTES` together; at least one."""
    size, end = 0, rolled[0].next_base
    for segment in rolled:
        size += segment.size_bytes
        if size > TRIM_AT_ONCE_BYTES:
            break
        end = segment.next_base
    return end


def _why_not_durable(
    view: PartitionView, segments: Sequence[LocalSegment], following: Offset, delay_ms: int, now: TimestampMs
) -> Why:
    owner = view.coverage.at(following)
    if owner is None:
        local = LocalSegments.of(segments)
        first = local.number_at(following)
        wait = f"{_count(len(local.rolled) - first, 'rolled segment')} of {local.rolled_bytes(first):,} bytes"
        return Why(Reason.NOT_COPIED, f"offset {following} is not copied yet: {wait} wait for it")
    age = now - owner.segment.copied_at
    text = f"segment {owner.segment.offsets} was copied {lasting(max(0, age))} ago, within trim.delay"
    if age < -APART_MS:
        text = f"a clock was {lasting(-age)} ahead when segment {owner.segment.offsets} was copied; trim.delay"
    return Why(Reason.TRIM_DELAY, f"{text} {lasting(delay_ms)}: it goes in {lasting(delay_ms - age)}")


def _durable_end(view: PartitionView, bounds: LocalBounds, copied_before: int) -> Offset:
    """Return the last offset, without a gap from max(log start, local start) on, of segments older than the delay."""
    end = Offset(max(view.log_start or 0, bounds.local_start) - 1)
    while (owner := view.coverage.at(end + 1)) is not None and owner.segment.copied_at <= copied_before:
        end = owner.offsets.end
    return end


def offsets_cut_elsewhere(view: PartitionView, local_start: Offset) -> int:
    """Return how many offsets the broker no longer has although no trim or log start of tierstate removed them."""
    if view.log_start is None or view.later:  # a fact that only a later release can read may be a trim
        return 0
    return max(0, local_start - max(view.log_start, _trimmed(view) or 0))


def cut_elsewhere(view: PartitionView, topic: str, local_start: Offset | None) -> str | None:
    """Return one sentence about `offsets_cut_elsewhere`; None if there are none.

    The broker's log start never moves the log start of the facts (`expire.py`), so such a cut deletes no remote data.
    The sentence includes the command that extends the cut: an operator may have meant both tiers.
    """
    if local_start is None or not offsets_cut_elsewhere(view, local_start):
        return None
    trimmed = _trimmed(view)
    limit = (
        f"our newest trim {trimmed}"
        if trimmed is not None
        else f"the log start {view.log_start}, and we trimmed nothing"
    )
    return (
        f"the broker begins at {local_start}, above {limit}: by Kafka's own retention, by tierstate rescue, by a trim "
        "whose fact was lost, or by DeleteRecords of an operator; readers get the records below from the remote tier. "
        "Only if an operator meant to delete them for good: "
        f"tierstate delete-records {topic}:{view.partition.partition} --before {local_start} --execute"
    )


def _trimmed(view: PartitionView) -> Offset | None:
    """Return the offset of tierstate's newest trim, at most the start of the first epoch after the trim's term."""
    trims = (fact for live, fact in reversed(view.of_kind(LocalTrimIntended)) if live.key not in view.fenced)
    newest = next(trims, None)
    if newest is None:
        return view.trim_intended
    end = begun_after(newest.term.epoch, view.lineage)
    return newest.offset if end is None else min(newest.offset, end)

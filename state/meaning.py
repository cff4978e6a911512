"""The definition of the meaning of a partition's live set. `apply.py` is its incremental twin.

Pure and total: any live set has a meaning. `fencing.py` defines which facts count, `lifecycle.py` the life of one
segment. This module combines them into a view: the term in force, the readable segments and the offsets they cover, the
log start, and all orders, leases and holds. The log start is the highest that an accepted fact names, as far as it
holds on the lineage in force: that of a lost log would hide, and release for deletion, records of the current log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .facts import (
    ContradictionSettled,
    GapAccepted,
    IntegrityHold,
    LineageSettled,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    ReaderLease,
    UnknownFact,
)
from .fencing import Leaders, is_fenced
from .ids import RemoteSegmentId, TopicIdPartition
from .lifecycle import kept_segments, segment_id_of, segment_meaning
from .lineage import highest_log_start
from .partition_view import PartitionView
from .sorting import SortedSegments, sort_out

F = TypeVar("F")


def meaning(partition: TopicIdPartition, live_set: Iterable[LiveFact]) -> PartitionView:
    """Return the view of one partition from its live set, which may be in any order. This is the definition."""
    facts = sorted(live_set, key=lambda live: live.position)
    leaders = Leaders.among(facts)
    others: list[LiveFact] = []
    by_segment: dict[RemoteSegmentId, list[LiveFact]] = {}
    for live in facts:
        segment_id = segment_id_of(live)
        if segment_id is None:
            others.append(live)
        else:
            by_segment.setdefault(segment_id, []).append(live)
    segments = {sid: segment_meaning(sid, of_segment, leaders) for sid, of_segment in by_segment.items()}
    return assemble(partition, others, leaders, sort_out(segments, leaders.lineage))


def assemble(
    partition: TopicIdPartition, others: list[LiveFact], leaders: Leaders, segments: SortedSegments
) -> PartitionView:
    """Return the view. ``others`` are the facts about no segment, in order of position."""
    fenced = {live.key for live in others if is_fenced(live, leaders)}
    accepted = [live for live in others if live.key not in fenced]
    readable = segments.readable
    log_starts = _of(accepted, LogStartAdvanced)
    trims = _of(accepted, LocalTrimIntended)
    deleted = _of(accepted, PartitionDeleted)
    settled = _of(others, ContradictionSettled)
    texts = {fact.contradiction for fact in settled}
    unknown = [(live, live.fact) for live in others if isinstance(live.fact, UnknownFact) and not live.fact.ignorable]
    return PartitionView(
        partition=partition,
        topic=leaders.leader.topic if leaders.leader else (readable[-1].topic if readable else None),
        leader=leaders.leader,
        term=leaders.highest,
        segments=segments.segments,
        unsettled=segments.unsettled,
        others=tuple(others),
        readable=readable,
        coverage=segments.coverage,
        log_start=highest_log_start(log_starts, leaders.lineage),
        log_starts=tuple(log_starts),
        trim_intended=trims[-1].offset if trims else None,
        orders=tuple(_of(others, OperatorOrder)),
        leases=tuple(_of(others, ReaderLease)),
        holds=tuple(_of(others, IntegrityHold)),
        missing=tuple(_of(others, PartitionMissing)),
        deleted=deleted[-1] if deleted else None,
        fenced=frozenset(fenced).union(segments.fenced),
        degraded=tuple(in_words(live, fact) for live, fact in unknown),
        later=tuple(in_words(live, fact) for live, fact in unknown if fact.later),
        contradictions=tuple(each for each in segments.contradictions if each not in texts),
        settled=tuple(settled),
        settled_lineages=tuple(_of(others, LineageSettled)),
        accepted_gaps=tuple(_of(others, GapAccepted)),
        kept=kept_segments(settled),
    )


def in_words(live: LiveFact, fact: UnknownFact) -> str:
    """Return why a fact cannot be read, with its position and key."""
    return f"{fact.reason}. position={live.position} key={live.key}"


def _of(facts: Iterable[LiveFact], kind: type[F]) -> list[F]:
    return [live.fact for live in facts if isinstance(live.fact, kind)]

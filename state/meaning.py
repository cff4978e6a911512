"""What a partition's live set means: the definition. `apply.py` is its incremental twin.

Pure and total: any live set has a meaning. Which facts count is said in `fencing.py`, the life of one segment in
`lifecycle.py`; here they come together: the term in force, the readable segments and what they cover, the log start
(the highest that an accepted fact names), and everything people ordered, pinned or held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from .coverage import Coverage
from .epochs import Lineage
from .facts import (
    IntegrityHold,
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
from .lifecycle import segment_id_of, segment_meaning
from .partition_view import PartitionView, SegmentMeaning
from .segment import SegmentState

F = TypeVar("F")


def meaning(partition: TopicIdPartition, live_set: Iterable[LiveFact]) -> PartitionView:
    """The definition: a live set of one partition, in any order, to its view."""
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
    return assemble(partition, others, leaders, segments)


def assemble(
    partition: TopicIdPartition,
    others: list[LiveFact],
    leaders: Leaders,
    segments: Mapping[RemoteSegmentId, SegmentMeaning],
    known: Coverage | None = None,
) -> PartitionView:
    """The view, from the facts about no segment in order of position and the meaning of each segment.

    ``known``: an earlier coverage of this partition, kept when the same segments are readable in the same lineage.
    """
    fenced = {live.key for live in others if is_fenced(live, leaders)}
    accepted = [live for live in others if live.key not in fenced]
    fenced.update(key for segment in segments.values() for key in segment.fenced)
    finished = (s.remote for s in segments.values() if s.state is SegmentState.COPY_SEGMENT_FINISHED)
    readable = tuple(sorted((s for s in finished if s), key=lambda s: (s.offsets.start, s.offsets.end, s.segment_id)))
    lineage = leaders.leader.lineage if leaders.leader else Lineage()
    if known is None or known.segments != readable or known.lineage != lineage:
        known = Coverage(readable, lineage)
    log_starts = [f.log_start for f in _of(accepted, LogStartAdvanced)]
    trims = _of(accepted, LocalTrimIntended)
    deleted = _of(accepted, PartitionDeleted)
    return PartitionView(
        partition=partition,
        topic=leaders.leader.topic if leaders.leader else (readable[-1].topic if readable else None),
        leader=leaders.leader,
        term=leaders.highest,
        segments=dict(segments),
        unsettled=tuple(
            sorted(
                (s for s in segments.values() if s.state is not SegmentState.COPY_SEGMENT_FINISHED),
                key=lambda s: (s.facts[0].position if s.facts else -1, s.segment_id),
            )
        ),
        others=tuple(others),
        readable=readable,
        coverage=known,
        log_start=max(log_starts) if log_starts else None,
        trim_intended=trims[-1].offset if trims else None,
        orders=tuple(_of(others, OperatorOrder)),
        leases=tuple(_of(others, ReaderLease)),
        holds=tuple(_of(others, IntegrityHold)),
        missing=tuple(_of(others, PartitionMissing)),
        deleted=deleted[-1] if deleted else None,
        fenced=frozenset(fenced),
        degraded=tuple(
            f"{live.fact.reason}. position={live.position} key={live.key}"
            for live in others
            if isinstance(live.fact, UnknownFact)
        ),
        contradictions=tuple(sorted(s.contradiction for s in segments.values() if s.contradiction)),
    )


def _of(facts: Iterable[LiveFact], kind: type[F]) -> list[F]:
    return [live.fact for live in facts if isinstance(live.fact, kind)]

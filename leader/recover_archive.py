"""The archive as recover reads it: the complete history of every partition, not only the last live facts.

A tombstone means that the live set no longer needs a fact, but a recovery may need it. For example, a segment whose
facts were all erased must not become readable again because its manifest still exists. So tombstones erase only facts
without a term here: orders, leases, holds, and decisions by people. All other facts of the history count. A copy fact
is erased only after its segment is deleted. So its tombstone alone shows the deletion, even if the delete fact is not
in the archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from ..rules.lost_facts import is_unfinished
from ..rules.recovery import ArchivedPartition, Standing
from ..schemas.codec import decode_fact
from ..state.apply import PartitionState
from ..state.errors import CorruptData, InvalidRequest
from ..state.facts import LeaderElected, LiveFact, LocalTrimIntended, SegmentDeleteStarted, UnknownFact
from ..state.ids import RemoteSegmentId, TopicIdPartition
from ..state.keys import SAID_BY_PEOPLE, KeyKind, ParsedKey, parse_key
from ..state.meaning import in_words
from ..state.partition_view import PartitionView
from ..state.segment import SegmentState
from ..state.view import Entry

BY_NO_TERM = SAID_BY_PEOPLE | {KeyKind.LEASE, KeyKind.LATER}


def about_partitions(entries: Iterable[Entry]) -> Iterator[tuple[ParsedKey, Entry]]:
    """Yield the entries that name a partition, with their keys.

    Raises CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    for entry in entries:
        try:
            key = parse_key(entry.key)
        except InvalidRequest as error:
            raise CorruptData(
                "the archive holds a key of unknown form", key=repr(entry.key), position=entry.position
            ) from error
        if key is not None:
            yield key, entry


def read_history(entries: Iterable[Entry]) -> dict[TopicIdPartition, ArchivedPartition]:
    """Return every partition that the entries name. Entries of a tier-state partition must be in order of position.

    Raises CorruptData for a key that no release of tierstate writes, because its meaning is unknown.
    """
    states: dict[TopicIdPartition, PartitionState] = {}
    erased: set[RemoteSegmentId] = set()
    for key, entry in about_partitions(entries):
        if entry.value is None and key.kind in BY_NO_TERM:  # the partition may have no facts: clocks, signatures
            if key.partition in states:
                states[key.partition].erase(entry.key)
            continue
        state = states.setdefault(key.partition, PartitionState(key.partition))
        if entry.value is not None:
            fact = decode_fact(entry.key, entry.value)
            if not isinstance(fact, LocalTrimIntended):  # there are many, and a recovery does not need them
                state.insert(LiveFact(entry.key, entry.position, fact))
        elif key.kind in (KeyKind.COPY_STARTED, KeyKind.COPY_FINISHED) and key.segment_id is not None:
            erased.add(key.segment_id)
    return {partition: said_by(state.view(), erased) for partition, state in states.items()}


def said_by(view: PartitionView, erased: Set[RemoteSegmentId] = frozenset()) -> ArchivedPartition:
    """Return a partition's facts as a recovery needs them. ``erased``: the segments whose copy facts were erased."""
    # If the oldest part of the archive was dropped, a copy-finished may lack its copy-started: the state is unknown.
    states = {
        sid: each.state
        for sid, each in view.segments.items()
        if each.contradiction is None or each.state is not SegmentState.ABANDONED
    }
    states.update({sid: SegmentState.DELETE_SEGMENT_FINISHED for sid in view.segments if sid in erased})
    deletes = {sid: each.deleting.fact for sid, each in view.segments.items() if each.deleting is not None}
    return ArchivedPartition(
        partition=view.partition,
        leader=view.leader,
        log_starts=view.log_starts,
        states=states,
        reasons={sid: fact.reason for sid, fact in deletes.items() if isinstance(fact, SegmentDeleteStarted)},
        finished={segment.segment_id: segment for segment in view.readable if segment.segment_id not in erased},
        standing=tuple(live.fact for live in view.others if isinstance(live.fact, Standing)),
        deleted=view.deleted is not None,
        unreadable=view.degraded,
        ignorable=tuple(
            in_words(live, live.fact)
            for live in view.others
            if isinstance(live.fact, UnknownFact) and live.fact.ignorable
        ),
        addresses=frozenset(
            live.fact.management_address
            for live in view.others
            if isinstance(live.fact, LeaderElected) and live.fact.management_address
        ),
        unfinished=frozenset(sid for sid, each in view.segments.items() if is_unfinished(each)),
    )


def continued(
    older: Mapping[TopicIdPartition, ArchivedPartition], newer: Mapping[TopicIdPartition, ArchivedPartition]
) -> dict[TopicIdPartition, ArchivedPartition]:
    """Merge the archives of two tier-state topics of one cluster, the newer one recovered from the older one.

    The newer archive takes precedence. The older one adds what the newer one lacks. Deleted segments stay deleted.
    """
    both = dict(older)
    for partition, now in newer.items():
        before = older.get(partition)
        both[partition] = now if before is None else _continued(before, now)
    return both


def _continued(before: ArchivedPartition, now: ArchivedPartition) -> ArchivedPartition:
    deletes = {
        sid: state
        for sid, state in before.states.items()
        if state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    }
    finished = {**before.finished, **now.finished}
    states = {**before.states, **now.states, **deletes}
    return replace(
        now,
        leader=now.leader or before.leader,
        log_starts=before.log_starts + now.log_starts,
        states=states,
        reasons={**before.reasons, **now.reasons},
        finished={sid: s for sid, s in finished.items() if states[sid] is SegmentState.COPY_SEGMENT_FINISHED},
        deleted=before.deleted or now.deleted,
        unreadable=(*before.unreadable, *now.unreadable),
        ignorable=(*before.ignorable, *now.ignorable),
        addresses=before.addresses | now.addresses,
        unfinished=now.unfinished | {sid for sid in before.unfinished if sid not in now.states},
    )

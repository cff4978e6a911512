"""A sweep by hand: find objects that no segment needs, show which are to be deleted and why, and delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...follower.follower import Follower
from ...leader.expirer import Quarantine
from ...leader.lost_facts import list_segments
from ...leader.sweeper import SweepFindings, SweepTools, delete_orphan, look
from ...rules.decide import paused
from ...rules.lost_facts import way_out
from ...rules.sweep import Leftover, UnneededObject, nowhere_else, only_copy
from ...rules.trim import doubt_of
from ...runtime.listener import ignore
from ...state.errors import Fenced, InvalidRequest, ObjectNotFound, TierstateError, TierStateLost
from ...state.ids import TopicId, TopicIdPartition
from ...state.object_keys import base_of, not_own
from ...state.partition_view import PartitionView
from ...state.routing import LocalBounds
from ...state.segment import RemoteSegment, SegmentState
from ...storage.object_store import ObjectStore
from ...storage.probe import NEVER_THERE
from ..looking.lost_state import lost_facts_tools
from ..opening.connection import Connection, view_now
from ..opening.partitions import bounds_if_known, partitions_with_facts

ABANDONED, CONDEMNED, ORPHAN, UNKNOWN, UPLOAD = "abandoned", "condemned", "orphan", "unknown", "upload"
BY_AGENT = "the agent sweeps it once it has seen it so for sweep.grace"


@dataclass(frozen=True, slots=True)
class Row:
    """One object, upload or abandoned segment. ``item`` None: only agents delete it. ``sweep``: to be deleted now."""

    topic: str
    view: PartitionView
    kind: str
    key: str
    bytes: int | None
    why: str
    item: UnneededObject | Leftover | None = None
    sweep: bool = False

    @property
    def condemned(self) -> bool:
        """Return whether a fact marks it for deletion. Other objects are deleted only if a person lists them."""
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


def rows_of(topic: str, findings: SweepFindings, bounds: LocalBounds | None, explicit: Collection[str]) -> list[Row]:
    """Return the rows of one partition. ``bounds`` None: no broker answered. ``explicit``: keys that a person lists."""
    view = findings.view
    rows = _abandoned(topic, findings, bounds)
    for each in findings.findings:
        kind = CONDEMNED if each.condemned else UNKNOWN if each.segment_id is None else ORPHAN
        sweep = each.condemned or each.info.key in explicit
        rows.append(Row(topic, view, kind, each.info.key, each.info.size, each.why, each, sweep))
    for leftover in findings.leftovers:
        sweep = leftover.condemned or leftover.upload.key in explicit
        rows.append(Row(topic, view, UPLOAD, leftover.upload.key, None, leftover.why, leftover, sweep))
    return rows


def _abandoned(topic: str, findings: SweepFindings, bounds: LocalBounds | None) -> list[Row]:
    sizes: Counter[str] = Counter()
    for each in findings.listed:
        sizes[base_of(each.key)] += each.size
    rows = []
    for segment in findings.view.in_state(SegmentState.ABANDONED):
        if segment.subject is None:
            continue
        reason = only_copy(findings.view, segment, bounds) if bounds else "no broker says whether it is the only copy"
        reason = not_own(segment.subject) or reason
        base = segment.subject.object_key
        rows.append(Row(topic, findings.view, ABANDONED, base, sizes[base], reason or BY_AGENT))
    return rows


def check_explicit(rows: Collection[Row], looks: Collection[SweepFindings], explicit: Collection[str]) -> None:
    """Raise InvalidRequest for the first listed key that is missing or that a fact names. Nothing is deleted then."""
    keys = {row.key for row in rows if row.item is not None}
    for key in sorted(set(explicit) - keys):
        there = any(each.key == key for look in looks for each in look.listed)
        message = "facts name this object: it is no orphan" if there else "no such object in these partitions"
        raise InvalidRequest(message, object_key=key)


def check_no_evidence(
    findings: SweepFindings, whole: Iterable[RemoteSegment], bounds: LocalBounds | None, explicit: Collection[str]
) -> None:
    """Raise TierStateLost for a listed object of a ``whole`` segment that may be the only copy of its offsets. No fact
    names this segment because its facts were lost. ``bounds`` None: no broker answered.
    """
    listed = {base_of(key) for key in explicit}
    for segment in whole:
        if segment.object_key not in listed:
            continue
        why: str | None = "no broker says whether it is the only copy"
        if bounds is not None:
            why = nowhere_else(findings.view, segment.offsets, findings.view.log_start, bounds)
        if why is not None:
            number = segment.partition.partition
            raise TierStateLost(
                f"this is no orphan, its facts were lost: {why}; {way_out(segment.topic, number)}",
                object_key=segment.object_key,
            )


def check_may_act(view: PartitionView) -> PartitionView:
    """Return ``view``. Raises Fenced if nothing of the partition may be deleted now."""
    doubt = doubt_of(view)
    if doubt is not None:
        raise Fenced(str(doubt), topic=view.topic, partition=view.partition)
    if paused(view) is not None:
        raise Fenced("the partition is paused: `tierstate resume` it first", topic=view.topic, partition=view.partition)
    return view


def totals(rows: Collection[Row]) -> Mapping[str, dict[str, int]]:
    """Return, by kind, the number of objects (for abandoned: of segments) and their bytes."""
    kinds = (ABANDONED, CONDEMNED, ORPHAN, UNKNOWN, UPLOAD)
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in kinds}
    return {kind: {"count": len(some), "bytes": sum(row.bytes or 0 for row in some)} for kind, some in by_kind.items()}


def _error_of(store: ObjectStore) -> TierstateError | None:
    """Return why the store does not answer, or None if it does."""
    try:
        store.head(NEVER_THERE)
    except ObjectNotFound:
        return None
    except TierstateError as error:
        return error
    return None


class SweepByHand:
    """The findings, partition by partition, and their deletion. ``explicit``: keys to delete that no fact marks."""

    def __init__(self, connection: Connection, follower: Follower, explicit: frozenset[str]) -> None:
        settings, self._broker, self._clock = connection.settings, connection.control, connection.clock
        self._follower, self._explicit = follower, explicit
        self._topics, self._tiering = self._broker.topics(), settings.tiering
        self._names = {described.topic_id: described.name for described in self._topics}
        self._lost = lost_facts_tools(connection)
        archived, aside = self._lost.archived_deletes, Quarantine(settings.sweep.quarantine_prefix)
        self._tools = SweepTools(connection.store, connection.names, archived, settings.sweep.grace, ignore, aside)
        self.rows: list[Row] = []
        self.looks: list[SweepFindings] = []
        self.unseen: dict[str, TierstateError] = {}
        """The partitions whose objects may be in a store of topics that is away, by name, with its error."""
        self._holders = connection.holders
        self._away = {store: error for store in connection.stores[1:] if (error := _error_of(store)) is not None}

    def partitions(self, topic_id: TopicId | None, number: int | None) -> list[TopicIdPartition]:
        """Return partitions that facts name, and those of tiered or chosen topics: objects may lack facts."""
        partitions = set(partitions_with_facts(self._follower, topic_id, number))
        for described in self._topics:
            tiered = topic_id is None and not described.internal and self._tiering.covers(described.name)
            if tiered or described.topic_id == topic_id:
                partitions |= {TopicIdPartition(described.topic_id, each.partition) for each in described.partitions}
        return sorted(each for each in partitions if number in (None, each.partition))

    def look(self, partition: TopicIdPartition) -> None:
        """List the partition's objects, then read its facts, and add its rows. Raises as `check_no_evidence`."""
        before = self._follower.partition(partition)
        name = before.topic or self._names.get(partition.topic_id)
        if name is None:
            return
        folder = self._tools.keys.partition_prefix(name, partition.topic_id, partition.partition)
        if away := [self._away[store] for store in self._holders(folder) if store in self._away]:
            self.unseen[partition.named(name)] = away[0]
            return
        fresh = partial(view_now, self._follower, partition)
        findings = look(self._tools, name, before, fresh, self._clock.now_ms())
        self.looks.append(findings)
        bounds = bounds_if_known(self._broker, name, partition)
        rows = rows_of(name, findings, bounds, self._explicit)
        self.rows += rows
        if any(row.sweep and not row.condemned for row in rows):
            left_segments = self._lost.left_behind()
            unknown = [each.segment for each in list_segments(self._lost, name, findings.view).unknown]
            whole = [each for each in unknown if each.segment_id not in left_segments]
            check_no_evidence(findings, whole, bounds, [row.key for row in rows if row.sweep and not row.condemned])

    def check(self, *, execute: bool) -> None:
        """Check the rows before anything is deleted. Raises InvalidRequest, Fenced."""
        check_explicit(self.rows, self.looks, self._explicit)
        for row in self.rows:
            if execute and row.sweep:
                check_may_act(row.view)

    def delete(self, store: ObjectStore) -> Iterator[str]:
        """Delete the objects to sweep, and yield each key afterwards. Each object is first checked by the newest facts.

        ``store``: a store that may be changed (`prefix.changing`).
        """
        tools = replace(self._tools, store=store)
        for row in self.rows:
            if row.sweep and row.item is not None:
                trusted = partial(self._trusted, row.view.partition)
                delete_orphan(tools, row.item, row.topic, trusted, condemned_only=row.condemned)
                yield row.key

    def _trusted(self, partition: TopicIdPartition) -> PartitionView:
        return check_may_act(view_now(self._follower, partition))

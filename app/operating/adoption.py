"""Adopts another writer's segments as history of their topic id: copied into this bucket, proven, recorded in facts.

    for each segment:   read whole, every batch checked  ->  log, indexes  ->  manifest  ->  objects proven
    for each partition: term, log start, copy-started and copy-finished of each segment      ← the commit point

Objects come before facts, at a key that depends on the segment alone. So an adoption that died goes on: a segment with
a manifest is proven again by its objects, and objects without a manifest are written again. A manifest is written for a
proven segment only. An agent begins no first term of a partition whose objects are in the bucket (`known.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ...leader.copier import CopyTools, ManifestSource, upload
from ...leader.recover import RecoverTools, add_lost_facts
from ...leader.recover_scan import continued, found_by, look_at, said_by
from ...rules.adoption import Proposal
from ...rules.recovery import ArchivedPartition, FoundSegment
from ...runtime.operation import Operation
from ...state.errors import CorruptData, InvalidRequest, ObjectNotFound, TierstateError
from ...state.object_keys import ObjectKind, object_key
from ...state.partition_view import PartitionView
from ...state.segment import CopyAttempt, RemoteSegment
from ...storage.object_store import ObjectReader
from ...storage.segment.encryption import KeyUnwrapper
from ...storage.segment.reader import SegmentReader
from ...storage.segment.writer import delete_segment
from .foreign_segments import ForeignFiles, batches_of, require_equal

REFUSED = (CorruptData, ObjectNotFound, InvalidRequest)
"""Errors of one segment. All others end the adoption: it is run again."""


@dataclass(frozen=True, slots=True)
class AdoptTools:
    """``keys`` opens the other writer's segments. ``require``: raises if this process may not write objects,
    ``require_facts``: or facts. ``done`` gets the plain bytes of each segment that was handled.
    """

    source: ObjectReader
    keys: KeyUnwrapper | None
    copy: CopyTools
    recover: RecoverTools
    past_holes: bool = False
    require: Callable[[], object] = lambda: None
    require_facts: Callable[[], object] = lambda: None
    done: Callable[[int], object] = lambda size: None

    def open(self, segment: RemoteSegment, *, own: bool) -> SegmentReader:
        """Open a segment of this bucket, or of the other writer's."""
        store, keys = (self.copy.store, self.copy.proof.keys) if own else (self.source, self.keys)
        return SegmentReader.open(store, segment.object_key, keys=keys)


def recorded(elsewhere: ArchivedPartition, view: PartitionView) -> ArchivedPartition:
    """Return what the other writer's archive and the facts record together. The facts come first."""
    if view.term is None:
        return elsewhere
    both = continued({view.partition: elsewhere}, {view.partition: said_by(view)})[view.partition]
    # without a log start, an adoption died before it had written all facts that no term writes
    return replace(both, standing=elsewhere.standing) if view.log_start is None else both


@dataclass(frozen=True, slots=True)
class Adopted:
    """The outcome for a partition. ``problems``: why segments were refused, by their object keys."""

    proposal: Proposal
    problems: Mapping[str, str]


def adopt_partition(proposal: Proposal, tools: AdoptTools) -> Operation[Adopted]:
    """Copy and prove the segments in order, then record them. Nothing behind a refused one is recorded, unless
    ``tools.past_holes``. Raises Fenced, Unavailable, AccessDenied, StorageFull: run it again.
    """
    proven, problems, behind = list[FoundSegment](), dict[str, str](), list(proposal.behind)
    for at, each in enumerate(proposal.new):
        if problems and not tools.past_holes:
            behind = [*proposal.new[at:], *behind]
            break
        try:
            proven.append((yield from _adopt(each, proposal, proven, tools)))
        except REFUSED as error:
            problems[each.segment.object_key] = str(error)
        tools.done(each.segment.log_bytes)
    lost = proposal.believed(proven)
    if lost.segments:
        tools.require_facts()
        yield from add_lost_facts(lost, tools.recover)
    plan = replace(lost.plan, left_out=proposal.plan.left_out)
    return Adopted(replace(proposal, plan=plan, new=lost.segments, behind=tuple(behind)), problems)


def _adopt(
    found: FoundSegment, proposal: Proposal, proven: list[FoundSegment], tools: AdoptTools
) -> Operation[FoundSegment]:
    """Return the segment as it stands in this bucket, copied if it was not there, and proven by its bytes."""
    _compare(found.segment, proposal, proven, tools)
    segment, copy, place = found.segment, tools.copy, found.segment.partition
    base, sid, name = segment.offsets.start, segment.segment_id, segment.topic
    key = copy.keys.base_key(name, place.topic_id, place.partition, base, sid)
    objects = {info.key: info for info in copy.store.list(key)}
    if object_key(key, ObjectKind.MANIFEST) in objects:
        stored, form = look_at(copy.store, key, objects, judge=found_by), copy.format
        ours = form.cluster_id, form.tier_state_topic_id
        if not isinstance(stored, FoundSegment) or (stored.cluster_id, stored.tier_state_topic_id) != ours:
            problem = "other objects stand where the copy would be: name another store, or another format.key_prefix"
            raise InvalidRequest(problem, object_key=key)
        require_equal(segment, stored.segment)
        copy.proof.require(stored.segment)
        return stored
    times = segment.term, segment.broker_id, found.started_at
    attempt = CopyAttempt(place, name, sid, segment.offsets, key, *times)
    if objects:
        yield "delete what an earlier attempt left"
        delete_segment(copy.store, attempt)
    return replace(found, segment=(yield from _copied(found, attempt, proposal, tools)))


def _copied(
    found: FoundSegment, attempt: CopyAttempt, proposal: Proposal, tools: AdoptTools
) -> Operation[RemoteSegment]:
    """Copy the segment. Its manifest is written last, when every byte was checked."""
    segment, copy = found.segment, tools.copy
    own = {each.segment.segment_id for each in proposal.readable}

    def later() -> Iterator[SegmentReader]:
        for each in proposal.later(segment):
            yield tools.open(each, own=each.segment_id in own)

    def pace(size: int) -> None:
        tools.require()
        copy.throttle(size)

    with ForeignFiles(tools.source, segment, tools.keys, later) as files:

        def require(copied: RemoteSegment) -> None:
            require_equal(segment, copied)
            files.confirm()

        facts = ManifestSource(tools.recover.clock.now_ms, lambda: found.log_start, require)
        try:
            copied = yield from upload(attempt, files, copy, pace, facts)
            copy.proof.require(copied)
        except REFUSED:  # after other errors a write may still land: the next run deletes what it finds
            with suppress(TierstateError):
                delete_segment(copy.store, attempt)
            raise
        return copied


def _compare(segment: RemoteSegment, proposal: Proposal, proven: list[FoundSegment], tools: AdoptTools) -> None:
    """Raise CorruptData if another whole segment of this log has other bytes for the same offsets."""
    here, there = proposal.shared(segment, proven)
    for own, pairs in ((True, here), (False, there)):
        for other, offsets in pairs:
            try:
                theirs = batches_of(tools.open(other, own=own), offsets)
            except (CorruptData, ObjectNotFound):
                continue  # a damaged segment contradicts nothing
            if batches_of(tools.open(segment, own=False), offsets) != theirs:
                keys = {"object_key": segment.object_key, "other": other.object_key}
                raise CorruptData("two segments of one log have other bytes for the same offsets", **keys)

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

from ...leader.copier import CopyTools, Place, upload
from ...leader.recover import RecoverTools, add_lost_facts
from ...leader.recover_scan import DamagedManifest, Found, found_by, look_at
from ...rules.adoption import Proposal
from ...rules.recovery import FoundSegment
from ...runtime.operation import Operation
from ...state.errors import CorruptData, InvalidRequest, ObjectNotFound, TierstateError
from ...state.object_keys import ObjectKind, object_key
from ...state.segment import CopyAttempt, RemoteSegment
from ...storage.object_store import ObjectReader
from ...storage.segment.encryption import KeyUnwrapper
from ...storage.segment.reader import SegmentReader
from ...storage.segment.writer import delete_segment
from .foreign_segments import ForeignFiles, Readers, require_equal

REFUSED = (CorruptData, ObjectNotFound, InvalidRequest)
"""Errors of one segment. All others end the adoption: it is run again."""


@dataclass(frozen=True, slots=True)
class AdoptTools:
    """``keys`` opens the other writer's segments. ``require``: raises if this process may write no more objects,
    ``require_facts``: or no facts. ``done`` gets the plain bytes of each segment that was handled.
    """

    source: ObjectReader
    keys: KeyUnwrapper | None
    copy: CopyTools
    recover: RecoverTools
    past_holes: bool = False
    require: Callable[[], object] = lambda: None
    require_facts: Callable[[], object] = lambda: None
    done: Callable[[int], object] = lambda size: None


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
    outcome = replace(proposal, plan=lost.plan, new=lost.segments, behind=tuple(behind))
    return Adopted(outcome, problems)


def _adopt(
    found: FoundSegment, proposal: Proposal, proven: list[FoundSegment], tools: AdoptTools
) -> Operation[FoundSegment]:
    """Return the segment as it stands in this bucket, copied if it was not there, and proven by its bytes."""
    _compare(found, proposal, proven, tools)
    segment, copy = found.segment, tools.copy
    partition = segment.partition
    key = copy.keys.base_key(
        segment.topic, partition.topic_id, partition.partition, segment.offsets.start, segment.segment_id
    )
    attempt = CopyAttempt(
        partition,
        segment.topic,
        segment.segment_id,
        segment.offsets,
        key,
        segment.term,
        segment.broker_id,
        found.started_at,
    )
    objects = {info.key: info for info in copy.store.list(key)}
    if object_key(key, ObjectKind.MANIFEST) in objects:
        stored = _own(look_at(copy.store, key, objects, judge=found_by), tools)
        require_equal(segment, stored.segment)
    else:
        if objects:
            yield "delete what an earlier attempt left"
            delete_segment(copy.store, attempt)
        stored = replace(found, segment=(yield from _copied(found, attempt, proposal, tools)))
    copy.proof.require(stored.segment)
    return stored


def _own(finding: Found, tools: AdoptTools) -> FoundSegment:
    """Return the finding if an adoption into this tier-state topic wrote it. Raises InvalidRequest, CorruptData."""
    form = tools.copy.format
    ours = form.cluster_id, form.tier_state_topic_id
    if isinstance(finding, FoundSegment) and (finding.cluster_id, finding.tier_state_topic_id) == ours:
        return finding
    if isinstance(finding, DamagedManifest):
        raise CorruptData(f"the copy in this bucket is damaged: {finding.problem}", object_key=finding.key)
    problem = "other objects stand where the copy would be: use another store, or another format.key_prefix"
    raise InvalidRequest(problem, object_key=finding.segment.object_key if isinstance(finding, FoundSegment) else None)


def _copied(
    found: FoundSegment, attempt: CopyAttempt, proposal: Proposal, tools: AdoptTools
) -> Operation[RemoteSegment]:
    """Copy the segment. Its manifest is written last, when every byte was checked."""
    segment, readers = found.segment, Readers(tools.source, tools.keys)
    own = Readers(tools.copy.store, tools.copy.proof.keys)
    ids = {each.segment.segment_id for each in proposal.readable}

    def later() -> Iterator[SegmentReader]:
        for each in proposal.later(segment):
            yield (own if each.segment_id in ids else readers).open(each)

    def pace(size: int) -> None:
        tools.require()
        tools.copy.throttle(size)

    with ForeignFiles(tools.source, segment, tools.keys, later) as files:

        def require(copied: RemoteSegment) -> None:
            require_equal(segment, copied)
            files.confirm()

        place = Place(tools.recover.clock.now_ms, lambda: found.log_start, require)
        try:
            return (yield from upload(attempt, files, tools.copy, pace, place))
        except TierstateError:
            with suppress(TierstateError):
                delete_segment(tools.copy.store, attempt)
            raise


def _compare(found: FoundSegment, proposal: Proposal, proven: list[FoundSegment], tools: AdoptTools) -> None:
    """Raise CorruptData if another whole segment of this log has other bytes for the same offsets."""
    source, own = Readers(tools.source, tools.keys), Readers(tools.copy.store, tools.copy.proof.keys)
    here, there = proposal.shared(found.segment, proven)
    for readers, other, offsets in [*((own, *each) for each in here), *((source, *each) for each in there)]:
        try:
            theirs = readers.batches(other, offsets)
        except (CorruptData, ObjectNotFound):
            continue  # a damaged segment contradicts nothing
        if source.batches(found.segment, offsets) != theirs:
            keys = {"object_key": found.segment.object_key, "other": other.object_key}
            raise CorruptData("two segments of one log have other bytes for the same offsets", **keys, offsets=offsets)

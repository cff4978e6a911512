"""Facts that name another partition's objects, and objects that are another's in spite of their name, are not read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fetch.two_tiers import Golden
from tests.leader.forger import events_segment, forged, stolen
from tierstate.state.errors import CorruptData, LogGap
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectKind, ObjectName, object_key
from tierstate.state.offsets import Offset, OffsetRange, Position
from tierstate.state.routing import Isolation
from tierstate.state.segment import RemoteSegment
from tierstate.storage.segment.reader import SegmentReader

Make = Callable[..., Golden]
EVIL = TopicIdPartition(TopicId.of(b"another topic id"), 0)


def read(golden: Golden, segment: RemoteSegment) -> bytes | memoryview:
    return golden.remote.read(segment, segment.offsets, 1 << 20, Isolation.READ_UNCOMMITTED).data


def under_own_name(golden: Golden, owner: TopicIdPartition) -> RemoteSegment:
    """Copy the first segment's objects to the name that ``owner`` would use. Return the segment for its fact."""
    segment = golden.segments[0]
    key = str(ObjectName("evil", owner, segment.offsets.start, segment.segment_id))
    for kind in ObjectKind:
        data = golden.tiers.store.get(object_key(segment.object_key, kind))
        golden.tiers.store.put_if_absent(object_key(key, kind), data)
    return replace(stolen(segment, owner, "evil", segment.term), object_key=key)


def test_what_a_forged_fact_names_is_a_gap_and_not_anothers_records(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    start, following = golden.folder.bases[1:3]
    golden.local.local_start = following
    theirs = replace(events_segment(start=start, end=following - 1), leader_epochs=golden.segments[0].leader_epochs)
    segment = stolen(theirs, golden.tiers.partition, "t", golden.tiers.term)
    for kind in ("copy-started", "copy-finished"):
        golden.tiers.say(forged(segment)[kind])
    with pytest.raises(LogGap):
        golden.reader.fetch("t", 0, start)


@pytest.mark.parametrize("already_open", [False, True])
def test_a_descriptor_of_another_partition_is_refused_before_a_byte_is_read(
    already_open: bool, golden_log: Make
) -> None:
    golden = golden_log(copies=1)
    if already_open:
        assert read(golden, golden.segments[0])
    before = len(golden.fetched)
    with pytest.raises(CorruptData, match="names objects of another segment") as refused:
        read(golden, stolen(golden.segments[0], EVIL, "evil", golden.segments[0].term))
    assert str(EVIL) in str(refused.value)
    assert len(golden.fetched) == before


@pytest.mark.parametrize("foreign", [False, True])
def test_a_manifest_that_describes_another_segment_is_corrupt_and_both_are_named(
    foreign: bool, golden_log: Make
) -> None:
    golden = golden_log(copies=1, foreign=foreign)
    with pytest.raises(CorruptData, match="describes another segment: partition") as refused:
        read(golden, under_own_name(golden, EVIL))
    assert str(EVIL) in str(refused.value)
    assert str(golden.tiers.partition) in str(refused.value)


@pytest.mark.parametrize("already_open", [False, True])
def test_a_fact_of_other_offsets_than_the_manifests_is_corrupt(already_open: bool, golden_log: Make) -> None:
    golden = golden_log(copies=1)
    segment = golden.segments[0]
    if already_open:
        assert read(golden, segment)
    longer = replace(segment, offsets=OffsetRange(segment.offsets.start, Offset(10**6)))
    with pytest.raises(CorruptData, match="describes another segment: offsets"):
        read(golden, longer)


def test_verify_of_every_byte_insists_on_the_whole_descriptor(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    segment = golden.segments[0]
    reader = SegmentReader.open(golden.tiers.store, segment.object_key)
    assert reader.verify(segment)
    with pytest.raises(CorruptData, match="describes another segment: record_count"):
        reader.verify(replace(segment, record_count=segment.record_count + 1))


def test_a_recovered_term_is_no_other_segment(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    segment = golden.segments[0]
    renewed = replace(segment, term=replace(segment.term, position=Position(segment.term.position + 1)))
    assert read(golden, renewed) == read(golden, segment)

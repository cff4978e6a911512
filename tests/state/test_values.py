"""Ids, ranges, terms, descriptors and views: the values that they refuse and those that they compute."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.epochs import Lineage
from tierstate.state.errors import InvalidRequest
from tierstate.state.facts import UnknownFact
from tierstate.state.ids import FactId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.offsets import ByteRange, Offset, OffsetRange, Position
from tierstate.state.segment import MAX_INLINE_ENTRIES, AbortedRange, AbortedRanges, SegmentState
from tierstate.state.view import Entry, MemoryView

if TYPE_CHECKING:
    from tests.state.conftest import Build


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_sixteen_bytes_in_one_text(raw: bytes) -> None:
    identity = TopicId.of(raw)
    assert (identity.raw, len(identity), TopicId(str(identity))) == (raw, 22, identity)
    assert pickle.loads(pickle.dumps(identity)) == identity
    assert type(pickle.loads(pickle.dumps(identity))) is TopicId


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 21 + "=", "A" * 20 + "+/", "é" + "A" * 21, "A\n" + "A" * 20]
)
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(InvalidRequest):
        FactId(text)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_a_partition_number_is_a_non_negative_int32(partition: int) -> None:
    with pytest.raises(InvalidRequest):
        TopicIdPartition(TopicId("A" * 22), partition)


def test_ranges_are_never_empty() -> None:
    for start, end in ((-1, 3), (4, 3)):
        with pytest.raises(InvalidRequest):
            OffsetRange(Offset(start), Offset(end))
    for start, stop in ((-1, 3), (3, 3)):
        with pytest.raises(InvalidRequest):
            ByteRange(start, stop)
    assert len(OffsetRange(Offset(3), Offset(3))) == len(ByteRange(3, 4)) == 1


@given(st.tuples(*[st.integers(0, 20)] * 4))
def test_an_overlap_holds_what_both_ranges_hold(numbers: tuple[int, int, int, int]) -> None:
    a, b = sorted(numbers[:2]), sorted(numbers[2:])
    one, other = OffsetRange(Offset(a[0]), Offset(a[1])), OffsetRange(Offset(b[0]), Offset(b[1]))
    both = [offset for offset in range(21) if offset in one and offset in other]
    overlap = one.overlap(other)
    assert overlap == other.overlap(one)
    assert both == (list(range(overlap.start, overlap.end + 1)) if overlap else [])


def test_aborted_ranges_above_the_limit_live_in_the_objects_only() -> None:
    ranges = [AbortedRange(at, Offset(10 * at), Offset(10 * at + 5)) for at in range(MAX_INLINE_ENTRIES + 1)]
    few, many = AbortedRanges.of(tuple(ranges[:-1])), AbortedRanges.of(tuple(ranges))
    assert (few.inline, len(few.entries)) == (True, MAX_INLINE_ENTRIES)
    assert (many.inline, many.entries, many.count) == (False, (), MAX_INLINE_ENTRIES + 1)
    assert many.bounds == OffsetRange(Offset(0), Offset(10 * MAX_INLINE_ENTRIES + 5))
    assert AbortedRanges.of(tuple(reversed(ranges))) == many
    assert AbortedRanges.of(()).bounds is None


def test_a_segment_has_at_least_one_leader_epoch(build: Build) -> None:
    with pytest.raises(InvalidRequest):
        replace(build.segment(1, build.term(1, 0)), leader_epochs=Lineage())


def test_a_view_counts_what_is_readable(build: Build) -> None:
    term = build.term(1, 0)
    facts = [build.leader(0, 1), build.log_start(1, term, 0)]
    for number, start in ((1, 0), (2, 100), (3, 300)):
        facts.append(build.started(10 * number, number, term, start, start + 99))
        facts.append(build.finished(10 * number + 1, number, term, start, start + 99))
    view = build.view(*facts)
    assert (view.copied_to, view.remote_bytes, view.topic) == (199, 333, "orders")
    assert [s.segment_id for s in view.readable] == [build.segment_id(number) for number in (1, 2, 3)]
    assert len(view.in_state(SegmentState.COPY_SEGMENT_FINISHED)) == 3
    assert view.in_state(SegmentState.ABANDONED) == []


def test_the_memory_view_follows_records_and_tombstones(build: Build) -> None:
    facts = [build.leader(0, 1), build.log_start(1, build.term(1, 0), 5)]
    by_key: dict[str, Any] = {fact.key: fact.fact for fact in facts}
    view = MemoryView(lambda key, value: by_key.get(key, UnknownFact(key, "?")))
    assert (view.position(0), view.partitions()) == (0, [])
    view.apply(0, [Entry(fact.key, fact.position, b"x") for fact in facts], Position(2))
    assert view.state(build.partition).view() == build.view(*facts)
    assert view.partitions() == [build.partition]
    view.apply(0, [Entry(facts[1].key, Position(2), None)], Position(3))
    assert view.state(build.partition).view() == build.view(facts[0])
    assert (view.position(0), [entry.key for _, entry in view.entries()]) == (3, [key_of(by_key[facts[0].key])])
    assert list(view.entries(1)) == []
    view.close()

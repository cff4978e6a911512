"""Answers of a view, from memory and from RocksDB: two segments copied, one being deleted, one gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.follower.said import PARTITIONS, Topic, attempt, elected, finished, log_start, partition
from tierstate.follower.replay import catch_up
from tierstate.state.facts import DeleteReason, SegmentCopyFinished, SegmentCopyStarted, SegmentDeleteStarted
from tierstate.state.offsets import Offset, OffsetRange, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.segment import SegmentState
from tierstate.state.view import ViewStore


@pytest.fixture
def view(said: Topic, new_store: Callable[[], ViewStore]) -> PartitionView:
    """Return a view: 0-99 is being deleted, 100-199, 200-299 and 400-499 are readable, 500-599 is being copied."""
    leader = elected(0, 1, 1)
    at = said.say(leader)
    copies = [attempt(0, base, leader, at) for base in (0, 100, 200, 400, 500)]
    for copy in copies:
        said.say(SegmentCopyStarted(copy))
    for number, copy in enumerate(copies[:-1]):
        said.say(SegmentCopyFinished(finished(copy, 1000 * (number + 1))))
    said.say(log_start(0, 100, leader, at))
    oldest = finished(copies[0], 1000)
    said.say(SegmentDeleteStarted(oldest, oldest.term, 2, DeleteReason.RETENTION_TIME, TimestampMs(9)))
    store = new_store()
    catch_up(said.topic, store, {number: said.topic.end(number) for number in range(PARTITIONS)})
    return store.state(partition(0)).view()


@pytest.mark.parametrize(("offset", "base"), [(99, None), (100, 100), (199, 100), (200, 200), (300, None), (499, 400)])
def test_an_offset_has_at_most_one_segment(view: PartitionView, offset: int, base: int | None) -> None:
    owner = view.coverage.at(offset)
    assert (owner.segment.offsets.start if owner else None) == base


def test_the_segments_of_a_range_come_in_order(view: PartitionView) -> None:
    def bases(start: int, end: int) -> list[int]:
        return [segment.offsets.start for segment in view.coverage.within(OffsetRange(Offset(start), Offset(end)))]

    assert bases(0, 1_000) == [100, 200, 400]
    assert bases(199, 200) == [100, 200]
    assert bases(300, 399) == []


def test_segments_are_found_by_their_state(view: PartitionView) -> None:
    counts = {state: len(view.in_state(state)) for state in SegmentState}
    assert counts == {
        SegmentState.COPY_SEGMENT_STARTED: 1,
        SegmentState.COPY_SEGMENT_FINISHED: 3,
        SegmentState.DELETE_SEGMENT_STARTED: 1,
        SegmentState.DELETE_SEGMENT_FINISHED: 0,
        SegmentState.ABANDONED: 0,
    }


def test_the_copied_offset_ends_before_the_first_gap_above_the_log_start(view: PartitionView) -> None:
    assert (view.log_start, view.copied_to) == (100, 299)


def test_totals_count_what_is_readable(view: PartitionView) -> None:
    assert view.remote_bytes == (2000 + 11) + (3000 + 11) + (4000 + 11)

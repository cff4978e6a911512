"""A read that races with a trim, an election, an expiry or a late view is routed again, once, and never wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import NOW, Golden, golden_rows, rows_of
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import CorruptData, Fenced, LogGap, OffsetOutOfRange, SegmentExpired
from tierstate.state.facts import DeleteReason, SegmentDeleteStarted
from tierstate.state.routing import Isolation, Tier
from tierstate.storage.segment.writer import delete_segment

Make = Callable[..., Golden]


def test_a_trim_after_routing_sends_the_read_to_the_remote_tier(golden_log: Make) -> None:
    golden = golden_log()
    golden.reader.bounds("t", 0)

    def trim() -> None:
        golden.local.local_start = golden.folder.bases[-1]

    golden.local.answers = [trim]
    piece = golden.reader.fetch("t", 0, 0)
    assert piece.tier is Tier.REMOTE
    assert piece.bounds.local_start == golden.folder.bases[-1]


def test_a_fenced_read_asks_for_the_new_epoch_once(golden_log: Make) -> None:
    golden = golden_log()
    golden.reader.bounds("t", 0)
    golden.local.epoch = LeaderEpoch(7)
    assert golden.reader.fetch("t", 0, 0).tier is Tier.LOCAL

    def elect() -> None:
        golden.local.epoch = LeaderEpoch((golden.local.epoch or 0) + 1)

    golden.local.answers = [elect] * 4
    with pytest.raises(Fenced):
        golden.reader.fetch("t", 0, 0)


def test_a_gap_is_named_only_by_a_view_that_is_fresh(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    bases = golden.folder.bases
    golden.local.local_start = bases[2]
    with pytest.raises(LogGap) as gap:
        golden.reader.fetch("t", 0, bases[1] + 5)
    assert (gap.value.start, gap.value.end) == (bases[1] + 5, bases[2] - 1)

    # The fact lands: the view was not notified, but the very next read knows it.
    golden.tiers.copy(golden.folder, bases[1], bases[2])
    assert golden.reader.fetch("t", 0, bases[1] + 5).tier is Tier.REMOTE


def test_a_trim_while_the_view_is_made_fresh_is_no_gap(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    bases = golden.folder.bases
    golden.local.local_start = bases[1]
    golden.reader.bounds("t", 0)

    def copy_and_trim() -> None:
        golden.tiers.copy(golden.folder, bases[1], bases[2])
        golden.local.local_start = bases[2]

    golden.local.answers = [copy_and_trim]
    piece = golden.reader.fetch("t", 0, bases[1])
    assert piece.tier is Tier.REMOTE
    assert piece.offset == bases[1]


def test_a_missing_object_of_a_live_segment_is_corrupt_data_that_names_it(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    golden.tiers.store.delete(golden.segments[0].object_key + ".log")
    with pytest.raises(CorruptData) as corrupt:
        golden.reader.fetch("t", 0, 0)
    assert golden.segments[0].object_key in str(corrupt.value)


def test_a_segment_that_expired_while_it_was_read_is_said_to_have_expired(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    lost = golden.segments[1]

    def expire(key: str) -> None:
        golden.tiers.start_log_at(lost.offsets.end + 1)
        golden.tiers.say(SegmentDeleteStarted(lost, golden.tiers.term, 90, DeleteReason.RETENTION_TIME, NOW))
        delete_segment(golden.tiers.store, lost)

    golden.reader.fetch("t", 0, 0)
    golden.gets.append(expire)
    with pytest.raises(SegmentExpired) as expired:
        golden.reader.fetch("t", 0, lost.offsets.start)
    assert expired.value.facts["segment_id"] == lost.segment_id


def test_a_missing_object_is_no_harm_when_another_segment_has_its_offsets(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    lost = golden.segments[1]

    def replace(key: str) -> None:
        golden.tiers.copy(golden.folder, lost.offsets.start, lost.offsets.end + 1)
        golden.tiers.say(SegmentDeleteStarted(lost, golden.tiers.term, 90, DeleteReason.FAILED_ATTEMPT, NOW))
        delete_segment(golden.tiers.store, lost)

    golden.reader.fetch("t", 0, 0)
    golden.gets.append(replace)
    piece = golden.reader.fetch("t", 0, lost.offsets.start, isolation=Isolation.READ_UNCOMMITTED)
    assert not golden.gets
    expected = golden_rows("transactions", Isolation.READ_UNCOMMITTED)
    assert rows_of([piece]) == [row for row in expected if lost.offsets.start <= row[0] < piece.next_offset]


@pytest.mark.parametrize("offset", [-1, 10**9])
def test_an_offset_outside_the_log_carries_the_valid_range(golden_log: Make, offset: int) -> None:
    golden = golden_log()
    with pytest.raises(OffsetOutOfRange) as out:
        golden.reader.fetch("t", 0, offset)
    assert (out.value.valid_start, out.value.valid_end) == (0, golden.folder.end())


def test_a_log_start_that_the_view_learns_late_does_not_hide_what_is_there(golden_log: Make) -> None:
    golden = golden_log(copies=0)
    bases = golden.folder.bases
    golden.tiers.copy(golden.folder, bases[0], bases[1])
    golden.local.local_start = bases[1]
    assert golden.reader.fetch("t", 0, 0).tier is Tier.REMOTE
    golden.tiers.start_log_at(bases[1])
    golden.tiers.view.require_fresh(0, 0)
    with pytest.raises(OffsetOutOfRange) as out:
        golden.reader.fetch("t", 0, 0)
    assert out.value.valid_start == bases[1]


def test_a_scan_past_the_end_is_refused_before_it_begins(golden_log: Make) -> None:
    golden = golden_log()
    with pytest.raises(OffsetOutOfRange):
        golden.reader.scan("t", 0, 0, golden.folder.end() + 1)


def test_a_log_truncated_under_a_scan_ends_it_with_an_error(golden_log: Make) -> None:
    golden = golden_log()
    end = golden.folder.end()
    pieces = golden.reader.scan("t", 0, 0, end, piece_bytes=1)
    next(pieces)
    golden.local.high_watermark = golden.local.last_stable_offset = golden.folder.bases[1]
    with pytest.raises(OffsetOutOfRange):
        list(pieces)

"""Total retention over both tiers: a prefix of remote segments, oldest first, by time and by size, as Kafka has it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.conftest import NOW, Build
from tierstate.state.coverage import Coverage
from tierstate.state.epochs import Lineage
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.retention import (
    TopicRetention,
    WholeLog,
    counted_from,
    size_retention_end,
    time_retention_end,
)
from tierstate.state.segment import RemoteSegment

build = Build()
TERM = build.term(0, 0)
LINEAGE = Lineage.of((0, 0))


def remote(number: int, start: int, end: int, *, age: int = 0, size: int = 1000) -> RemoteSegment:
    """``age`` is in ms; the segment was copied when its newest record was written."""
    at = TimestampMs(NOW - age)
    return replace(build.segment(number, TERM, start, end), max_timestamp=at, copied_at=at, log_bytes=size)


def local(*bases: int, size: int = 1000) -> list[LocalSegment]:
    """Return segments that begin at these offsets; the last one is the log end."""
    pairs = pairwise(bases)
    return [LocalSegment(Offset(base), Offset(after), size, NOW) for base, after in pairs]


def log(
    segments: list[RemoteSegment],
    local_segments: list[LocalSegment] | None = None,
    *,
    log_start: int = 0,
    local_start: int = 10_000,
    high_watermark: int = 20_000,
    lineage: Lineage = LINEAGE,
) -> WholeLog:
    ordered = tuple(sorted(segments, key=lambda each: (each.offsets.start, each.offsets.end)))
    return WholeLog(
        Coverage(ordered, lineage), local_segments or [], Offset(log_start), Offset(local_start), Offset(high_watermark)
    )


def keep(ms: int = -1, size: int = -1) -> TopicRetention:
    return TopicRetention(ms, size, -1, -1)


AGED = log([remote(0, 0, 99, age=400), remote(1, 100, 199, age=300), remote(2, 200, 299, age=200)])


@pytest.mark.parametrize(
    ("ms", "end"), [(-1, None), (400, None), (399, 100), (300, 100), (299, 200), (199, 300), (0, 300)]
)
def test_time_lets_go_of_what_is_older_than_retention_ms(ms: int, end: int | None) -> None:
    assert time_retention_end(AGED, keep(ms=ms), NOW) == end


def test_a_young_segment_protects_what_follows_it() -> None:
    whole = log([remote(0, 0, 99, age=10), remote(1, 100, 199, age=900)])
    assert time_retention_end(whole, keep(ms=100), NOW) is None


@pytest.mark.parametrize(
    ("max_timestamp", "copied_at", "counts"),
    [
        (NOW - 500, NOW - 100, NOW - 500),
        (NOW, NOW - 100, NOW),
        (-1, NOW - 100, NOW - 100),  # no record has a timestamp
        (NOW + 1, NOW - 100, NOW - 100),  # a time in the future pins nothing (KAFKA-20609)
        (NOW - 50, NOW - 100, NOW - 50),  # in the future when it was copied
        (0, NOW - 100, 0),
    ],
)
def test_age_counts_from_the_newest_record_or_from_the_copy(max_timestamp: int, copied_at: int, counts: int) -> None:
    segment = replace(remote(0, 0, 99), max_timestamp=TimestampMs(max_timestamp), copied_at=TimestampMs(copied_at))
    assert counted_from(segment, NOW) == counts


def test_a_segment_without_timestamps_and_one_of_the_future_expire_after_their_copy() -> None:
    without = replace(remote(0, 0, 99, age=300), max_timestamp=TimestampMs(-1))
    future = replace(remote(1, 100, 199, age=300), max_timestamp=TimestampMs(NOW + 10**9))
    assert time_retention_end(log([without, future]), keep(ms=300), NOW) is None
    assert time_retention_end(log([without, future]), keep(ms=299), NOW) == 200


SIZED = log([remote(0, 0, 99), remote(1, 100, 199), remote(2, 200, 299)], local(300, 350, size=500), local_start=300)


@pytest.mark.parametrize(
    ("size", "end"),
    [(-1, None), (3500, None), (2501, None), (2500, 100), (1501, 100), (1500, 200), (500, 300), (0, 300)],
)
def test_size_never_goes_below_retention_bytes(size: int, end: int | None) -> None:
    assert SIZED.size_bytes == 3500
    assert size_retention_end(SIZED, keep(size=size)) == end


def test_offsets_of_both_tiers_count_once() -> None:
    """KAFKA-20732: a fresh leader counted its whole local log in addition to the remote one, and expired too much."""
    segments = [remote(0, 0, 99), remote(1, 100, 199)]
    whole = log(segments, local(0, 100, 200, 250), local_start=0)
    assert whole.size_bytes == 3000
    assert size_retention_end(whole, keep(size=2500)) is None


def test_overlapping_copies_count_once() -> None:
    whole = log([remote(0, 0, 149, size=1500), remote(1, 100, 199, size=1000), remote(2, 120, 140, size=210)])
    assert whole.size_bytes == 2000
    assert size_retention_end(whole, keep(size=500)) == 150


def test_segments_out_of_lineage_do_not_count_and_do_not_hold_up() -> None:
    lineage = Lineage.of((0, 0), (2, 100))
    foreign = replace(remote(1, 100, 199, age=5), leader_epochs=Lineage.of((1, 100)))
    good = replace(remote(2, 100, 199, age=500), leader_epochs=Lineage.of((2, 100)))
    whole = log([remote(0, 0, 99, age=500), foreign, good], lineage=lineage)
    assert whole.size_bytes == 2000
    assert time_retention_end(whole, keep(ms=400), NOW) == 200


def test_segments_below_the_log_start_neither_count_nor_go_again() -> None:
    whole = log([remote(0, 0, 99, age=900), remote(1, 100, 199, age=900)], log_start=150)
    assert whole.size_bytes == 500
    assert time_retention_end(whole, keep(ms=100), NOW) == 200
    assert time_retention_end(replace(whole, log_start=Offset(200)), keep(ms=100), NOW) is None


def test_local_segments_below_the_local_start_do_not_count() -> None:
    assert log([], local(0, 100, 200), local_start=150).size_bytes == 500
    assert log([], local(0, 100, 200), local_start=200).size_bytes == 0


@pytest.mark.parametrize(("high_watermark", "size"), [(150, 2000), (101, 2000), (100, 1000), (99, 1000)])
def test_the_active_segment_counts_as_far_as_the_high_watermark(high_watermark: int, size: int) -> None:
    active = LocalSegment(Offset(100), Offset(100), 1000, NOW)
    whole = log([], [*local(0, 100), active], local_start=0, high_watermark=high_watermark)
    assert whole.size_bytes == size
    copied = log([remote(0, 0, 124)], [*local(0, 100), active], local_start=0, high_watermark=150)
    assert copied.size_bytes == 1500


def test_records_only_on_the_broker_stay_and_protect_later_ones() -> None:
    whole = log([remote(0, 0, 99, age=900), remote(2, 200, 299, age=900)], local(0, 100, 200, 300), local_start=50)
    assert time_retention_end(whole, keep(ms=100), NOW) == 100
    assert size_retention_end(whole, keep(size=0)) == 100
    uncopied = log([remote(2, 200, 299, age=900)], local(0, 100, 200, 300), local_start=0)
    assert time_retention_end(uncopied, keep(ms=100), NOW) is None
    assert size_retention_end(uncopied, keep(size=0)) is None


@pytest.mark.parametrize(("local_start", "end"), [(199, 100), (200, 300), (201, 300)])
def test_offsets_that_no_tier_has_do_not_stop_retention_for_ever(local_start: int, end: int) -> None:
    """Uncopied offsets are only local from the local start on, and lost below the local start."""
    whole = log([remote(0, 0, 99, age=900), remote(2, 200, 299, age=900)], local_start=local_start)
    assert time_retention_end(whole, keep(ms=100), NOW) == end


def test_a_gap_is_passed_only_with_the_expired_segment_behind_it() -> None:
    whole = log([remote(0, 0, 99, age=900), remote(2, 200, 299, age=50)])
    assert time_retention_end(whole, keep(ms=100), NOW) == 100
    whole = log([remote(2, 200, 299, age=50)])
    assert time_retention_end(whole, keep(ms=100), NOW) is None


@pytest.mark.parametrize(("high_watermark", "end"), [(200, 200), (199, 100), (99, None)])
def test_nothing_goes_that_the_leader_does_not_vouch_for(high_watermark: int, end: int | None) -> None:
    whole = log([remote(0, 0, 99, age=900), remote(1, 100, 199, age=900)], high_watermark=high_watermark)
    assert time_retention_end(whole, keep(ms=100), NOW) == end


def test_an_empty_log_keeps_everything() -> None:
    assert time_retention_end(log([]), keep(ms=0), NOW) is None
    assert size_retention_end(log([]), keep(size=0)) is None


ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6)


@given(ranges, st.lists(st.integers(1, 20), max_size=5), st.integers(0, 60), st.integers(0, 60), st.integers(0, 80))
def test_the_size_is_that_of_the_union_of_offsets(
    remotes: list[tuple[int, int]], locals_: list[int], first: int, local_start: int, log_start: int
) -> None:
    """A byte for each offset makes the size a count of offsets."""
    segments = [remote(at, start, start + more, size=more + 1) for at, (start, more) in enumerate(remotes)]
    bases = [first]
    for length in locals_:
        bases.append(bases[-1] + length)
    files = [LocalSegment(Offset(base), Offset(after), after - base, NOW) for base, after in pairwise(bases)]
    whole = log(segments, files, log_start=log_start, local_start=local_start)
    there = {offset for start, more in remotes for offset in range(start, start + more + 1)}
    there |= {offset for offset in range(first, bases[-1]) if offset >= local_start}
    assert whole.size_bytes == len({offset for offset in there if offset >= log_start})


@given(ranges, st.integers(0, 150), st.integers(0, 60))
def test_size_retention_keeps_retention_bytes_and_no_whole_segment_more(
    remotes: list[tuple[int, int]], limit: int, log_start: int
) -> None:
    segments = [remote(at, start, start + more, size=more + 1) for at, (start, more) in enumerate(remotes)]
    whole = log(segments, log_start=log_start)
    end = size_retention_end(whole, keep(size=limit))
    left = whole if end is None else replace(whole, log_start=end)
    if end is not None:
        assert left.size_bytes >= limit
    first = next(left.remote(), None)
    assert first is None or left.size_bytes - len(first.offsets) < limit

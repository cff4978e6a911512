"""Coverage: the owner of each offset, against an oracle that walks every offset."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tierstate.state.coverage import Coverage
from tierstate.state.epochs import Lineage
from tierstate.state.lineage import readable_ranges
from tierstate.state.offsets import Offset, OffsetRange
from tierstate.state.segment import RemoteSegment

if TYPE_CHECKING:
    from tests.state.conftest import Build

ONE = Lineage.of((0, 0))


def covered(coverage: Coverage) -> list[tuple[int, int, str]]:
    return [(piece.offsets.start, piece.offsets.end, piece.segment.object_key[0]) for piece in coverage.owned]


def of(build: Build, *ranges: tuple[int, int]) -> tuple[RemoteSegment, ...]:
    return tuple(build.segment(at, build.term(1, 0), start, end) for at, (start, end) in enumerate(ranges, 1))


@st.composite
def segments(draw: st.DrawFn, build: Build) -> tuple[tuple[RemoteSegment, ...], Lineage]:
    made = []
    for number in range(draw(st.integers(0, 7))):
        start = draw(st.integers(0, 40))
        middle, end = sorted(start + each for each in draw(st.tuples(st.integers(0, 15), st.integers(0, 15))))
        epochs = Lineage.of((draw(st.integers(0, 1)), start), (draw(st.integers(2, 3)), middle))
        term = build.term(draw(st.integers(0, 2)), draw(st.integers(0, 2)))
        made.append(build.segment(number, term, start, end, epochs))
    starts = sorted(draw(st.lists(st.integers(0, 40), min_size=3, max_size=3)))
    return tuple(made), Lineage.of(*zip(draw(st.sampled_from([(0, 1, 2), (0, 2, 3), (1, 2, 3)])), starts, strict=True))


def test_a_superset_wins_whatever_the_order(build: Build) -> None:
    for order in permutations(of(build, (10, 19), (0, 99), (10, 99), (0, 9))):
        assert covered(Coverage(order, ONE)) == [(0, 99, "2")]


def test_a_partial_overlap_is_served_once(build: Build) -> None:
    for order in permutations(of(build, (0, 50), (40, 90), (91, 95))):
        assert covered(Coverage(order, ONE)) == [(0, 50, "1"), (51, 90, "2"), (91, 95, "3")]


def test_the_higher_term_wins_an_equal_range_then_the_lower_id(build: Build) -> None:
    by_position = (
        build.segment(1, build.term(3, 4)),
        build.segment(2, build.term(3, 8)),
        build.segment(3, build.term(2, 9)),
    )
    for order in permutations(by_position):
        assert covered(Coverage(order, ONE)) == [(0, 99, "2")]
    for order in permutations((build.segment(1, build.term(3, 4)), build.segment(2, build.term(3, 4)))):
        assert covered(Coverage(order, ONE)) == [(0, 99, "1")]


def test_a_segment_is_clipped_to_the_lineage(build: Build) -> None:
    segment = build.segment(1, build.term(1, 0), 0, 99, Lineage.of((0, 0), (1, 50)))
    coverage = Coverage((segment,), Lineage.of((0, 0), (1, 50), (2, 80)))
    assert covered(coverage) == [(0, 79, "1")]
    assert Coverage((segment,), Lineage()).owned == ()


def test_a_clipped_superset_does_not_hide_what_it_lost(build: Build) -> None:
    wide = build.segment(1, build.term(1, 0), 0, 99, Lineage.of((0, 0)))
    narrow = build.segment(2, build.term(2, 5), 60, 89, Lineage.of((2, 60)))
    assert covered(Coverage((wide, narrow), Lineage.of((0, 0), (2, 60)))) == [(0, 59, "1"), (60, 89, "2")]


def test_gaps_and_prefixes_are_named(build: Build) -> None:
    coverage = Coverage(of(build, (10, 19), (20, 29), (40, 49)), ONE)
    within = OffsetRange(Offset(0), Offset(59))
    assert [(gap.start, gap.end) for gap in coverage.gaps(within)] == [(0, 9), (30, 39), (50, 59)]
    assert [coverage.prefix_end(start) for start in (0, 10, 15, 30, 45, 50)] == [-1, 29, 29, 29, 49, 49]
    assert [coverage.next_start(start) for start in (0, 10, 30, 49, 50)] == [10, 10, 40, 49, None]
    assert coverage.gaps(OffsetRange(Offset(12), Offset(25))) == []


@given(data=st.data())
def test_coverage_agrees_with_a_walk_over_every_offset(data: st.DataObject, build: Build) -> None:
    made, lineage = data.draw(segments(build))
    coverage = Coverage(made, lineage)
    parts = [(part, segment) for segment in made for part in readable_ranges(segment, lineage)]
    readers = {offset: {s.segment_id for part, s in parts if offset in part} for offset in range(-1, 62)}
    for offset, ids in readers.items():
        owner = coverage.at(offset)
        assert (owner.segment.segment_id in ids) if owner else not ids
        assert coverage.next_start(offset) == next((o for o in range(offset, 62) if readers.get(o)), None)
        end = offset
        while readers.get(end):
            end += 1
        assert coverage.prefix_end(offset) == end - 1
    for one, other in zip(coverage.owned, coverage.owned[1:], strict=False):
        assert one.offsets.end < other.offsets.start
    within = OffsetRange(Offset(5), Offset(45))
    missing = [o for gap in coverage.gaps(within) for o in range(gap.start, gap.end + 1)]
    assert missing == [o for o in range(5, 46) if not readers[o]]
    proper = {(p, s.segment_id) for p, s in parts for wide, _ in parts if p != wide and p.overlap(wide) == p}
    for piece in coverage.owned:
        whole = {part for part, s in parts if s.segment_id == piece.segment.segment_id and part.overlap(piece.offsets)}
        assert not {(part, piece.segment.segment_id) for part in whole} & proper, "a range inside another owns nothing"
    assert Coverage(tuple(reversed(made)), lineage) == coverage


def test_coverages_are_equal_when_the_same_segments_own_the_same_offsets(build: Build) -> None:
    made = of(build, (0, 9), (10, 19))
    assert Coverage(made, ONE) == Coverage(made, ONE)
    assert hash(Coverage(made, ONE)) == hash(Coverage(made, ONE))
    assert Coverage(made, ONE) != Coverage(made[:1], ONE)
    assert Coverage(made, ONE) != "coverage"


@given(data=st.data())
def test_coverage_that_is_changed_where_segments_came_or_went_is_the_coverage_of_what_is_left(
    data: st.DataObject, build: Build
) -> None:
    made, lineage = data.draw(segments(build))
    ordered = sorted(made, key=lambda each: (each.offsets.start, each.offsets.end, each.segment_id))
    before = data.draw(st.lists(st.booleans(), min_size=len(ordered), max_size=len(ordered)))
    after = data.draw(st.lists(st.booleans(), min_size=len(ordered), max_size=len(ordered)))
    ours = tuple(each for each, stands in zip(ordered, before, strict=True) if stands)
    theirs = tuple(each for each, stands in zip(ordered, after, strict=True) if stands)
    touched = [each.offsets for each, *stands in zip(ordered, before, after, strict=True) if stands[0] != stands[1]]
    if touched:
        for with_lineage in (lineage, ONE, Lineage.of((0, 0), (2, 20))):
            changed = Coverage(ours, with_lineage).changed(theirs, touched)
            fresh = Coverage(theirs, with_lineage)
            assert (changed.owned, changed.segments) == (fresh.owned, fresh.segments)
            assert [changed.at(offset) for offset in range(62)] == [fresh.at(offset) for offset in range(62)]


@given(st.data())
def test_how_far_it_reaches_is_the_same_after_every_change(build: Build, data: st.DataObject) -> None:
    """Segments come and go one at a time: the maintained value equals the recomputed one."""
    every, lineage = data.draw(segments(build))
    inside: list[RemoteSegment] = []
    coverage = Coverage((), lineage)
    for segment in data.draw(st.permutations(every + every)):
        inside = [each for each in inside if each is not segment] if segment in inside else [*inside, segment]
        inside.sort(key=lambda each: (each.offsets.start, each.offsets.end, each.segment_id))
        coverage = coverage.changed(tuple(inside), [segment.offsets])
        anew = Coverage(tuple(inside), lineage)
        assert coverage == anew
        for start in range(75):
            assert coverage.prefix_end(start) == anew.prefix_end(start) == reached(anew, start)


def reached(coverage: Coverage, start: int) -> int:
    """Return `prefix_end` by its definition."""
    while coverage.at(start) is not None:
        start += 1
    return start - 1

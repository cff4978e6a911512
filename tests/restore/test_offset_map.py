"""The offset map: no record that a group has not read is skipped, whatever is missing in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierstate.restore.offset_map import MOST_RUNS, MappedRange, merged, ranges_of, translated
from tierstate.state.offsets import Offset

SOURCES = st.sets(st.integers(0, 120), min_size=1, max_size=60).map(sorted)


@given(SOURCES, st.integers(1, 20), st.integers(0, 130))
def test_a_group_goes_on_at_or_before_the_first_record_it_has_not_read(
    source: list[int], batch: int, offset: int
) -> None:
    ranges: list[MappedRange] = []
    target, places = 5, dict[int, int]()
    for at in range(0, len(source), batch):
        part = source[at : at + batch]
        ranges += ranges_of(part, target)
        places |= {old: target + number for number, old in enumerate(part)}
        target += len(part) + (at % 2)  # markers of fences lie between some batches
    joined = merged(ranges)
    answer = translated(joined, offset)
    unread = [places[old] for old in source if old >= offset]
    assert answer is not None
    assert answer <= (unread[0] if unread else target)
    if unread and all(each.is_dense for each in joined) and offset in places:
        assert answer == unread[0], "outside of sparse ranges it is exact"


def test_a_batch_with_many_holes_is_one_sparse_range() -> None:
    holes = list(range(0, 4 * MOST_RUNS, 2))
    (sparse,) = ranges_of(holes, 100)
    assert sparse == MappedRange(Offset(0), Offset(holes[-1] + 1), Offset(100), len(holes))
    assert translated([sparse], holes[-1]) == sparse.target_end - 1


def test_a_map_without_records_has_no_place() -> None:
    assert translated([], 7) is None

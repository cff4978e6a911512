"""Records of the remote tier are those that readers are given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.state.conftest import Build
from tierstate.app.looking.overview import overview
from tierstate.app.looking.remote_records import remote_records, segments_as_json
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.offsets import Offset
from tierstate.state.segment import RemoteSegment

build = Build()
TERM = build.term(0, 0)


def copied(*segments: RemoteSegment) -> list[LiveFact]:
    """Return the facts of copied segments, at positions from 0: at most 0 to 4 for two segments."""
    facts = [build.leader(0, 0)]
    for at, each in enumerate(segments):
        attempt = build.attempt(at + 1, TERM, each.offsets.start, each.offsets.end)
        facts += [
            build.live(2 * at + 1, SegmentCopyStarted(attempt)),
            build.live(2 * at + 2, SegmentCopyFinished(each)),
        ]
    return facts


@pytest.mark.parametrize(("start", "left"), [(None, [100, 100]), (0, [100, 100]), (1, [99, 100]), (150, [0, 50])])
def test_no_record_below_the_log_start_is_counted(start: int | None, left: list[int]) -> None:
    facts = copied(build.segment(1, TERM), build.segment(2, TERM, 100, 199))
    view = build.view(*facts, *([] if start is None else [build.log_start(5, TERM, start)]))
    assert list(remote_records(view, start).values()) == left
    assert [each["remote_records"] for each in segments_as_json(view)] == left
    assert overview("orders", [view], {}).remote_records == sum(left)


@pytest.mark.parametrize(("last", "count", "start", "left"), [(59, 60, 0, 60), (59, 60, 50, 10), (99, 7, 50, 7)])
def test_offsets_without_a_record_are_counted_where_nothing_tells_them(
    last: int, count: int, start: int, left: int
) -> None:
    """The facts name the offset of the last record, so higher offsets are not counted."""
    segment = replace(build.segment(1, TERM), last_record_offset=Offset(last), record_count=count)
    view = build.view(*copied(segment))
    assert list(remote_records(view, start).values()) == [left]


def test_an_offset_in_two_segments_and_one_of_a_branch_that_was_given_up_are_not_counted_twice_or_at_all() -> None:
    twice = build.view(*copied(build.segment(1, TERM), build.segment(2, TERM, 50, 149)))
    assert sum(remote_records(twice, 0).values()) == 150
    later = build.leader(5, 1, lineage=Lineage.of((0, 0), (1, 30)))
    given_up = build.view(*copied(build.segment(1, TERM)), later)
    assert sum(remote_records(given_up, 0).values()) == 30

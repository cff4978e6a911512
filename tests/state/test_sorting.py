"""Sorting segments one at a time gives the same result as sorting all of them, with little work."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.tiers import few
from tierstate.state.apply import PartitionState
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.meaning import meaning
from tierstate.state.partition_view import SegmentMeaning
from tierstate.state.segment import SegmentState
from tierstate.state.sorting import MANY, SortingTable, sort_out

if TYPE_CHECKING:
    from tests.state.conftest import Build

ONE = Lineage.of((0, 0))


def some_meaning(build: Build, rnd: random.Random, number: int, lineages: str) -> SegmentMeaning:
    """Return segments that touch, overlap, contain each other or leave gaps; some are not readable."""
    term = build.term(rnd.randrange(1, 3), rnd.randrange(3))
    start = rnd.randrange(40) * 10
    end = start + rnd.choice([9, 9, 9, 9, 4, 14, 35])
    epochs = Lineage.of((0, start))
    if lineages == "several" and rnd.random() < 0.3:
        epochs = Lineage.of((rnd.randrange(2), start), (2, rnd.randint(start, end)))
    state = rnd.choice([SegmentState.COPY_SEGMENT_FINISHED] * 6 + [SegmentState.ABANDONED])
    remote = build.segment(number, term, start, end, epochs)
    fenced = ("a/key",) if rnd.random() < 0.1 else ()
    contradiction = f"wrong {number}" if rnd.random() < 0.1 else None
    facts = (build.finished(number, number, term),)
    return SegmentMeaning(remote.segment_id, state, None, remote, facts[0].position, contradiction, fenced, None, facts)


def some_lineage(rnd: random.Random, lineages: str) -> Lineage:
    if lineages == "one":
        return ONE
    return rnd.choice([ONE, Lineage.of((0, 0), (2, 150)), Lineage.of((0, 0), (1, 200), (2, 300)), Lineage.of((1, 90))])


@pytest.mark.parametrize("lineages", ["one", "several"])
@pytest.mark.parametrize("seed", few(range(25), range(5)))
def test_a_shelf_says_what_sorting_everything_out_says(seed: int, lineages: str, build: Build) -> None:
    rnd = random.Random(seed)
    shelf, standing, lineage = SortingTable(), dict[RemoteSegmentId, SegmentMeaning](), some_lineage(rnd, lineages)
    for step in range(120):
        changed: dict[RemoteSegmentId, SegmentMeaning | None] = {}
        for _ in range(40 if step == 0 else rnd.choice([0, 1, 1, 1, 2, 3])):
            number = rnd.randrange(80)
            gone = step > 0 and rnd.random() < 0.45
            changed[build.segment_id(number)] = None if gone else some_meaning(build, rnd, number, lineages)
        shelf.put(changed)
        for segment_id, each in changed.items():
            standing.pop(segment_id, None)
            if each is not None:
                standing[segment_id] = each
        if rnd.random() < 0.1:
            lineage = some_lineage(rnd, lineages)
        if rnd.random() < 0.8:
            sorted_view, expected = shelf.sorted_out(lineage), sort_out(standing, lineage)
            assert sorted_view.coverage.owned == expected.coverage.owned
            assert sorted_view.coverage.segments == expected.coverage.segments == sorted_view.readable
            assert sorted(sorted_view.fenced) == sorted(expected.fenced)
            for name in ("segments", "readable", "unsettled", "contradictions"):
                assert getattr(sorted_view, name) == getattr(expected, name), name


def test_one_segment_more_or_less_leaves_the_coverage_elsewhere_untouched(build: Build) -> None:
    shelf, term = SortingTable(), build.term(1, 0)

    def readable(number: int, start: int, end: int) -> dict[RemoteSegmentId, SegmentMeaning | None]:
        remote = build.segment(number, term, start, end)
        state, position = SegmentState.COPY_SEGMENT_FINISHED, build.finished(number, number, term).position
        return {remote.segment_id: SegmentMeaning(remote.segment_id, state, None, remote, position)}

    for number in range(100):
        shelf.put(readable(number, number * 10, number * 10 + 9))
    before = shelf.sorted_out(ONE).coverage.owned
    shelf.put(readable(200, 503, 525))
    after = shelf.sorted_out(ONE).coverage.owned
    assert [piece.offsets.end for piece in after[49:53]] == [499, 509, 525, 529]
    assert sum(any(piece is old for old in before) for piece in after) == 97
    shelf.put({build.segment_id(200): None})
    again = shelf.sorted_out(ONE).coverage.owned
    assert again == before
    assert sum(any(piece is old for old in before) for piece in again) == 97


@pytest.mark.parametrize("seed", few(range(8), range(2)))
def test_a_state_of_many_segments_equals_the_definition_after_every_fact(seed: int, build: Build) -> None:
    rnd = random.Random(seed)
    state, live = PartitionState(build.partition), dict[str, LiveFact]()

    def land(fact: LiveFact) -> None:
        state.insert(fact)
        live[fact.key] = fact

    land(build.leader(0, 1))
    terms = [build.term(1, 0)]
    at = 1
    for step in range(150):
        number, term = (step if step < 8 * MANY else rnd.randrange(80)), rnd.choice(terms)
        start = number * 10
        end = start + 9 + (number % 3) * 4
        match rnd.randrange(12) if step >= 8 * MANY else 0:
            case 0 | 1 | 2 | 3 | 4:
                land(build.started(at, number, term, start, end))
                land(build.finished(at + 1, number, term, start, end))
            case 5 | 6:
                land(build.delete_started(at, number, term))
            case 7:
                land(build.delete_finished(at, number, term))
            case 8 | 9 | 10:
                key = rnd.choice(sorted(live))
                state.erase(key)
                del live[key]
            case _:
                land(build.leader(at, len(terms) + 1))
                terms.append(build.term(len(terms) + 1, at))
        at += 2
        assert state.view() == meaning(build.partition, live.values())

"""Which records of a segment are aborted, by its own index, by later ones, and by what the broker lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kip405.segments import segment_of
from tierstate.kip405.aborted import aborted_ranges
from tierstate.log.transaction_index import format_transaction_index
from tierstate.log.transactions import AbortedTransaction
from tierstate.state.coverage import Coverage
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import LogGap
from tierstate.state.offsets import Offset
from tierstate.state.routing import EVERYTHING, LocalBounds
from tierstate.state.segment import AbortedRange, RemoteSegment

LINEAGE = Lineage.of((0, 0))
Entry = tuple[int, int, int, int]
"""Producer, first offset, offset of the marker, last stable offset."""


class Log:
    """Segments of 100 offsets, with their transaction indexes, and what the broker lists from an offset on."""

    def __init__(self, *indexes: list[Entry], listed: dict[int, list[tuple[int, int]]] | None = None) -> None:
        self.segments = [segment_of(100 * number, 100 * number + 99) for number in range(len(indexes))]
        self.indexes = {each.segment_id: index for each, index in zip(self.segments, indexes, strict=True)}
        self.listed, self.opened, self.asked = listed or {}, list[int](), list[int]()
        self.bounds = LocalBounds(Offset(0), Offset(10_000), Offset(10_000), LeaderEpoch(0))

    def index_of(self, segment: RemoteSegment) -> bytes:
        self.opened.append(segment.offsets.start)
        return format_transaction_index(
            [
                AbortedTransaction(AbortedRange(producer, Offset(first), Offset(last)), Offset(stable))
                for producer, first, last, stable in self.indexes[segment.segment_id]
            ]
        )

    def ask(self, at: Offset) -> list[tuple[int, Offset]]:
        self.asked.append(at)
        return [(producer, Offset(first)) for producer, first in self.listed.get(at, [])]

    def aborted(
        self,
        number: int,
        segments: list[RemoteSegment] | None = None,
        lineage: Lineage = LINEAGE,
        sure: Offset = EVERYTHING,
    ) -> list[tuple[int, int, int]]:
        coverage = Coverage(tuple(segments or self.segments), lineage)
        ranges = aborted_ranges(self.segments[number], coverage, sure, self.bounds, self.index_of, self.ask)
        return [(each.producer_id, each.first, each.last) for each in ranges]


def test_an_entry_of_a_later_segment_counts_and_the_search_ends_behind_the_segment() -> None:
    log = Log([(1, 10, 20, 15)], [(2, 50, 150, 90)], [(3, 60, 210, 220), (4, 211, 230, 250)], [(5, 1, 310, 320)])
    assert log.aborted(0) == [(1, 10, 20), (2, 50, 150), (3, 60, 210)]
    assert log.opened == [0, 100, 200], "the entry of producer 3 is behind the first segment"
    assert log.asked == []


def test_the_broker_is_asked_at_the_first_offset_that_is_not_remote() -> None:
    log = Log([], [], listed={200: [(7, 40), (8, 120), (9, 230)]})
    assert log.aborted(0) == [(7, 40, 200)]
    assert log.aborted(1) == [(7, 40, 200), (8, 120, 200)]
    assert log.asked == [200, 200]


def test_at_the_last_stable_offset_the_last_remote_offset_is_asked_instead() -> None:
    """A read at the last stable offset lists nothing, but a transaction from before it may be aborted behind it."""
    log = Log([], listed={99: [(7, 40)]})
    log.bounds = replace(log.bounds, last_stable_offset=Offset(100))
    assert log.aborted(0) == [(7, 40, 100)]
    assert log.asked == [99]


def test_an_index_that_is_said_to_be_empty_is_not_opened_and_hides_no_later_one() -> None:
    log = Log([], [(2, 50, 150, 160)])
    log.segments[0] = replace(log.segments[0], transaction_index_empty=True)
    assert log.aborted(0) == [(2, 50, 150)]
    assert log.opened == [100]


def test_all_of_many_ranges_are_kept() -> None:
    many = [(number, number % 90, 91, 92) for number in range(1_000)]
    assert len(Log([*many, (1, 95, 96, 100)]).aborted(0)) == 1_001


def test_a_segment_of_another_branch_is_not_searched() -> None:
    log = Log([], [(2, 50, 150, 160)], listed={100: []})
    other = replace(log.segments[1], leader_epochs=Lineage.of((7, 100)))
    assert log.aborted(0, [log.segments[0], other]) == []
    assert log.asked == [100]


def test_a_hole_in_which_a_transaction_may_be_decided_is_an_error() -> None:
    log = Log([], [(2, 50, 150, 160)], [])
    log.bounds = replace(log.bounds, local_start=Offset(300))
    with pytest.raises(LogGap) as gap:
        log.aborted(0, [log.segments[0], log.segments[2]])
    assert (gap.value.facts["start"], gap.value.facts["end"]) == (100, 299)


LOST: list[list[Entry]] = [[(1, 10, 20, 15)], [(2, 50, 120, 60), (3, 60, 180, 200)], [(4, 110, 210, 220)]]
"""Indexes of a log that an unclean election cut at offset 150: producers 3 and 4 ended only in the lost branch."""


def test_what_a_lost_branch_says_counts_nowhere_while_only_the_leader_knows_where_it_begins() -> None:
    log = Log(*LOST, listed={150: [(4, 110)]})
    assert log.aborted(0, sure=Offset(150)) == [(1, 10, 20), (2, 50, 120)]
    assert log.aborted(1, sure=Offset(150)) == [(2, 50, 120), (4, 110, 150)]
    assert log.asked == [150, 150], "never behind the leader's log"


def test_what_a_lost_branch_says_counts_nowhere_once_another_leader_has_copied() -> None:
    log = Log(*LOST, [(3, 60, 310, 320)])
    new = log.segments.pop()
    log.segments.append(replace(segment_of(150, 349, epoch=1), segment_id=new.segment_id))
    ranges = log.aborted(1, lineage=Lineage.of((0, 0), (1, 150)))
    assert ranges == [(2, 50, 120), (3, 60, 310)]

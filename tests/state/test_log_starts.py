"""Log starts hold on another log as far as the two are one: on every branch that there can be; and folding."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.state.branches import Branches
from tests.state.conftest import NOW
from tests.tiers import few
from tierstate.state.coverage import Coverage
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.errors import LogGap, OffsetOutOfRange
from tierstate.state.facts import LogStartAdvanced
from tierstate.state.lineage import (
    below,
    compose,
    folded,
    highest_log_start,
    holds_up_to,
    is_below,
    log_start_on,
    shared_end,
    stands_for,
)
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import LocalBounds, ReadRemote, log_start, route

if TYPE_CHECKING:
    from tests.state.conftest import Build

SEEDS = few(range(60), range(0, 60, 5))


@pytest.mark.parametrize(
    ("said", "ruling", "end"),
    [
        (((0, 0), (1, 50)), ((0, 0), (1, 50), (2, 60)), 60),
        (((0, 0), (1, 50)), ((0, 0), (2, 40)), 40),
        (((0, 0), (1, 50), (2, 70)), ((0, 0), (1, 50)), 70),
        (((0, 0), (1, 50)), ((0, 0), (1, 50)), None),
        (((0, 0), (1, 50)), ((2, 0),), 0),
        (((0, 0), (1, 50)), ((2, 80),), 80),
        (((3, 10),), ((0, 0), (3, 30), (4, 40)), 40),
        ((), ((0, 0),), None),
        (((0, 0),), (), None),
    ],
    ids=["left-behind", "forked-below", "is-older", "same", "began-anew", "nothing-known", "one-cut", "v1", "nobody"],
)
def test_two_lineages_share_a_log_up_to_where_the_first_leaves_it(
    said: tuple[tuple[int, int], ...], ruling: tuple[tuple[int, int], ...], end: int | None
) -> None:
    assert shared_end(Lineage.of(*said), Lineage.of(*ruling)) == end


@pytest.mark.parametrize(
    ("entries", "offset", "said"),
    [
        (((0, 0), (1, 50), (2, 60)), 60, ((0, 0), (1, 50))),
        (((0, 0), (1, 50), (2, 60)), 61, ((0, 0), (1, 50), (2, 60))),
        (((0, 0), (1, 50)), 0, ((0, 0),)),
        (((7, 30), (8, 40)), 30, ((7, 30),)),
        ((), 30, ()),
    ],
    ids=["border", "inside", "at-zero", "the-brokers-earliest", "nobody-leads"],
)
def test_a_log_start_names_the_epochs_below_it_and_never_none(
    entries: tuple[tuple[int, int], ...], offset: int, said: tuple[tuple[int, int], ...]
) -> None:
    assert below(Lineage.of(*entries), Offset(offset)) == Lineage.of(*said)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_start_holds_exactly_as_far_as_another_log_has_the_records(seed: int) -> None:
    rnd = Random(seed)
    branches = Branches(rnd, 12)
    for _ in range(300):
        one, other = rnd.randrange(12), rnd.randrange(12)
        offset = rnd.randint(0, len(branches.logs[one]))
        epochs = below(branches.lineage(one), Offset(offset))
        holds = holds_up_to(Offset(offset), epochs, branches.lineage(other))
        assert holds == min(offset, branches.common(one, other)), (epochs, branches.lineage(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_segment_is_below_a_log_start_only_when_its_own_records_are(seed: int, build: Build) -> None:
    rnd = Random(seed)
    branches = Branches(rnd, 12)
    for _ in range(300):
        one, other = rnd.randrange(12), rnd.randrange(12)
        if not branches.logs[other]:
            continue
        fact = branches.log_start(build, one, rnd.randint(0, len(branches.logs[one])))
        end = rnd.randrange(len(branches.logs[other]))
        segment = branches.segment(build, 1, other, rnd.randint(0, end), end)
        assert is_below(fact, segment) == (end < min(fact.log_start, branches.common(one, other)))


def anywhere(rnd: Random, branches: Branches) -> Lineage:
    """Return a lineage as a term may have it: of any log, whole, from a local start on, or folded."""
    epoch = rnd.randrange(len(branches.logs))
    offset = Offset(rnd.randint(0, len(branches.logs[epoch])))
    match rnd.randrange(4):
        case 0:
            return branches.lineage(epoch, offset)
        case 1:
            return folded(branches.lineage(epoch), offset, 1)
        case _:
            return branches.lineage(epoch)


def some_log_start(rnd: Random, branches: Branches, build: Build) -> LogStartAdvanced:
    lineage = anywhere(rnd, branches)
    epoch = lineage.last_epoch or 0
    offset = rnd.randint(lineage.first_offset or 0, len(branches.logs[epoch]))
    epochs = Lineage() if rnd.random() < 0.1 else lineage
    return branches.log_start(build, epoch, offset, epochs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_start_that_stands_for_another_holds_as_far_on_every_lineage(seed: int, build: Build) -> None:
    rnd = Random(seed)
    branches, stood = Branches(rnd, 10), 0
    facts = [some_log_start(rnd, branches, build) for _ in range(25)]
    rulings = [anywhere(rnd, branches) for _ in range(40)]
    for one in facts:
        for other in facts:
            if stands_for(one, other):
                stood += one != other
                for ruling in rulings:
                    assert log_start_on(one, ruling) >= log_start_on(other, ruling), (one, other, ruling)
    assert stood


def test_version_1_holds_up_to_where_an_epoch_after_its_terms_begins(build: Build) -> None:
    fact = LogStartAdvanced(build.partition, Offset(100), build.term(3, 0), 1, "retention-time", NOW)
    assert log_start_on(fact, Lineage.of((0, 0), (3, 50))) == 100
    assert log_start_on(fact, Lineage.of((0, 0), (4, 60), (5, 70))) == 60
    assert log_start_on(fact, Lineage.of((4, 0))) == 0
    assert log_start_on(fact, Lineage()) == 100


def test_a_restarted_log_begins_at_zero_in_spite_of_older_log_starts(build: Build) -> None:
    facts = [build.leader(0, 1), build.log_start(1, build.term(1, 0), 100)]
    assert build.view(*facts).log_start == 100
    anew = build.view(*facts, build.leader(2, 2, lineage=Lineage.of((2, 0))))
    assert anew.log_start == 0
    bounds = LocalBounds(Offset(0), Offset(60), Offset(60), LeaderEpoch(2))
    with pytest.raises(OffsetOutOfRange) as error:
        route(anew, bounds, 61)
    assert (error.value.valid_start, error.value.valid_end) == (0, 60)


def test_a_log_that_ends_below_the_log_start_is_not_the_one_that_the_view_knows(build: Build) -> None:
    """Its term has not begun: the error names the broker's own range, never 100..60."""
    view = build.view(build.leader(0, 1), build.log_start(1, build.term(1, 0), 100))
    assert log_start(view, LocalBounds(Offset(7), Offset(60), Offset(60), LeaderEpoch(2))) == 7
    assert log_start(view, LocalBounds(Offset(7), Offset(100), Offset(90), LeaderEpoch(1))) == 100


def test_a_view_without_a_log_start_has_none(build: Build) -> None:
    assert build.view(build.leader(0, 1)).log_start is None


# --- folding ---------------------------------------------------------------------------------------------------------


def routed(view: PartitionView, offset: int, end: int) -> str:
    """Return the record that a read gets, by its epoch, or its answer."""
    bounds = LocalBounds(Offset(end), Offset(end), Offset(end), None)
    try:
        read = route(view, bounds, offset, confirmed=Offset(end))
    except LogGap as gap:
        return f"gap to {gap.end}"
    return f"epoch {read.segment.leader_epochs.epoch_at(offset)}" if isinstance(read, ReadRemote) else f"{read}"


@pytest.mark.parametrize("seed", SEEDS)
def test_from_the_log_start_on_a_folded_lineage_means_the_same(seed: int, build: Build) -> None:
    rnd = Random(seed)
    branches = Branches(rnd, 10)
    facts = [some_log_start(rnd, branches, build) for _ in range(4)]
    segments = []
    for number in range(12):
        epoch = rnd.randrange(10)
        if branches.logs[epoch]:
            end = rnd.randrange(len(branches.logs[epoch]))
            segments.append(branches.segment(build, number, epoch, rnd.randint(0, end), end))
    for epoch in range(10):
        whole = branches.lineage(epoch)
        start = highest_log_start(facts, whole)
        assert start is not None
        short = folded(whole, start, 1)
        assert highest_log_start(facts, short) == start, "the owner is what a log start is said in"
        readable = tuple(sorted(segments, key=lambda each: (each.offsets, each.segment_id)))
        views = [
            PartitionView(build.partition, readable=readable, coverage=Coverage(readable, each), log_start=start)
            for each in (whole, short)
        ]
        end = max(len(log) for log in branches.logs)
        for offset in range(start, end):
            assert len({routed(view, offset, end) for view in views}) == 1, (offset, whole, short)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folded_elder_continues_every_checkpoint_that_begins_at_the_log_start_or_above(seed: int) -> None:
    rnd = Random(seed)
    branches = Branches(rnd, 10)
    for _ in range(200):
        elder, epoch = rnd.randrange(10), rnd.randrange(10)
        shared = branches.common(elder, epoch)
        start = rnd.randint(0, len(branches.logs[elder]))
        local_start = rnd.randint(0, len(branches.logs[epoch]))
        if not start <= local_start < shared:
            continue
        checkpoint = branches.lineage(epoch, local_start)
        lineage, epochs = compose(checkpoint, [folded(branches.lineage(elder), Offset(start), 1)])
        whole, _ = compose(checkpoint, [branches.lineage(elder)])
        assert epochs
        assert lineage == folded(whole, Offset(start), 1)


def test_little_is_not_folded_and_much_at_once() -> None:
    few = Lineage.of(*((epoch, 10 * epoch) for epoch in range(257)))
    assert folded(few, Offset(2560)) == few
    assert folded(few, Offset(2561)) == Lineage.of((256, 2560))
    assert folded(few, None) == few
    assert folded(few, Offset(0)) == few


def test_thousands_of_epochs_are_folded_to_what_lies_above_the_log_start(build: Build) -> None:
    lineage = Lineage.of(*((epoch, 3 * epoch) for epoch in range(20_000)))
    short = folded(lineage, Offset(59_000))
    assert short.first_offset == 58_998
    assert all(after.epoch == before.epoch + 1 for before, after in pairwise(short.entries))
    fact = LogStartAdvanced(
        build.partition, Offset(59_000), build.term(19_999, 0), 1, "x", NOW, below(lineage, Offset(59_000))
    )
    assert log_start_on(fact, short) == log_start_on(fact, lineage) == 59_000

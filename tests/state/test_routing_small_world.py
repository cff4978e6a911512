"""Every log of five offsets, every view of it with up to two segments, every read: routed as reading.md says, slowly.

The oracle knows offsets one by one, and nothing of coverage. Some millions of routes: a part
of the worlds, drawn evenly, unless slow tests run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from tests.state.conftest import Build
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import LineageUnconfirmed, LogGap, OffsetOutOfRange
from tierstate.state.offsets import Offset
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import EVERYTHING, AtEnd, Isolation, LocalBounds, ReadLocal, ReadRemote, Tier, route

HIGHEST = 5
"""The largest high watermark; segments are below it."""
Range = tuple[int, int]
RANGES: tuple[Range, ...] = tuple((start, end) for start in range(4) for end in range(start, 4))
SEGMENTS: tuple[tuple[Range, ...], ...] = ((), *((each,) for each in RANGES), *product(RANGES, repeat=2))
BOUNDS = tuple(
    (local, stable, high)
    for high in range(HIGHEST + 1)
    for local in range(high + 1)
    for stable in {high, max(high - 1, 0), high // 2}
)
TERM, LATER = LeaderEpoch(1), LeaderEpoch(2)

Answer = tuple[Any, ...]


@dataclass(frozen=True)
class Known:
    """The meaning of the facts: a log start, and the ranges of finished segments."""

    start: int
    ranges: tuple[Range, ...]

    def has(self, offset: int) -> bool:
        return any(start <= offset <= end for start, end in self.ranges)


def worlds() -> Iterator[tuple[Known, PartitionView]]:
    build, term = Build(), Build().term(1, 0)
    for start, ranges in product(range(HIGHEST), SEGMENTS):
        facts = [build.leader(0, 1), build.log_start(1, term, start)]
        for number, (first, last) in enumerate(ranges, 1):
            facts.append(build.started(2 * number, number, term, first, last))
            facts.append(build.finished(2 * number + 1, number, term, first, last))
        yield Known(start, ranges), build.view(*facts)


def answer(
    view: PartitionView, bounds: LocalBounds, offset: int, isolation: Isolation, tier: Tier, confirmed: int | None
) -> Answer:
    sure = None if confirmed is None else Offset(confirmed)
    try:
        routed = route(view, bounds, offset, isolation=isolation, tier=tier, confirmed=sure)
    except OffsetOutOfRange as error:
        return "out of range", error.valid_start, error.valid_end
    except LogGap as error:
        return "gap", error.start, error.end
    except LineageUnconfirmed:
        return ("unconfirmed",)
    match routed:
        case ReadLocal(offset=at):
            return "local", at
        case AtEnd(offset=at):
            return "end", at
        case ReadRemote(segment=segment, offsets=offsets):
            return "remote", offsets.start, offsets.end, (segment.offsets.start, segment.offsets.end)


def wanted(known: Known, bounds: LocalBounds, offset: int, isolation: Isolation, tier: Tier) -> Answer:
    """Return the answer while the view is the leader's own; a remote answer comes without its end and its segment."""
    end = bounds.end(isolation)
    start = known.start if known.start <= bounds.high_watermark else bounds.local_start
    local = offset >= bounds.local_start
    if not start <= offset <= end:
        return "out of range", start, end
    if offset == end:
        return "end", offset
    if tier is Tier.LOCAL:
        return ("local", offset) if local else ("out of range", bounds.local_start, end)
    if local and tier is Tier.AUTO:
        return "local", offset
    if known.has(offset):
        return "remote", offset
    if local and tier is Tier.PREFER_REMOTE:
        return "local", offset
    if local:
        covered = start
        while known.has(covered):
            covered += 1
        return "out of range", start, covered
    last = offset
    while last + 1 < min(bounds.local_start, end) and not known.has(last + 1):
        last += 1
    return "gap", offset, last


def check_remote(said: Answer, known: Known, below: int) -> None:
    """Require that the answer begins at its offset, stays in an existing segment, and ends below ``below``."""
    _, first, last, segment = said
    assert segment in known.ranges
    assert segment[0] <= first <= last <= segment[1]
    assert last < below


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.slow] if part else []) for part in range(10)])
def test_every_offset_of_every_small_log_is_read_where_the_design_says(part: int) -> None:
    for number, (facts, view) in enumerate(worlds()):
        if number % 10 != part:
            continue
        for (local, stable, high), isolation, tier in product(BOUNDS, Isolation, Tier):
            bounds = LocalBounds(Offset(local), Offset(high), Offset(stable), TERM)
            for offset in range(-1, HIGHEST + 2):
                got = answer(view, bounds, offset, isolation, tier, None)
                case = (facts, bounds, offset, isolation, tier)
                if got[0] == "remote":
                    check_remote(got, facts, bounds.end(isolation))
                    got = got[:2]
                assert got == wanted(facts, bounds, offset, isolation, tier), case


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.slow] if part else []) for part in range(20)])
def test_a_view_of_another_epoch_is_believed_as_far_as_the_leader_confirms_it_and_no_further(part: int) -> None:
    for number, (facts, view) in enumerate(worlds()):
        if number % 20 != part:
            continue
        for (local, stable, high), tier in product(BOUNDS, Tier):
            bounds = LocalBounds(Offset(local), Offset(high), Offset(stable), LATER)
            for offset in range(-1, HIGHEST + 2):
                check_unconfirmed(facts, view, bounds, offset, tier)


def check_unconfirmed(known: Known, view: PartitionView, bounds: LocalBounds, offset: int, tier: Tier) -> None:
    isolation = Isolation.READ_COMMITTED
    unasked = answer(view, bounds, offset, isolation, tier, None)
    trusted = answer(view, bounds, offset, isolation, tier, EVERYTHING)
    # its branch may be another: the leader's records are preferred to remote ones
    as_in_force = wanted(known, bounds, offset, isolation, Tier.AUTO if tier is Tier.PREFER_REMOTE else tier)
    case: tuple[object, ...] = (known, bounds, offset, tier)
    assert (trusted[:2] if trusted[0] == "remote" else trusted) == as_in_force, case
    for confirmed in range(HIGHEST + 2):
        got = answer(view, bounds, offset, isolation, tier, confirmed)
        case = (known, bounds, offset, tier, confirmed)
        assert unasked in (got, ("unconfirmed",)), case  # what is answered without asking needed no answer
        if got[0] == "remote":
            check_remote(got, known, min(confirmed, bounds.end(isolation)))
            # a log start of a possibly lost branch hides no records of the leader
            assert trusted[:2] == got[:2] or (known.start > confirmed and offset >= bounds.local_start), case
        elif got[0] == "gap":
            assert got[2] < confirmed, case
            assert not any(known.has(at) for at in range(offset, got[2] + 1)), case
        elif got[0] == "local":
            assert bounds.local_start <= offset < bounds.end(isolation), case
        elif got[0] == "end":  # the end of the leader's own part: a log start beyond it may belong to a lost branch
            assert offset == bounds.end(isolation), case
        elif got[0] == "out of range" and got != trusted:  # the leader has it; what is surely copied ends below
            assert tier is Tier.REMOTE, case
            assert bounds.local_start <= offset, case
            assert got[2] <= confirmed, case
            assert all(known.has(at) for at in range(known.start, got[2])), case
        elif got[0] != "unconfirmed":
            assert got == trusted, case
        if bounds.local_start <= offset < bounds.end(isolation) and tier in (Tier.AUTO, Tier.LOCAL, Tier.PREFER_REMOTE):
            sure_start = known.start <= min(confirmed, bounds.high_watermark)
            assert got[0] == "local" or (sure_start and offset < known.start), case  # the leader's own part is served

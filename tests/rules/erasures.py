"""Live sets to erase from, and the decisions of the rule about them."""

from __future__ import annotations

from tests.state.conftest import KNOWN, NOW, Build
from tierstate.rules.erase import Erase, next_erasure
from tierstate.state.facts import IntegrityHold, LiveFact, OperatorOrder, OrderKind
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, Position, TimestampMs

build = Build()
OLD, TERM = build.term(1, 0), build.term(2, 10)
BASE = (build.leader(10, 2), build.log_start(11, TERM, 0))
"""Facts that stay for good: the term in force and its log start. The old term's facts have positions of their own."""
NOTHING = "nothing to erase"
PAUSE, RESUME, KEEP, DELETE = OrderKind.PAUSE, OrderKind.RESUME, OrderKind.DISABLE_KEEP, OrderKind.DISABLE_DELETE
ELDER = build.leader(0, 1)


def judge(
    *facts: LiveFact,
    base: tuple[LiveFact, ...] = BASE,
    local_start: int = 0,
    archived_to: int | None = None,
    now: int = NOW,
) -> Erase | str:
    view = build.view(*base, *facts)
    assert view.term is not None
    archived = None if archived_to is None else Position(archived_to)
    return next_erasure(view, view.term, Offset(local_start), archived, TimestampMs(now))


def all_of(
    *facts: LiveFact, base: tuple[LiveFact, ...] = BASE, local_start: int = 0, now: int = NOW
) -> list[tuple[int, ...]]:
    """Return the positions that are erased, step by step; each step works on the facts that the earlier ones left."""
    left, erased = [*base, *facts], []
    while isinstance(decision := judge(*left, base=(), local_start=local_start, now=now), Erase):
        at = {live.key: int(live.position) for live in left}
        erased.append(tuple(at[key] for key in decision.keys))
        left = [live for live in left if live.key not in decision.keys]
    assert decision == NOTHING
    return erased


def order(
    position: int,
    number: int,
    kind: OrderKind = OrderKind.DELETE_RECORDS,
    before: int | None = None,
    force: bool = False,
) -> LiveFact:
    offset = None if before is None else Offset(before)
    fact = OperatorOrder(build.partition, build.fact_id(number), kind, offset, force, "ops", NOW, KNOWN)
    return build.live(position, fact)


def hold(position: int) -> LiveFact:
    return build.live(
        position, IntegrityHold(build.partition, build.fact_id(900), BrokerId(2), "two values", "a", "b", NOW)
    )


def deleted_segment() -> tuple[LiveFact, ...]:
    """Two terms began to delete it, and a zombie of the older; all three finished it, the newer term twice."""
    return (
        build.started(12, 1, TERM),
        build.finished(13, 1, TERM),
        build.delete_started(14, 1, TERM, 1),
        build.delete_started(15, 1, OLD, 1),  # fenced
        build.delete_started(16, 1, TERM, 2),
        build.delete_finished(17, 1, OLD, 2),  # fenced
        build.delete_finished(18, 1, TERM, 3),
        build.delete_finished(19, 1, TERM, 4),
        build.delete_finished(20, 1, OLD, 3),  # fenced, the last of all
    )

"""The tail of a small world's tier-state topic is cut at every position, one after another."""

from __future__ import annotations

from tests.histories.small_world import SmallWorld

STARTS = ["0*"], ["0*", "elect", "1*"], ["0*", "order", "0*"]


def a_tail_is_cut() -> str | None:
    """Cut at each position; agents run for hours, a person recovers the tail, agents run again. Return what broke."""
    for start in STARTS:
        for end in range(len(_after(start).topic.log)):
            try:
                _cut_at(end, start)
            except AssertionError as error:
                return f"cut at {end} after {start}: {error}"
    return None


def _after(choices: list[str]) -> SmallWorld:
    world = SmallWorld(1)
    for choice in choices:
        world.take(choice)
    return world


def _cut_at(end: int, start: list[str]) -> None:
    world = _after(start)
    world.cut_tail.cut(end)
    _go_on(world)
    world.cut_tail.recover()
    _go_on(world)


def _go_on(world: SmallWorld) -> None:
    for choice in ["hour", f"{world.cluster.leader.number}*"] * 3:
        world.take(choice)
    world.promises.check()

"""Every interleaving of a small world with two agents and a handful of appends, instead of many of a large world.

At every point each agent with an operation in progress may take its next step, up to the next append or deletion. Or
the other broker is elected, or an hour passes. All orders are tried, each by a run from the start. Choices: ``0`` and
``1`` (an agent's next step), ``0*`` (all steps until the agent has none), ``elect``, ``hour``, ``order``
(delete-records).

Every resulting log is compared at every captured end, for every legal outcome of compaction for a follower that replays
up to that end:

    erased below the captured end       value and tombstone seen | tombstone alone seen | neither seen
    still live at the captured end      seen
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from tests.histories.steady import Steady
from tests.histories.world import World
from tierstate.schemas.codec import decode_fact
from tierstate.state.facts import LiveFact
from tierstate.state.meaning import meaning
from tierstate.state.view import Entry

HOUR_S = 3600.0
APPENDS = 8
STARTS = {
    "from nothing": [],
    "a segment to remove": ["0*", "order", "hour", "0*", "hour"],
    "a segment condemned": ["0*", "order", "hour", "0*"],
    "condemned by the second leader": ["0*", "order", "elect", "hour", "1*"],
}
"""Choices that are taken before the interleavings begin."""
UNSEEN = ("put ",)
"""Steps that no other agent can observe: each is taken together with the next step."""


class SmallWorld(World):
    """A world with a few segments on broker 0. Brokers 0 and 1 take turns as leader.

    ``choices``: what may happen between any two steps, a few times each.
    """

    choices: tuple[str, ...] = ("elect",)

    def __init__(self, segments: int) -> None:
        super().__init__(0)
        steady = Steady()
        self.rnd = self.topic.rnd = self.cluster.rnd = steady
        self.topic.compacts, self.archived = False, None
        self.lands_twice = self.forger.active = self.groups.any = self.cluster.transactional = False
        for _ in range(segments + 1):
            self.cluster.produce()

    def take(self, choice: str) -> bool:
        """Take one choice. Return whether anything happened."""
        if choice == "elect":
            other = self.cluster.brokers[1 - self.cluster.leader.number]
            self.cluster.elect_broker(other)
            return True
        if choice == "hour":
            self.clock.advance(HOUR_S)
            return True
        if choice == "order":
            self.order_below(self.promises.live.view().readable[0].offsets.end + 1)
            return True
        if choice.endswith("*"):
            while self.take(choice[0]):
                pass
            return True
        process = self.processes[int(choice)]
        was_busy = process.busy
        process.step()
        while process.busy and process.next_step.startswith(UNSEEN):
            process.step()
        return was_busy or process.busy


@dataclass
class Explored:
    """Counts. ``runs``: interleavings tried; ``states``: logs x captured ends x compactions compared."""

    runs: int = 0
    states: int = 0


def explore(
    start: list[str],
    appends: int,
    elections: int,
    hours: int,
    segments: int = 2,
    make: Callable[[int], SmallWorld] = SmallWorld,
) -> Explored:
    """Try every run that begins with ``start`` and goes on for ``appends`` appends. Raises AssertionError.

    ``elections``: how often each of the world's ``choices`` may happen.
    """
    found, logs = Explored(), set[tuple[Entry, ...]]()

    def run(choices: list[str]) -> tuple[SmallWorld, bool]:
        world, happened = make(segments), True
        for choice in choices:
            happened = world.take(choice)
        world.promises.check()
        world.close()
        return world, happened

    first = len(run(start)[0].topic.log)
    open_runs = [start]
    while open_runs:
        choices = open_runs.pop()
        world, happened = run(choices)
        if not happened and len(choices) > len(start):
            continue
        found.runs += 1
        log = tuple(world.topic.log)
        if log not in logs:
            logs.add(log)
            found.states += compare(world, log)
        if len(log) - first >= appends:
            continue
        taken = choices[len(start) :]
        possible = ["0", "1"]
        possible += [each for each in world.choices if taken.count(each) < elections and taken[-1:] != [each]]
        if taken.count("hour") < hours and taken[-1:] != ["hour"]:
            possible.append("hour")
        open_runs.extend([*choices, each] for each in possible)
    return found


def compare(world: SmallWorld, log: tuple[Entry, ...]) -> int:
    """Check that all followers at each captured end hold one live set with one meaning. Return their number."""
    states = 0
    for end in range(1, len(log) + 1):
        expected = world.topic.live_at(end)
        full = _meant(world, {entry.key: entry for entry in log[:end] if entry.value is not None})
        live = _meant(world, {key: log[position] for key, (position, _) in expected.items()})
        assert live == full, f"at {end}: the live set means {live}, all facts mean {full}"
        for replayed in replays(log[:end]):
            held: dict[str, tuple[int, bytes]] = {}
            for entry in replayed:
                if entry.value is None:
                    held.pop(entry.key, None)
                else:
                    held[entry.key] = (entry.position, entry.value)
            assert held == expected, f"at {end}: a follower holds {sorted(held)}"
            states += 1
    return states


def replays(log: tuple[Entry, ...]) -> Iterator[list[Entry]]:
    """Yield what a follower may read of this log: all combinations of legal outcomes for the erased keys."""
    erased: dict[str, list[int]] = {}
    for entry in log:
        if entry.value is None:
            erased[entry.key] = [each.position for each in log if each.key == entry.key]
    none: list[int] = []
    for outcome in product(*((none, positions[:-1], positions) for positions in erased.values())):
        gone = {position for each in outcome for position in each}
        yield [entry for entry in log if entry.position not in gone]


def _meant(world: SmallWorld, live: dict[str, Entry]) -> object:
    facts = [LiveFact(e.key, e.position, decode_fact(e.key, e.value or b"")) for e in live.values()]
    view = meaning(world.cluster.partition, facts)
    return view.readable, view.log_start, view.term, view.lineage, view.holds


def main() -> None:
    """Print how many states are compared from each start, with two elections."""
    print("start                              interleavings   logs x ends x compactions")
    for name, start in STARTS.items():
        found = explore(start, APPENDS, elections=2, hours=name.count("condemned"))
        print(f"{name:34s} {found.runs:13d}   {found.states:25d}", flush=True)


if __name__ == "__main__":
    main()

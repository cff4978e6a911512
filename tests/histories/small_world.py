"""Every interleaving of a small world, instead of many of a large one: two agents, a handful of appends.

At every point each agent that has something in progress may take its next step up to the next append or deletion, the
other broker may be elected, an hour may pass; all orders are tried, by running them again from the start. Choices:
``0`` and ``1`` (an agent's next step), ``0*`` (as long as there is one), ``elect``, ``hour``, ``order``
(delete-records).

For each log that comes out, every captured end, and every legal outcome of compaction for a follower that replays up to
there:

    erased below the captured end       value and tombstone seen | tombstone alone seen | neither seen
    still live at the captured end      seen
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

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
"""What happened before the interleavings begin."""
UNSEEN = ("put ",)
"""Steps that no other agent can tell apart: they are taken together with the next one."""


class Steady(Random):
    """Nothing misbehaves."""

    def random(self) -> float:
        return 0.39

    def randint(self, a: int, b: int) -> int:
        return b

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[0]) if len(bounds) > 1 else 0

    def choice(self, seq: Any) -> Any:
        return seq[0]


class SmallWorld(World):
    """A few segments on broker 0; brokers 0 and 1 take turns."""

    def __init__(self, segments: int) -> None:
        super().__init__(0)
        steady = Steady()
        self.rnd = self.topic.rnd = self.cluster.rnd = steady
        self.topic.compacts, self.archived = False, None
        self.lands_twice = self.forger.active = self.groups.any = self.cluster.transactional = False
        for _ in range(segments + 1):
            self.cluster.produce()

    def take(self, choice: str) -> bool:
        """Whether anything happened."""
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
    """``runs``: interleavings tried; ``states``: logs x captured ends x compactions that were compared."""

    runs: int = 0
    states: int = 0


def explore(start: list[str], appends: int, elections: int, hours: int, segments: int = 2) -> Explored:
    """Every run that begins with ``start`` and goes on for ``appends`` appends. Raises AssertionError."""
    found, logs = Explored(), set[tuple[Entry, ...]]()

    def run(choices: list[str]) -> tuple[SmallWorld, bool]:
        world, happened = SmallWorld(segments), True
        for choice in choices:
            happened = world.take(choice)
        world.promises.check()
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
        if taken.count("elect") < elections and taken[-1:] != ["elect"]:
            possible.append("elect")
        if taken.count("hour") < hours and taken[-1:] != ["hour"]:
            possible.append("hour")
        open_runs.extend([*choices, each] for each in possible)
    return found


def compare(world: SmallWorld, log: tuple[Entry, ...]) -> int:
    """Every follower at every captured end, whatever compaction left for it: one live set, one meaning."""
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
    """What a follower may get to read of this log: every legal outcome for every erased key, in every combination."""
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
    """Print how many states there are, with two elections."""
    print("start                              interleavings   logs x ends x compactions")
    for name, start in STARTS.items():
        found = explore(start, APPENDS, elections=2, hours=name.count("condemned"))
        print(f"{name:34s} {found.runs:13d}   {found.states:25d}", flush=True)


if __name__ == "__main__":
    main()

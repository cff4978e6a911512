"""The agents' JSON logs, followed as they are written, over all their lives."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DETAILS = (
    "partition",
    "topic",
    "term",
    "reason",
    "error",
    "offsets",
    "segment_id",
    "log_start_offset",
    "offset",
    "operation",
)
KEPT = 100_000


@dataclass(frozen=True)
class Said:
    """One event. ``life``: which of the agent's processes; ``at``: monotonic seconds when it was read."""

    at: float
    agent: int
    life: int
    event: str
    details: dict[str, Any]


@dataclass
class _Life:
    agent: int
    number: int
    file: Path
    read_to: int = 0


@dataclass
class Journal:
    """The events of all agents, for one thread."""

    said: list[Said] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)
    """Lines that are no JSON, such as a stack trace."""
    _lives: list[_Life] = field(default_factory=list)

    def follow(self, agent: int, file: Path) -> None:
        self._lives.append(_Life(agent, len(self._lives), file))

    def life(self, agent: int) -> int:
        return max(each.number for each in self._lives if each.agent == agent)

    def read(self) -> None:
        for life in self._lives:
            with life.file.open("rb") as file:
                file.seek(life.read_to)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    life.read_to += len(line)
                    self._take(life, line.decode(errors="replace"))
        del self.said[:-KEPT]

    def since(self, at: float, event: str, agent: int | None = None, **details: Any) -> list[Said]:
        """Return the events that were read after that moment."""
        return [
            each
            for each in self._back_to(at)
            if each.event == event
            and agent in (None, each.agent)
            and all(each.details.get(name) == value for name, value in details.items())
        ]

    def count(self, event: str, agent: int) -> int:
        """Return how often the agent's present process logged the event."""
        life = self.life(agent)
        return sum(each.event == event and each.life == life for each in self.said)

    def _back_to(self, at: float) -> Iterator[Said]:
        for each in reversed(self.said):
            if each.at < at:
                return
            yield each

    def _take(self, life: _Life, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            self.strange.append(f"agent {life.agent}: {line.strip()[:300]}")
            return
        event = str(entry.get("event"))
        self.counts[event] += 1
        details = {name: entry[name] for name in DETAILS if name in entry}
        self.said.append(Said(time.monotonic(), life.agent, life.number, event, details))


def partition_of(said: Said) -> int:
    """Return the partition that an event names; -1 if it names none."""
    return int(said.details.get("partition", -1))

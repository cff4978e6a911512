"""The state of the agents' processes, every few seconds: memory, threads, open files. One JSON line each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

EVERY_S = 10.0
LONG_S = 120.0
"""A shorter life says nothing about growth."""
MOST_FDS, MOST_THREADS = 1_000, 200
MIB = 2**20


@dataclass(frozen=True)
class Figures:
    """Figures of one agent's process, ``at`` seconds after the soak began. ``rss`` is in bytes."""

    at: float
    agent: int
    pid: int
    rss: int
    threads: int
    fds: int


def look(pid: int, agent: int, at: float) -> Figures | None:
    """Return the figures of a process, or None if it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        fds = len([*Path(f"/proc/{pid}/fd").iterdir()])
        return Figures(at, agent, pid, int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"]), fds)
    except (OSError, KeyError):
        return None


class Watch:
    """A thread that looks until it is closed."""

    def __init__(self, file: Path, pids: Callable[[], dict[int, int]], every_s: float = EVERY_S) -> None:
        self.file, self.pids, self.every_s = file, pids, every_s
        self.seen: list[Figures] = []
        self._began, self._over = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> Watch:
        self._thread.start()
        return self

    def close(self) -> None:
        self._over.set()
        self._thread.join(5)

    def _run(self) -> None:
        with self.file.open("w") as lines:
            while True:
                for agent, pid in self.pids().items():
                    figures = look(pid, agent, round(time.monotonic() - self._began, 1))
                    if figures is not None:
                        self.seen.append(figures)
                        lines.write(json.dumps(asdict(figures)) + "\n")
                lines.flush()
                if self._over.wait(self.every_s):
                    return


def growth(seen: Sequence[Figures]) -> list[str]:
    """Return complaints about open files and threads.

    Rule: never more than `MOST_FDS` and `MOST_THREADS`; and in a life of `LONG_S` or more the median of the last
    quarter is at most a quarter above the median of the second one, and 16.
    """
    growths = []
    for pid in sorted({each.pid for each in seen}):
        life = [each for each in seen if each.pid == pid]
        who = f"agent {life[0].agent} (pid {pid})"
        for what, most in (("fds", MOST_FDS), ("threads", MOST_THREADS)):
            numbers = [getattr(each, what) for each in life]
            if max(numbers) > most:
                growths.append(f"{who} had {max(numbers)} {what}")
            if life[-1].at - life[0].at < LONG_S or len(life) < 8:
                continue
            quarter = len(life) // 4
            early, late = median(numbers[quarter : 2 * quarter]), median(numbers[-quarter:])
            if late > early * 1.25 + 16:
                growths.append(f"{who}: {what} grew from {early:.0f} to {late:.0f}")
    return growths


def slope_mib_an_hour(seen: Sequence[Figures]) -> float | None:
    """Return the growth of memory by least squares over the last four fifths of a life; None if it is too short."""
    life = seen[len(seen) // 5 :]
    if len(life) < 5:
        return None
    mean_at = sum(each.at for each in life) / len(life)
    mean_rss = sum(each.rss for each in life) / len(life)
    square = sum((each.at - mean_at) ** 2 for each in life)
    return sum((each.at - mean_at) * (each.rss - mean_rss) for each in life) / square * 3600 / MIB


def at_share(seen: Sequence[Figures], share: float) -> Figures | None:
    """Return the figures nearest to this share of the observed time."""
    if not seen:
        return None
    moment = seen[0].at + share * (seen[-1].at - seen[0].at)
    return min(seen, key=lambda each: abs(each.at - moment))

"""The parts of outages: a clock on which hours pass at once, and a store that refuses chosen operations."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.scenarios.story_agents import StoryAgent
from tierstate.leader.gauges import feed_gauges
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.runtime.metrics import Metrics
from tierstate.state.errors import TierstateError
from tierstate.state.objects import ObjectInfo
from tierstate.state.offsets import TimestampMs
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import DEFAULT_PART_BYTES, Data

HOUR_S = 3600.0
STEP_S = 100.0
"""The time that passes between two rounds of an agent in an outage: a third of its longest back-off."""
REST_S = 0.002

Refusal = TierstateError | None


class PassingClock:
    """The system's clock, ahead of it by the hours that were passed. A sleep returns at once."""

    def __init__(self) -> None:
        self._system: Clock = SystemClock()
        self._ahead = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._system.now_ms() + int(self._ahead * 1000))

    def monotonic(self) -> float:
        return self._system.monotonic() + self._ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, REST_S))  # other threads go on during it
        self.passes(seconds)

    def passes(self, seconds: float) -> None:
        with self._lock:
            self._ahead += seconds


class StoreClock(SystemClock):
    """The clock of an S3 client whose retries do not wait. It does not jump with the hours that pass.

    The store's ``Date`` is then read at the system's time, as the acknowledgements of the brokers are, and both are as
    far ahead as the agent's clock. With a `PassingClock` the date would stay behind, and clocks that disagree stop
    everything that deletes.
    """

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, REST_S))


class RefusingStore(DirectoryStore):
    """A folder that refuses: ``refuses(operation, key)`` returns the error, or None. ``asked`` counts by operation."""

    def __init__(self, folder: Path) -> None:
        self.refuses: Callable[[str, str], Refusal] = lambda operation, key: None
        self.asked: Counter[str] = Counter()
        super().__init__(folder)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        self._ask("put", key)
        return super().put_stream(key, pieces, part_bytes=part_bytes)

    def delete(self, key: str) -> None:
        self._ask("delete", key)
        super().delete(key)

    def head(self, key: str) -> ObjectInfo:
        self._ask("head", key)
        return super().head(key)

    def _ask(self, operation: str, key: str) -> None:
        self.asked[operation] += 1
        refusal = self.refuses(operation, key)
        if refusal is not None:
            raise refusal


def hours_pass(agent: StoryAgent, clock: PassingClock, seconds: float) -> None:
    """Let hours pass; the agent looks every `STEP_S`, as often as it matters."""
    for _ in range(round(seconds / STEP_S)):
        clock.passes(STEP_S)
        agent.turn()


def gauge(agent: StoryAgent, clock: Clock, name: str, topic: str, partition: int = 0) -> float | None:
    """Return a gauge as a scrape of `/metrics` shows it now."""
    job, metrics = agent.job, Metrics()
    feed_gauges(metrics, job.leader.board, job.view, clock)
    begins = f'{name}{{partition="{partition}",topic="{topic}"}} '
    for line in metrics.exposition().decode().splitlines():
        if line.startswith(begins):
            return float(line.removeprefix(begins))
    return None

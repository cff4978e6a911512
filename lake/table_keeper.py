"""Follows topics with their tables as long as a process runs. Each table is checked in turn and independently.

If a table cannot continue, the reason is shown and the table is checked again. So it continues once the reason is
removed. Other tables never wait for it longer than one commit takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from operator import is_

from structlog.typing import FilteringBoundLogger

from ..runtime.clock import Clock
from ..runtime.metrics import Metrics, Sample
from ..runtime.operation import Operation, run
from ..state.errors import TierstateError, UnknownOutcome
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from .jobs import MOVED, TRIES, range_error
from .log import TopicLog
from .table import LakeTable
from .table_catalog import LakeCatalog
from .table_facts import TableFacts
from .table_follow import (
    ALONE,
    Look,
    Means,
    Round,
    Step,
    TableLimits,
    behind_since,
    below,
    follow_round,
    look_at,
    require_tiered,
)
from .table_note import AGAIN_S, LASTING_S, note_of, report
from .table_snapshots import Retention, expire_some

LOOK_S = 5.0
"""About the longest time in seconds between two checks of a table that had nothing to commit."""
AGAIN = (*MOVED, UnknownOutcome)
"""Errors after which a round is tried again: records were deleted meanwhile, or a commit's outcome is unknown."""


@dataclass(frozen=True, slots=True)
class FollowPace:
    """``interval_s``: seconds that new records wait for more."""

    clock: Clock
    interval_s: float
    retention: Retention
    attempt_id: Callable[[], str]

    def expire_some(self, table: LakeTable) -> None:
        expire_some(table, self.retention, TimestampMs(self.clock.now_ms()))


@dataclass
class Rounds:
    """The rounds of one table, and the totals of its commits. ``waiting``: partitions that the last round could not
    read, and why. ``left_out``: partitions of which nothing more is read, and why.
    """

    commits: int = 0
    rows: int = 0
    files: int = 0
    missed: int = 0
    corrupt: int = 0
    waiting: dict[int, TierstateError] = field(default_factory=dict)
    left_out: dict[int, TierstateError] = field(default_factory=dict)
    tries: int = TRIES

    def take(self, operation: Operation[Round], look: Look, stopping: threading.Event) -> Round | None:
        """Run one round. Returns None if the round failed and can be tried again, or if it was stopped.

        The partition at fault is left out at once, or after `TRIES` failures if the error is one of `AGAIN`. Raises the
        error if it concerns more than one partition.
        """
        try:
            round_ = run(operation, stopping)
        except TierstateError as error:
            if isinstance(error, AGAIN) and self.tries > 1:
                self.tries -= 1
                return None
            self.tries = TRIES
            if (number := look.at_fault(error)) is None:
                raise
            self.left_out[number] = range_error(error)
            return None
        self.tries = TRIES
        if round_ is not None:
            self._count(round_)
        return round_

    def _count(self, done: Round) -> None:
        self.waiting = done.waiting
        if done.step in (Step.NOTHING, Step.RACED):
            return
        self.commits += 1
        self.rows += done.rows if done.step is Step.APPENDED else 0
        self.files += done.files
        self.missed += done.missed
        self.corrupt += done.corrupt


def catch_up(
    catalog: LakeCatalog, name: str, log: TopicLog, limits: TableLimits, pace: FollowPace, means: Means = ALONE
) -> Rounds:
    """Commit until the table has all readable records of the log. A partition that cannot be read is in ``waiting``.

    Raises the errors of a round, and InvalidRequest if the topic is not tiered.
    """
    require_tiered(catalog.table(name), log)
    rounds = Rounds()
    while True:
        table = catalog.table(name)
        look = look_at(table, log)
        look.leave_out(rounds.left_out)
        round_ = rounds.take(follow_round(table, log, look, pace.attempt_id(), limits, means), look, threading.Event())
        if round_ is None:
            continue
        if round_.step is Step.NOTHING:
            return rounds
        pace.expire_some(table)


@dataclass
class Kept(Rounds):
    """The state of a followed table. ``stopped``: why the table cannot continue, as text for people. ``noted``: the
    reason that the table itself shows. ``behind_since`` is in ms since 1970. ``due``, ``retry_at`` (when partitions
    that are left out are tried again), ``note_at`` (when a note may be written) and ``looked`` (the last look) are in
    seconds of the monotonic clock.
    """

    lag: int = 0
    behind_since: TimestampMs | None = None
    due: float = 0.0
    failures: int = 0
    stopped: str | None = None
    facts: TableFacts | None = None
    retry_at: float = 0.0
    noted: str | None = None
    note_at: float = 0.0
    looked: float = float("-inf")
    log: TopicLog | None = None
    views: list[PartitionView] | None = None
    """The views of the log at the last look (`TopicLog.views`)."""

    @property
    def has_news(self) -> bool:
        """Return whether the log may have changed since the last look, or that look left something to do. A stopped
        table has none: it is checked again as tables without news are.
        """
        if self.stopped and not self.left_out:
            return False
        if self.log is None or self.views is None or self.lag:
            return True
        views = self.log.views()
        return views is None or not all(map(is_, views, self.views))

    @property
    def format(self) -> str:
        """Return the format of values. Returns ``bytes`` if values are not typed or the table was not loaded yet."""
        form = None if self.facts is None else self.facts.columns.value
        return "bytes" if form is None else form.format


class Keeper:
    """Follows topics. `work` runs in a service's thread; other threads may call `stopped` and `lag_seconds`."""

    def __init__(
        self,
        catalog: LakeCatalog,
        names: tuple[str, ...],
        log: Callable[[TableFacts], TopicLog],
        limits: TableLimits,
        pace: FollowPace,
        logger: FilteringBoundLogger,
    ) -> None:
        """``names``: the tables to follow. Empty means all tables that follow a topic, including new tables."""
        self._catalog, self._names, self._log, self._limits = catalog, names, log, limits
        self._pace, self._logger = pace, logger
        self.tables: dict[str, Kept] = {}
        self._listed = float("-inf")
        self._unread: set[str] = set()
        """Tables that cannot be loaded. /readyz ignores one that was never loaded: it may be another team's."""

    def work(self, stopping: threading.Event) -> None:
        pause = min(LOOK_S, max(self._pace.interval_s, 0.1))
        while not stopping.is_set():
            if not self.turn(stopping, pause / LOOK_S):
                stopping.wait(pause)

    def turn(self, stopping: threading.Event, share: float = 1.0) -> bool:
        """Check tables, and commit if a commit is due. Returns False if nothing was done.

        ``share``: the part of the tables without news to check, too, beginning with the longest unchecked. Hundreds at
        once would delay the rows of those with news.
        """
        acted = False
        for name in self._due(share):
            if stopping.is_set():
                return acted
            kept = self.tables[name]
            kept.looked = self._pace.clock.monotonic()
            try:
                acted = self._keep(name, kept, stopping) or acted
            except Exception as error:
                is_bug = not isinstance(error, TierstateError)
                self._failed(name, kept, f"a bug: {error!r}" if is_bug else str(error), is_bug)
            self._note(name, kept)
        return acted

    def _due(self, share: float) -> list[str]:
        """List the tables of the catalog every `LOOK_S`. Return those to check now."""
        now = self._pace.clock.monotonic()
        if share >= 1 or now >= self._listed + LOOK_S:
            self._listed, names = now, self._ours()
            # a dropped table is no longer reported; other threads may be iterating over the earlier dictionary
            self.tables = {name: self.tables.get(name) or Kept() for name in names}
        idle = sorted((kept.looked, name) for name, kept in self.tables.items() if not kept.has_news)
        left_out = {name for _, name in idle[ceil(len(idle) * share) :]}
        return [name for name in self.tables if name not in left_out]

    def _note(self, name: str, kept: Kept) -> None:
        """Write into the table why it cannot continue, if that lasts. Remove the note once the table continues."""
        now = self._pace.clock.monotonic()
        if kept.facts is None or kept.stopped == kept.noted or (kept.stopped and now < kept.note_at):
            return
        if kept.stopped:
            kept.note_at = now + AGAIN_S
        report(self._catalog, name, kept.stopped, TimestampMs(self._pace.clock.now_ms()))

    def _failed(self, name: str, kept: Kept, reason: str, is_bug: bool = False) -> None:
        kept.failures += 1
        if kept.stopped is None:
            kept.note_at = max(kept.note_at, self._pace.clock.monotonic() + LASTING_S)
        if kept.stopped != reason:
            self._logger.warning("table waits", table=name, reason=reason, exc_info=is_bug)
        kept.stopped = reason

    def lag_seconds(self, kept: Kept) -> float:
        """Return the seconds since the oldest record that the table lacks was copied, or 0.0 if it lacks none."""
        return 0.0 if kept.behind_since is None else max(0, self._pace.clock.now_ms() - kept.behind_since) / 1000

    def stopped(self) -> list[str]:
        return [
            f"table {name}: {kept.stopped}"
            for name, kept in self.tables.items()
            if kept.stopped and (kept.facts is not None or name not in self._unread)
        ]

    def _ours(self) -> tuple[str, ...]:
        if self._names:
            return self._names
        try:
            going_on = {name for name, kept in self.tables.items() if kept.facts is not None and not kept.stopped}
            reasons = self._catalog.ours(going_on)
        except TierstateError as error:
            self._logger.warning("the catalog does not say which tables there are", reason=str(error))
            return tuple(self.tables)
        self._unread = {name for name, reason in reasons.items() if reason is not None}
        return tuple(reasons)

    def _keep(self, name: str, kept: Kept, stopping: threading.Event) -> bool:
        table = self._catalog.table(name)
        note = note_of(table)
        kept.facts, kept.noted = table.facts, note and note.reason
        kept.log = log = self._log(table.facts)
        kept.views = log.views()  # before the look: what comes later is news
        look = look_at(table, log)
        self._saw(kept, look, log)
        if self._pace.clock.monotonic() >= kept.retry_at:
            kept.left_out.clear()
        look.leave_out(kept.left_out)
        if not self._is_due(table, log, look, kept):
            kept.stopped = kept.stopped if kept.left_out else None
            return False
        before = kept.left_out.copy()
        round_ = kept.take(follow_round(table, log, look, self._pace.attempt_id(), self._limits), look, stopping)
        if round_ is None:
            for number in kept.left_out.keys() - before.keys():
                kept.retry_at = self._pace.clock.monotonic() + max(self._pace.interval_s, LOOK_S)
                self._failed(name, kept, str(kept.left_out[number]))
            return True
        kept.stopped, kept.facts = kept.stopped if kept.left_out else None, table.facts
        if round_.step is not Step.RACED:
            counts = {"rows": round_.rows, "rewritten_rows": round_.rewritten, "files": round_.files}
            self._logger.info("table", table=name, step=str(round_.step), **counts)
            self._pace.expire_some(table)
            remaining = look_at(table, log)
            self._saw(kept, remaining, log)
            if round_.step not in (Step.EVOLVED, Step.RESTATED):  # the records have waited long enough
                kept.due = self._pace.clock.monotonic() + self._pace.interval_s
        return True

    def _saw(self, kept: Kept, look: Look, log: TopicLog) -> None:
        kept.lag = look.lag
        if not look.lag:
            kept.behind_since = None
        else:  # a record that only the broker has was never copied
            copied_at = behind_since(look, log)
            kept.behind_since = copied_at or kept.behind_since or TimestampMs(self._pace.clock.now_ms())

    def _is_due(self, table: LakeTable, log: TopicLog, look: Look, kept: Kept) -> bool:
        if look.lost or look.old or below(table, look) or table.is_place_covered:
            return True
        if not look.news:
            return False
        if self._pace.clock.monotonic() >= kept.due:
            return True
        waiting = sum(log.planned(number, extent).log_bytes for number, extent in look.news.items())
        return waiting >= self._limits.commit_bytes


def feed_table_metrics(metrics: Metrics, keeper: Keeper) -> None:
    def told(value: Callable[[Kept], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [((name,), value(kept)) for name, kept in sorted(keeper.tables.items())]

    metrics.gauge("tierstate_table_lag_records", told(lambda kept: kept.lag))
    metrics.gauge("tierstate_table_lag_seconds", told(keeper.lag_seconds))
    metrics.gauge(
        "tierstate_table_version",
        lambda: [
            ((name, kept.format), kept.facts.version)
            for name, kept in sorted(keeper.tables.items())
            if kept.facts is not None
        ],
    )
    metrics.gauge("tierstate_table_stopped", told(lambda kept: 1.0 if kept.stopped else 0.0))
    metrics.tally("tierstate_table_commits_total", told(lambda kept: kept.commits))
    metrics.tally("tierstate_table_rows_total", told(lambda kept: kept.rows))
    metrics.tally("tierstate_table_files_total", told(lambda kept: kept.files))
    metrics.tally("tierstate_table_failures_total", told(lambda kept: kept.failures))
    metrics.tally("tierstate_table_corrupt_records_total", told(lambda kept: kept.corrupt))
    metrics.tally("tierstate_table_missed_records_total", told(lambda kept: kept.missed))

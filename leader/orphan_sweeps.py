"""Look for orphans of a partition that this broker leads, and sweep those that two looks a grace apart condemned.

A look lists the partition's folders and needs no term. Looks are a day apart, or a grace if that is shorter. Each
partition has its own times for looks, which a restart does not change. This process deletes only orphans that it saw
condemned (`sweeper.py`) for the whole grace. What an earlier process saw does not count.
"""

from __future__ import annotations

import zlib

from ..rules.missing import MissingObject
from ..rules.sweep import Leftover, UnneededObject
from ..runtime.listener import OperationFailed, OrphansFound
from ..runtime.operation import Operation
from ..state.errors import TierstateError
from ..state.ids import TopicIdPartition
from ..state.offsets import TimestampMs
from ..state.partition_view import PartitionView
from .quarantine import Quarantine
from .sweeper import SweepFindings, SweepTools, look, sweep_orphans
from .term import TermContext, TermSession

LOOK_EVERY_S = 86_400.0
LEAST_S = 1.0
AGAIN_S = 600.0
"""The wait after a look that failed, or that found objects missing."""


def until_turn(partition: TopicIdPartition, now_ms: TimestampMs, every_s: float) -> float:
    """Return the seconds until this partition's next time. Times are evenly spread, and equal in every process."""
    share = zlib.crc32(str(partition).encode()) / 2**32
    return (1 - (now_ms / 1000 / every_s - share) % 1) * every_s


class OrphanSweeps:
    """Finds and sweeps the orphans of one partition of topic ``name``. Used by one thread at a time."""

    def __init__(self, context: TermContext, partition: TopicIdPartition, name: str, tools: SweepTools) -> None:
        self._context, self._partition, self._name, self._tools = context, partition, name, tools
        self._every_s = min(max(tools.grace_s, LEAST_S), LOOK_EVERY_S)
        self._first_seen: dict[str, float] = {}
        self._ripe: dict[str, UnneededObject | Leftover] = {}
        self._due = self._next_turn()
        self.last: OrphansFound | None = None
        self.missing: tuple[MissingObject, ...] = ()
        """Missing objects of readable segments, as of the last look."""

    @property
    def ripe(self) -> tuple[str, ...]:
        """Return the object keys and upload ids that may be deleted now."""
        return tuple(self._ripe)

    @property
    def quarantine(self) -> Quarantine:
        return self._tools.quarantine

    def rest(self) -> None:
        """Forget all orphans: this broker does not lead, so another process may take care of them."""
        self._first_seen.clear()
        self._ripe.clear()
        self.last, self.missing = None, ()

    def look_soon(self) -> None:
        """Make the next look due at once."""
        self._due = self._context.clock.monotonic()

    def look_if_due(self, view: PartitionView) -> bool:
        """Look if a look is due. Return whether a look was completed. A tierstate error is reported, not raised, and
        the look is repeated after `AGAIN_S`.
        """
        if self._context.clock.monotonic() < self._due:
            return False
        try:
            self.look(view)
        except TierstateError as error:
            self._tell(str(error))
            self._due = self._context.clock.monotonic() + AGAIN_S
            return False
        return True

    def look(self, before: PartitionView) -> SweepFindings:
        """Look for orphans now, and report them to the listener. Raises the errors of `sweeper.look`, ViewBehind."""
        clock = self._context.clock
        findings = look(self._tools, self._name, before, self._fresh_view, self._context.time.clocks().for_deletion)
        now, condemned = clock.monotonic(), findings.condemned
        self._first_seen = {name: self._first_seen.get(name, now) for name in condemned}
        waiting = {name: self._tools.grace_s - (now - seen) for name, seen in self._first_seen.items()}
        self._ripe = {name: condemned[name] for name, left in waiting.items() if left <= 0}
        self.missing = findings.missing
        again = [now + AGAIN_S] if findings.missing else []  # the missing objects may be restored
        self._due = min([self._next_turn(), *again, *(now + left for left in waiting.values() if left > 0)])
        orphans = findings.orphans
        self.last = OrphansFound(
            self._partition,
            self._name,
            objects=len(orphans),
            bytes=sum(each.info.size for each in orphans),
            condemned=len(condemned),
            missing=len(findings.missing),
        )
        self._tools.listener(self.last)
        if findings.uploads_unseen:
            self._tell(f"unfinished uploads cannot be listed: {findings.uploads_unseen}")
        return findings

    def sweep(self, session: TermSession) -> Operation[int]:
        """Delete the orphans that may be deleted now. Return their number."""
        return sweep_orphans(session, self._tools, self._ripe)

    def _fresh_view(self) -> PartitionView:
        view = self._context.view
        view.require_fresh(view.tier_partition(self._partition), 0)
        return view.partition(self._partition)

    def _next_turn(self) -> float:
        clock = self._context.clock
        return clock.monotonic() + until_turn(self._partition, clock.now_ms(), self._every_s)

    def _tell(self, error: str) -> None:
        self._tools.listener(OperationFailed(self._partition, self._name, "look for orphans", error))

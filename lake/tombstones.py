"""Tells from clocks whether Kafka's cleaner may have removed tombstones that a table has not seen (`compacted.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.clock import Clock
from ..state.errors import InvalidRequest
from ..state.offsets import TimestampMs
from .table_place import Seen

SLACK_MS = 3_600_000
"""For clocks that differ, and for how long the cleaner runs. A quarter of a shorter `delete.retention.ms`."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones of a topic. ``keep_ms``: how long the cleaner keeps them."""

    clock: Clock
    keep_ms: int

    def now(self) -> Seen:
        return Seen(TimestampMs(self.clock.now_ms()), self.keep_ms)

    def may_lack(self, seen: Seen | None) -> bool:
        """Return whether the cleaner may have removed a tombstone that was not in the log yet at that time."""
        if seen is None:
            return True
        keep_ms = min(self.keep_ms, seen.keep_ms)
        slack = min(SLACK_MS, keep_ms // 4)
        return not -slack <= self.clock.now_ms() - seen.at < keep_ms - slack

    def is_old(self, seen: Seen | None) -> bool:
        """Return whether a follower with all records should say so again."""
        return seen is None or self.clock.now_ms() - seen.at >= min(self.keep_ms, seen.keep_ms) // 4

    def too_slow(self, topic: str, partition: int, fold: Seen) -> InvalidRequest:
        """Return the error of a fold that began then, and did not end in time."""
        return InvalidRequest(
            "the fold of the topic did not end before the cleaner may remove tombstones, so it begins again; set the"
            " topic's delete.retention.ms higher, or make fewer commits of it (--commit-bytes)",
            topic=topic,
            partition=partition,
            seconds=(self.clock.now_ms() - fold.at) // 1000,
            delete_retention_ms=min(self.keep_ms, fold.keep_ms),
        )

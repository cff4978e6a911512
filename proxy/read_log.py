"""The access log. For each connection, partition and tier it gets a JSON line a minute, and at the connection's end.

    {"time": "2026-01-01T00:00:00Z", "user": "ann", "client": "10.0.0.7:51234", "topic": "orders", "partition": 0,
     "tier": "remote", "first_offset": 0, "last_fetch_offset": 45000, "bytes": 10485760}

``user`` is the SASL user name that the broker accepted, or empty without a login. ``first_offset`` and
``last_fetch_offset`` are the lowest and the highest offset at which a fetch began. A failed write of a line does not
end the client's connection: it is logged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ..runtime.clock import Clock
from ..state.offsets import moment
from .fetch_request import Place

EVERY_S = 60.0


@dataclass(slots=True)
class _Seen:
    first: int
    last: int
    size: int


class ReadLog:
    """The access log. ``write`` writes one line; it is None without an access log."""

    def __init__(self, write: Callable[[str], None] | None, clock: Clock) -> None:
        self.write, self.clock = write, clock


class Reads:
    """The reads of one connection. ``user`` is empty until the broker has accepted it."""

    def __init__(self, log: ReadLog, client: str) -> None:
        self._log, self._client = log, client
        self.user = ""
        self._seen: dict[tuple[Place, str], _Seen] = {}
        self._since = log.clock.monotonic()

    @property
    def are_logged(self) -> bool:
        return self._log.write is not None

    def saw(self, place: Place, tier: str, offset: int, size: int) -> None:
        """Record that ``size`` bytes of records, from a fetch at ``offset``, were returned to the client."""
        if not self.are_logged:
            return
        reads = self._seen.get((place, tier))
        if reads is None:
            self._seen[place, tier] = _Seen(offset, offset, size)
        else:
            reads.first, reads.last = min(reads.first, offset), max(reads.last, offset)
            reads.size += size
        if self._log.clock.monotonic() - self._since >= EVERY_S:
            self.close()

    def close(self) -> None:
        """Write a line for each partition and tier that was read since the last call. Reads may continue."""
        write, now = self._log.write, self._log.clock
        self._since = now.monotonic()
        seen, self._seen = self._seen, {}
        if write is None:
            return
        time = moment(now.now_ms())
        for ((topic, partition), tier), reads in seen.items():
            line = {
                "time": time,
                "user": self.user,
                "client": self._client,
                "topic": topic,
                "partition": partition,
                "tier": tier,
                "first_offset": reads.first,
                "last_fetch_offset": reads.last,
                "bytes": reads.size,
            }
            write(json.dumps(line))

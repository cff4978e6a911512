"""Leases that protect what a job reads: taken before it plans, renewed while it reads, and ended when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..app.opening.connection import Connection
from ..app.operating.orders import issuer, take_back
from ..app.operating.reader_leases import take_leases
from ..follower.follower import Follower
from ..runtime.id_source import RandomIds
from ..state.errors import AccessDenied, TierstateError, Unavailable
from ..state.facts import ReaderLease
from ..state.ids import TopicId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Extent

LEASE_S = 600.0
"""The longest duration of a lease in seconds; it is renewed after a third. A killed job's lease remains so long."""

Keep = Callable[[Mapping[int, Extent]], None]
"""Protects these ranges of a topic's partitions from deletion while they are read, until the next call."""


def no_lease(ranges: Mapping[int, Extent]) -> None:
    """A `Keep` that protects nothing."""


class Renewal:
    """A thread that renews leases of ``lease_s`` seconds, from `begin` to `end`."""

    def __init__(self, renew: Callable[[], None], lease_s: float) -> None:
        self._renew, self._lease_s, self._over = renew, lease_s, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="leases")

    def begin(self) -> None:
        """Start the thread if it is not running."""
        if not self._thread.is_alive():
            self._thread.start()

    def end(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            self._renew()


class Leases:
    """Leases on partitions of one topic. If a lease cannot be written, ``tell`` is called once. Then no lease is taken.

    A thread renews them, because reading may take longer than a lease without a call of `keep`.
    """

    def __init__(
        self, connection: Connection, view: Follower, topic_id: TopicId, what: str, tell: Callable[[str], None]
    ) -> None:
        self._connection, self._view, self._topic_id, self._tell = connection, view, topic_id, tell
        self._holder = f"{what} {issuer()}"
        self._seconds = min(LEASE_S, connection.settings.lease.max)
        self._taken: list[ReaderLease] = []
        self._ranges: Mapping[int, Extent] = {}
        self._refused = False
        self._lock, self._renewal = threading.Lock(), Renewal(self._renew, self._seconds)

    def keep(self, ranges: Mapping[int, Extent]) -> None:
        """Protect these ranges from now on. Takes no new lease if the current leases cover them."""
        if not ranges:
            return
        with self._lock:
            covered = bool(self._taken) and all(_within(extent, self._ranges.get(at)) for at, extent in ranges.items())
            self._ranges = dict(ranges)
            if not covered:
                self._take()
        self._renewal.begin()

    def _renew(self) -> None:
        with self._lock:
            self._take()

    def _take(self) -> None:
        if self._refused:
            return
        ranges = {TopicIdPartition(self._topic_id, number): extent for number, extent in self._ranges.items()}
        try:
            self._taken += take_leases(self._connection, self._view, ranges, self._holder, self._seconds, RandomIds())
        except TierstateError as error:
            self._refused = True
            self._tell(f"no lease keeps what is read, should it expire meanwhile: {error}")

    def end(self) -> None:
        """End all leases that were taken. A lease that cannot be ended expires."""
        self._renewal.end()
        for lease in self._taken:
            try:
                take_back(self._connection, self._view, lease.partition, (key_of(lease),))
            except (AccessDenied, Unavailable) as error:
                self._tell(f"a lease could not be ended, and ends by its time: {error}")
        self._taken.clear()


def _within(inner: Extent, outer: Extent | None) -> bool:
    return outer is not None and outer.start <= inner.start and inner.end <= outer.end


@contextmanager
def leased(
    connection: object, view: object, topic_id: TopicId, what: str, tell: Callable[[str], None]
) -> Iterator[Keep]:
    """Yield a `Keep` that works while the block runs. It takes no lease if only the bucket is connected."""
    if not (isinstance(connection, Connection) and isinstance(view, Follower)):
        yield no_lease
        return
    leases = Leases(connection, view, topic_id, what, tell)
    try:
        yield leases.keep
    finally:
        leases.end()

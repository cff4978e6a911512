"""Leases of a job for as long as it runs: taken before it plans, renewed while it reads, ended when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..app.connection import Connection
from ..app.orders import issuer, take_back
from ..app.reader_leases import take_leases
from ..follower.follower import Follower
from ..runtime.id_source import RandomIds
from ..state.errors import AccessDenied, TierstateError, Unavailable
from ..state.ids import TopicId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Extent
from ..state.termless_facts import ReaderLease

LEASE_S = 600.0
"""Of one lease: so long it outlives a job that was killed. Another is taken before half of it is over."""

Keep = Callable[[Mapping[int, Extent]], None]
"""Keeps these ranges of a topic's partitions from being deleted while they are read, until it is told others."""


class Leases:
    """On partitions of one topic. Where nobody may write them, ``tell`` hears it once, and nothing is kept.

    A thread of its own renews them: what is read may take longer than a lease, and say nothing meanwhile.
    """

    def __init__(
        self, connection: Connection, view: Follower, topic_id: TopicId, what: str, tell: Callable[[str], None]
    ) -> None:
        self._connection, self._view, self._topic_id, self._tell = connection, view, topic_id, tell
        self._holder = f"{what} {issuer()}"
        self._seconds = min(LEASE_S, connection.settings.lease.max)
        self._taken: list[ReaderLease] = []
        self._wanted: Mapping[int, Extent] = {}
        self._refused = False
        self._lock, self._over = threading.Lock(), threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True, name="leases")

    def keep(self, ranges: Mapping[int, Extent]) -> None:
        """These ranges, from now on. Asks nothing for what it keeps already."""
        if not ranges:
            return
        with self._lock:
            kept = bool(self._taken) and all(_within(extent, self._wanted.get(at)) for at, extent in ranges.items())
            self._wanted = dict(ranges)
            if not kept:
                self._take()
        if not self._renewing.is_alive():
            self._renewing.start()

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / 3):
            with self._lock:
                self._take()

    def _take(self) -> None:
        if self._refused:
            return
        wanted = {TopicIdPartition(self._topic_id, number): extent for number, extent in self._wanted.items()}
        try:
            self._taken += take_leases(self._connection, self._view, wanted, self._holder, self._seconds, RandomIds())
        except TierstateError as error:
            self._refused = True
            self._tell(f"no lease keeps what is read, should it expire meanwhile: {error}")

    def end(self) -> None:
        """Of all that were taken. What cannot be ended ends by its time."""
        self._over.set()
        if self._renewing.is_alive():
            self._renewing.join()
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
    """What keeps ranges, for as long as the block lasts. From the bucket alone nobody is told anything."""
    if not (isinstance(connection, Connection) and isinstance(view, Follower)):
        yield lambda ranges: None
        return
    leases = Leases(connection, view, topic_id, what, tell)
    try:
        yield leases.keep
    finally:
        leases.end()

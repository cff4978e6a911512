"""Leases of a job for as long as it runs: taken before it plans, renewed while it reads, ended when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..app.connection import Connection
from ..app.orders import issuer, take_back
from ..app.reader_leases import take_leases
from ..follower.follower import Follower
from ..runtime.id_source import RandomIds
from ..state.errors import AccessDenied, Unavailable
from ..state.ids import TopicId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Offset
from ..state.termless_facts import ReaderLease

LEASE_S = 7200.0

Keep = Callable[[Mapping[int, tuple[Offset, Offset]]], None]
"""Keeps these ranges of a topic's partitions from being deleted while they are read; asked again and again."""


class Leases:
    """On partitions of one topic. Where nobody may write them, ``tell`` hears it once, and nothing is kept."""

    def __init__(
        self, connection: Connection, view: Follower, topic_id: TopicId, what: str, tell: Callable[[str], None]
    ) -> None:
        self._connection, self._view, self._topic_id, self._tell = connection, view, topic_id, tell
        self._holder = f"{what} {issuer()}"
        self._seconds = min(LEASE_S, connection.settings.lease.max)
        self._taken: list[ReaderLease] = []
        self._refused = False
        self._due = 0.0

    def keep(self, ranges: Mapping[int, tuple[Offset, Offset]]) -> None:
        """These ranges, from now on. Asks nothing while what was taken last has half its time left."""
        if self._refused or not ranges or self._connection.clock.monotonic() < self._due:
            return
        wanted = {TopicIdPartition(self._topic_id, number): extent for number, extent in ranges.items()}
        try:
            self._taken += take_leases(self._connection, self._view, wanted, self._holder, self._seconds, RandomIds())
        except (AccessDenied, Unavailable) as error:
            self._refused = True
            self._tell(f"no lease keeps what is read, should it expire meanwhile: {error}")
        self._due = self._connection.clock.monotonic() + self._seconds / 2

    def end(self) -> None:
        """Of all that were taken. What cannot be ended ends by its time."""
        for lease in self._taken:
            try:
                take_back(self._connection, self._view, lease.partition, (key_of(lease),))
            except (AccessDenied, Unavailable) as error:
                self._tell(f"a lease could not be ended, and ends by its time: {error}")
        self._taken.clear()


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

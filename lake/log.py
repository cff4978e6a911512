"""The log that an export or a table reads: it locates ranges by a view of both tiers, or through a gateway.

Leases protect what a job reads: they are taken before it plans, renewed while it reads, and ended when it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from ..app.opening.connection import Connection
from ..app.opening.split_reads import LogAccess
from ..app.operating.orders import issuer, take_back
from ..app.operating.reader_leases import take_leases
from ..fetch.gateway import GatewayClient
from ..fetch.gateway_plans import GatewayGrants, end_plan, leased_plan
from ..fetch.logical import LogicalPartition
from ..fetch.plan import PlannedRange, planned
from ..fetch.planned_split import PlannedSplit, Skipped
from ..fetch.reader import LogReader
from ..follower.follower import Follower
from ..runtime.id_source import RandomIds
from ..state.epochs import Lineage
from ..state.errors import AccessDenied, TierstateError, Unavailable
from ..state.facts import ReaderLease
from ..state.ids import TopicId, TopicIdPartition
from ..state.keys import key_of
from ..state.offsets import Extent, Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier
from ..state.segment import RemoteSegment
from .jobs import records_of

if TYPE_CHECKING:
    import pyarrow as pa

    from .tombstones import Tombstones


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
            covered = bool(self._taken) and all(extent.within(self._ranges.get(at)) for at, extent in ranges.items())
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

    def close(self) -> None:
        """End all leases that were taken. A lease that cannot be ended expires."""
        self._renewal.end()
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
    """Yield a `Keep` that works while the block runs. It takes no lease if only the bucket is connected."""
    if not (isinstance(connection, Connection) and isinstance(view, Follower)):
        yield no_lease
        return
    with closing(Leases(connection, view, topic_id, what, tell)) as leases:
        yield leases.keep


class OwnLog:
    """Reads both tiers directly. `leased` protects segments while they are read."""

    def __init__(self, reader: LogReader) -> None:
        self.source = reader

    def topic_id(self, topic: str) -> TopicId:
        return self.source.topic(topic).topic_id

    def planned(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, *, leased: bool = False
    ) -> PlannedRange:
        """Return how to read a range: from the remote tier where possible. ``leased`` has no effect here."""
        return planned(self.source, {(topic, partition): extent}, isolation=isolation)[0]


class GatewayLog:
    """Reads the log through a gateway. Each range that is read has a plan at the gateway.

    The gateway renews a plan's lease when a segment of the plan is requested. A thread requests a segment of each plan,
    because the last task of a long job may begin hours after it was planned. ``lease_s``: seconds.
    """

    def __init__(self, client: GatewayClient, tell: Callable[[str], None], lease_s: float = LEASE_S) -> None:
        self.source, self._tell, self._lease_s = client, tell, lease_s
        self._plans: dict[str, RemoteSegment] = {}
        """One segment of each plan, by the plan's name."""
        self._renewal = Renewal(self._renew, lease_s)

    def topic_id(self, topic: str) -> TopicId:
        return self.source.topic_id(topic)

    def planned(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, *, leased: bool = False
    ) -> PlannedRange:
        """Return how to read a range. ``leased``: the range will be read, and the gateway keeps it until `close`."""
        tier, lease_s = (Tier.PREFER_REMOTE, self._lease_s) if leased else (Tier.AUTO, 0.0)
        head, ranges = leased_plan(self.source, {(topic, partition): extent}, isolation, tier, lease_s, self._tell)
        segment = next((part.segment for part in ranges[0].whole.parts if part.segment is not None), None)
        if head.plan and segment is not None:  # otherwise nothing of the plan can expire
            self._plans[head.plan] = segment
            self._renewal.begin()
        return ranges[0]

    def close(self) -> None:
        """End all plans. A lease that cannot be ended expires."""
        self._renewal.end()
        for name, segment in self._plans.items():
            try:
                end_plan(self.source, segment.topic, name)
            except TierstateError as error:
                self._tell(f"a lease could not be ended, and ends by its time: {error}")

    def _renew(self) -> None:
        for name, segment in list(self._plans.items()):
            try:
                with closing(GatewayGrants(self.source, name)) as grants:
                    grants.grant(segment)
            except TierstateError as error:
                self._tell(f"a lease was not renewed, and what it keeps may go: {error}")


ExportedLog: TypeAlias = OwnLog | GatewayLog
"""Methods raise UnknownTopic, OffsetOutOfRange, LogGap, CorruptData, AccessDenied and Unavailable."""


class TopicLog:
    """The log of the topic that has this name now. Raises UnknownTopic, LineageUnconfirmed and errors of reading.

    ``tombstones``: how long Kafka's cleaner keeps those of a compacted topic; None for any other topic.
    """

    tombstones: Tombstones | None = None

    def __init__(self, reader: LogReader, topic: str, isolation: Isolation, access: LogAccess, *, local: bool) -> None:
        """``local``: up to the last stable offset. Otherwise only finished segments of the remote tier."""
        self._reader, self.topic, self._isolation, self.access = reader, topic, isolation, access
        self._tier = Tier.AUTO if local else Tier.REMOTE
        self._parts: list[LogicalPartition] = []

    def topic_id(self) -> TopicId:
        return self._reader.topic(self.topic).topic_id

    def partitions(self) -> int:
        return self._reader.topic(self.topic).partitions

    def numbers(self) -> Iterator[int]:
        """Yield the numbers by which the other methods and the table's place name partitions."""
        yield from range(self.partitions())

    def number_of(self, topic: object, partition: int) -> int | None:
        """Return the number of a partition that an error names."""
        return partition

    def _topic_partition(self, number: int) -> tuple[str, int]:
        """Return the topic and the partition that have this number."""
        return self.topic, number

    def _log(self, number: int) -> LogicalPartition:
        return self._reader.partition(*self._topic_partition(number))

    def is_tiered(self) -> bool:
        """Return whether the tier-state topic ever had a fact of the topic."""
        return any(self.lineage(number).last_epoch is not None for number in self.numbers())

    def views(self) -> list[PartitionView] | None:
        """Return the view of each partition, which is the same object until a fact changes. None if that is no sign of
        new records: the local tier is read, too, or a view is missing. The partitions are those of the first call.
        """
        if self._tier is not Tier.REMOTE:
            return None
        with suppress(TierstateError):
            if not self._parts:
                self._parts = [self._log(number) for number in self.numbers()]
            return [part.view() for part in self._parts]
        return None

    def extent(self, partition: int) -> Extent:
        """Return the log start offset, and the end (exclusive) of the part to follow."""
        start, end = self._reader.extent(*self._topic_partition(partition), isolation=self._isolation, tier=self._tier)
        log = self._log(partition)
        # below sure_end, the view's lineage is surely that of the log that is read
        sure_end = log.sure_end(log.fresh_view(), log.local_bounds())
        return Extent(start, Offset(max(start, min(end, sure_end))))

    def lineage(self, partition: int) -> Lineage:
        """Return the lineage of the leader's log below the end of `extent`. It is empty until a fact has it."""
        return self._log(partition).view().lineage

    def planned(self, partition: int, extent: Extent) -> PlannedRange:
        """Return how to read a range, which is not empty: from the remote tier where possible."""
        return planned(self._reader, {self._topic_partition(partition): extent}, isolation=self._isolation)[0]

    def skipped(self, partition: int, start: Offset, end: Offset) -> list[Skipped]:
        """Return the accepted gaps within ``[start, end)``."""
        log = self._log(partition)
        end = min(end, log.local_bounds().local_start)
        gaps = log.fresh_view().skipped(OffsetRange(start, Offset(end - 1))) if start < end else []
        return [Skipped(partition, gap.start, Offset(gap.end + 1)) for gap in gaps]

    def copied_at(self, partition: int, offset: Offset) -> TimestampMs | None:
        """Return when the segment with this offset was copied. Returns None if no segment has it."""
        owner = self._log(partition).view().coverage.at(offset)
        return None if owner is None else owner.segment.copied_at

    def read(self, split: PlannedSplit) -> Generator[pa.RecordBatch, None, None]:
        """Yield exactly the records of a split. Close the generator after use."""
        return records_of(split, self.access)

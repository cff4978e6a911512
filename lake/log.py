"""The log that an export or a table reads: it locates ranges by a view of both tiers, or through a gateway."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeAlias

from ..app.opening.split_reads import LogAccess
from ..fetch.gateway import GatewayClient
from ..fetch.gateway_plans import GatewayGrants, end_plan, leased_plan
from ..fetch.plan import PlannedRange, plan, planned
from ..fetch.planned_split import PlannedSplit, Skipped
from ..fetch.reader import LogReader
from ..fetch.source import ReaderSource
from ..state.epochs import Lineage
from ..state.errors import TierstateError
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, OffsetRange
from ..state.routing import Isolation, Tier
from ..state.segment import RemoteSegment
from .jobs import records_of
from .leases import LEASE_S, Renewal

if TYPE_CHECKING:
    import pyarrow as pa


class OwnLog:
    """Reads both tiers directly. `leases.leased` protects segments while they are read."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.source = ReaderSource(reader)

    def topic_id(self, topic: str) -> TopicId:
        return self._reader.topic(topic).topic_id

    def planned(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, *, leased: bool = False
    ) -> PlannedRange:
        """Return how to read a range: from the remote tier where possible. ``leased`` has no effect here."""
        return planned(self._reader, {(topic, partition): extent}, isolation=isolation)[0]


class GatewayLog:
    """Reads the log through a gateway. Each range that is read has a plan at the gateway.

    The gateway renews a plan's lease when a segment of the plan is requested. A thread requests a segment of each plan,
    because the last task of a long job may begin hours after it was planned. ``lease_s``: seconds.
    """

    def __init__(self, client: GatewayClient, tell: Callable[[str], None], lease_s: float) -> None:
        self.source, self._tell, self._lease_s = client, tell, lease_s
        self._plans: dict[str, RemoteSegment] = {}
        """One segment of each plan, by the plan's name."""
        self._renewal = Renewal(self._renew, lease_s)

    def topic_id(self, topic: str) -> TopicId:
        return self.source.topic_id(topic)

    def planned(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, *, leased: bool = False
    ) -> PlannedRange:
        """Return how to read a range. ``leased``: the range will be read, and the gateway keeps it until `end`."""
        tier, lease_s = (Tier.PREFER_REMOTE, self._lease_s) if leased else (Tier.AUTO, 0.0)
        head, ranges = leased_plan(self.source, {(topic, partition): extent}, isolation, tier, lease_s, self._tell)
        segment = next((part.segment for part in ranges[0].whole.parts if part.segment is not None), None)
        if head.plan and segment is not None:  # otherwise nothing of the plan can expire
            self._plans[head.plan] = segment
            self._renewal.begin()
        return ranges[0]

    def end(self) -> None:
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


@contextmanager
def gateway_log(client: GatewayClient, tell: Callable[[str], None], lease_s: float = LEASE_S) -> Iterator[GatewayLog]:
    """Yield the log. Its plans are ended when the block ends."""
    log = GatewayLog(client, tell, lease_s)
    try:
        yield log
    finally:
        log.end()


ExportedLog: TypeAlias = OwnLog | GatewayLog
"""Methods raise UnknownTopic, OffsetOutOfRange, LogGap, CorruptData, AccessDenied and Unavailable."""


class TopicLog:
    """The log of the topic that has this name now. Raises UnknownTopic, LineageUnconfirmed and errors of reading."""

    def __init__(self, reader: LogReader, topic: str, isolation: Isolation, access: LogAccess, *, local: bool) -> None:
        """``local``: up to the last stable offset. Otherwise only finished segments of the remote tier."""
        self._reader, self.topic, self._isolation, self.access = reader, topic, isolation, access
        self._tier = Tier.AUTO if local else Tier.REMOTE

    def topic_id(self) -> TopicId:
        return self._reader.topic(self.topic).topic_id

    def partitions(self) -> int:
        return self._reader.topic(self.topic).partitions

    def extent(self, partition: int) -> Extent:
        """Return the log start offset, and the end (exclusive) of the part to follow."""
        start, end = self._reader.extent(self.topic, partition, isolation=self._isolation, tier=self._tier)
        log = self._reader.partition(self.topic, partition)
        # below sure_end, the view's lineage is surely that of the log that is read
        sure_end = log.sure_end(log.fresh_view(), log.local_bounds())
        return Extent(start, Offset(max(start, min(end, sure_end))))

    def lineage(self, partition: int) -> Lineage:
        """Return the lineage of the leader's log below the end of `extent`. It is empty until a fact has it."""
        return self._reader.partition(self.topic, partition).view().lineage

    def splits(self, partition: int, start: Offset, end: Offset, split_bytes: int) -> list[PlannedSplit]:
        """Return the range ``[start, end)``, cut into splits of about ``split_bytes`` bytes of log."""
        ranges = {(self.topic, partition): (start, end)}
        return plan(self._reader, ranges, isolation=self._isolation, max_split_bytes=split_bytes)

    def skipped(self, partition: int, start: Offset, end: Offset) -> list[Skipped]:
        """Return the accepted gaps within ``[start, end)``."""
        log = self._reader.partition(self.topic, partition)
        end = min(end, log.local_bounds().local_start)
        gaps = log.fresh_view().skipped(OffsetRange(start, Offset(end - 1))) if start < end else []
        return [Skipped(partition, gap.start, Offset(gap.end + 1)) for gap in gaps]

    def log_bytes(self, partition: int, start: Offset, end: Offset) -> int:
        """Return the approximate bytes of log in ``[start, end)``."""
        ranges = {(self.topic, partition): (start, end)}
        return sum(each.log_bytes for each in planned(self._reader, ranges, isolation=self._isolation))

    def read(self, split: PlannedSplit) -> Generator[pa.RecordBatch, None, None]:
        """Yield exactly the records of a split. Close the generator after use."""
        return records_of(split, self.access)

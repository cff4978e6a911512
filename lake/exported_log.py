"""The log that an export reads: where ranges are now, by our own view of both tiers or by a gateway's plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from ..fetch.gateway import GatewayClient
from ..fetch.gateway_plans import GatewayGrants, end_plan, leased_plan
from ..fetch.plan import PlannedRange, planned
from ..fetch.reader import LogReader
from ..fetch.source import ReaderSource, RecordSource
from ..state.errors import TierstateError
from ..state.ids import TopicId
from ..state.offsets import Extent
from ..state.routing import Isolation, Tier
from ..state.segment import RemoteSegment
from .kept import LEASE_S


class ExportedLog(Protocol):
    """The log of one topic. Raises UnknownTopic, OffsetOutOfRange, LogGap, CorruptData, AccessDenied, Unavailable."""

    @property
    def source(self) -> RecordSource: ...

    def topic_id(self, topic: str) -> TopicId: ...

    def outlined(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        """Return where a range is, for a caller who cuts it."""
        ...

    def routed(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        """Return how to read a range: from the remote tier where possible."""
        ...


class OwnLog:
    """Both tiers, directly. `kept.leased` keeps segments while they are read."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.source = ReaderSource(reader)

    def topic_id(self, topic: str) -> TopicId:
        return self._reader.topic(topic).topic_id

    def outlined(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        return planned(self._reader, {(topic, partition): extent}, isolation=isolation)[0]

    def routed(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        ranges = {(topic, partition): extent}
        return planned(self._reader, ranges, isolation=isolation, tier=Tier.PREFER_REMOTE)[0]


class GatewayLog:
    """The log by a gateway: each range that is routed is a plan.

    The gateway renews a plan's lease when a segment of it is asked for. A thread asks for segments that are not read
    yet: the last task of a long job begins hours after it was planned.
    """

    def __init__(self, client: GatewayClient, tell: Callable[[str], None], lease_s: float) -> None:
        self.source, self._tell, self._lease_s = client, tell, lease_s
        self._plans: dict[str, RemoteSegment] = {}
        """By a plan's name: one of its segments."""
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True, name="plans")

    def topic_id(self, topic: str) -> TopicId:
        return self.source.topic_id(topic)

    def outlined(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        return self._planned(topic, partition, extent, isolation, Tier.AUTO, 0.0)

    def routed(self, topic: str, partition: int, extent: Extent, isolation: Isolation) -> PlannedRange:
        return self._planned(topic, partition, extent, isolation, Tier.PREFER_REMOTE, self._lease_s)

    def end(self) -> None:
        """End its plans. A lease that cannot be ended expires."""
        self._over.set()
        if self._renewing.is_alive():
            self._renewing.join()
        for plan, segment in self._plans.items():
            try:
                end_plan(self.source, segment.topic, plan)
            except TierstateError as error:
                self._tell(f"a lease could not be ended, and ends by its time: {error}")

    def _renew(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            for plan, segment in list(self._plans.items()):
                try:
                    with closing(GatewayGrants(self.source, plan)) as grants:
                        grants.grant(segment)
                except TierstateError as error:
                    self._tell(f"a lease was not renewed, and what it keeps may go: {error}")

    def _planned(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, lease_s: float
    ) -> PlannedRange:
        head, ranges = leased_plan(self.source, {(topic, partition): extent}, isolation, tier, lease_s, self._tell)
        segment = next((part.segment for part in ranges[0].whole.parts if part.segment is not None), None)
        if head.plan and segment is not None:  # else nothing of it can expire
            self._plans[head.plan] = segment
            if not self._renewing.is_alive():
                self._renewing.start()
        return ranges[0]


@contextmanager
def gateway_log(client: GatewayClient, tell: Callable[[str], None], lease_s: float = LEASE_S) -> Iterator[GatewayLog]:
    """Yield the log, and end its plans with the block."""
    log = GatewayLog(client, tell, lease_s)
    try:
        yield log
    finally:
        log.end()

"""Plans that a gateway makes: the driver needs neither the tier-state topic nor a key to the bucket.

As `planning.py`, with the gateway in the place of the view; what a user may not read is not in its answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

from ..app.gateway_access import GatewayAccess
from ..fetch.gateway import GatewayClient
from ..fetch.gateway_plans import asked_plan, leased_plan
from ..fetch.plan import PlannedRange, PlannedSplit
from ..state.errors import AccessDenied, OffsetOutOfRange, SegmentExpired, Unavailable, UnknownTopic
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier
from ..state.segment import RemoteSegment
from .options import Assigned, Choice, SourceOptions, Subscribed
from .positions import TopicPartition
from .ranges import resolve_ranges

log = logging.getLogger("tierstate.spark")
RANGES = 1000
"""Of one call for a plan."""


def gateway_ranges(options: SourceOptions, access: GatewayAccess) -> list[PlannedRange]:
    """Routed and leased, in order of topic and partition.

    Raises InvalidRequest, UnknownTopic, OffsetOutOfRange, LogGap, AccessDenied, Unavailable.
    """
    with closing(access.client()) as client:
        reader = _Log(client)
        partitions = tuple(_chosen(options.choice, client))
        try:
            return _planned(options, client, resolve_ranges(options, reader, partitions))
        except OffsetOutOfRange:
            # the log start may have moved before the lease stood: what is asked for and is not there is said by this
            return _planned(options, client, resolve_ranges(options, reader, partitions))


def gateway_splits(access: GatewayAccess, rest: PlannedSplit) -> list[PlannedSplit]:
    """The rest of a split as it is read now, for whoever has its plan already. Raises as `gateway_ranges`."""
    with closing(access.client()) as client:
        ranges = {(rest.topic, rest.partition): (rest.start, rest.end)}
        _, found = asked_plan(client, ranges, rest.isolation, Tier.PREFER_REMOTE, 0.0)
        return [each.whole for each in found]


def is_live(access: GatewayAccess, split: PlannedSplit, segment: RemoteSegment) -> bool | None:
    """Whether readers may still expect its objects. None: the gateway cannot be asked."""
    try:
        with closing(access.client()) as client:
            found = client.segments(split.topic, split.partition)
    except (UnknownTopic, SegmentExpired):
        return False
    except (AccessDenied, Unavailable):
        return None
    return any(
        each["segment_id"] == str(segment.segment_id) and each["state"] == "COPY_SEGMENT_FINISHED" for each in found
    )


def _planned(options: SourceOptions, client: GatewayClient, ranges: dict[TopicPartition, Extent]) -> list[PlannedRange]:
    found: list[PlannedRange] = []
    wanted = list(ranges.items())
    for at in range(0, len(wanted), RANGES):
        some = dict(wanted[at : at + RANGES])
        found += leased_plan(client, some, options.isolation, options.tier, options.lease, log.warning)[1]
    return found


def _chosen(choice: Choice, client: GatewayClient) -> Iterator[TopicPartition]:
    """What the gateway serves of it, ascending. Raises UnknownTopic."""
    if isinstance(choice, Assigned):
        known = {topic: client.partitions(topic) for topic in dict.fromkeys(topic for topic, _ in choice.partitions)}
        for topic, partition in choice.partitions:
            if partition not in known[topic]:
                raise UnknownTopic("option assign: no such partition", topic=topic, partition=partition)
            yield topic, partition
        return
    if isinstance(choice, Subscribed):
        names = sorted(choice.topics)
    else:
        names = sorted(name for name in client.topics() if choice.pattern.fullmatch(name))
    for name in names:
        for partition in client.partitions(name):
            yield name, partition


class _Log:
    """`ranges.Extents` of a gateway."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    def extent(self, topic: str, partition: int, *, isolation: Isolation, tier: Tier) -> Extent:
        return self._client.extent(topic, partition, isolation, tier)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        found = self._client.first_at(topic, partition, TimestampMs(timestamp_ms))
        return None if found is None else (found, TimestampMs(timestamp_ms))

"""Plan queries with a gateway: the driver needs neither the tier-state topic nor credentials for the bucket.

The functions correspond to those of `planning.py`, but query the gateway instead of a view. The gateway's answers omit
topics that the user is not allowed to read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

from ..app.opening.gateway_access import GatewayAccess
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
"""The maximum number of ranges in one request for a plan."""


def gateway_ranges(options: SourceOptions, access: GatewayAccess) -> list[PlannedRange]:
    """Return the ranges that the options choose, routed and leased, in order of topic and partition.

    Raises InvalidRequest, UnknownTopic, OffsetOutOfRange, LogGap, AccessDenied, Unavailable.
    """
    with closing(access.client()) as client:
        reader = _Log(client)
        partitions = tuple(_chosen(options.choice, client))
        try:
            return _planned(options, client, resolve_ranges(options, reader, partitions))
        except OffsetOutOfRange:
            # the log start may have moved before the lease was written: this raises if requested offsets were deleted
            return _planned(options, client, resolve_ranges(options, reader, partitions))


def gateway_splits(access: GatewayAccess, rest: PlannedSplit) -> list[PlannedSplit]:
    """Return ``rest``, the unread part of a split, as it is routed now. Raises as `gateway_ranges`."""
    with closing(access.client()) as client:
        ranges = {(rest.topic, rest.partition): (rest.start, rest.end)}
        _, ranges_now = asked_plan(client, ranges, rest.isolation, Tier.PREFER_REMOTE, 0.0)
        return [each.whole for each in ranges_now]


def is_live(access: GatewayAccess, split: PlannedSplit, segment: RemoteSegment) -> bool | None:
    """Return whether the segment's objects should still exist. Returns None if the gateway cannot be queried."""
    try:
        with closing(access.client()) as client:
            segments = client.segments(split.topic, split.partition)
    except (UnknownTopic, SegmentExpired):
        return False
    except (AccessDenied, Unavailable):
        return None
    return any(
        each["segment_id"] == str(segment.segment_id) and each["state"] == "COPY_SEGMENT_FINISHED" for each in segments
    )


def _planned(options: SourceOptions, client: GatewayClient, ranges: dict[TopicPartition, Extent]) -> list[PlannedRange]:
    plan: list[PlannedRange] = []
    items = list(ranges.items())
    for at in range(0, len(items), RANGES):
        some = dict(items[at : at + RANGES])
        plan += leased_plan(client, some, options.isolation, options.tier, options.lease, log.warning)[1]
    return plan


def _chosen(choice: Choice, client: GatewayClient) -> Iterator[TopicPartition]:
    """Yield the partitions of the choice that the gateway serves, ascending. Raises UnknownTopic."""
    if isinstance(choice, Assigned):
        numbers = {topic: client.partitions(topic) for topic in dict.fromkeys(topic for topic, _ in choice.partitions)}
        for topic, partition in choice.partitions:
            if partition not in numbers[topic]:
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
    """The implementation of `ranges.Extents` that queries a gateway."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    def extent(self, topic: str, partition: int, *, isolation: Isolation, tier: Tier) -> Extent:
        return self._client.extent(topic, partition, isolation, tier)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        offset = self._client.first_at(topic, partition, TimestampMs(timestamp_ms))
        return None if offset is None else (offset, TimestampMs(timestamp_ms))

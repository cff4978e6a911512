"""A gateway's plans for a job: leased splits, grants for their segments, and local parts as the broker stores them."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
import urllib3

from ..broker.answers import FetchSpec
from ..log.batch import iter_batches
from ..state.errors import AccessDenied, CorruptData, UnknownTopic
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from ..state.segment import AbortedRange, RemoteSegment
from .gateway import CONNECT_TIMEOUT_S, NDJSON, GatewayClient
from .granted_objects import SegmentGrant, grant_from
from .piece import StoredBatches
from .plan import PlannedRange
from .plan_lines import PlanHead, plan_from

BATCHES = "application/vnd.tierstate.batches"
_ABORTED, _COUNT = struct.Struct(">qqq"), struct.Struct(">i")
Extents = Mapping[tuple[str, int], tuple[Offset, Offset]]


def asked_plan(
    client: GatewayClient, ranges: Extents, isolation: Isolation, tier: Tier, lease_s: float
) -> tuple[PlanHead, list[PlannedRange]]:
    """Return a plan with each range as one split.

    Raises OffsetOutOfRange, LogGap, UnknownTopic, AccessDenied, Unavailable, CorruptData.
    """
    extents = [
        {"topic": topic, "partition": partition, "start": start, "end": end}
        for (topic, partition), (start, end) in ranges.items()
    ]
    body = orjson.dumps(
        {
            "ranges": extents,
            "isolation_level": isolation.value,
            "tier": tier.value,
            "split_bytes": None,
            "lease_seconds": lease_s,
        }
    )
    answer = client.call("/v1/plans", {}, NDJSON, body=body)
    return plan_from(answer.data, client.url)


def leased_plan(
    client: GatewayClient,
    ranges: Extents,
    isolation: Isolation,
    tier: Tier,
    lease_s: float,
    tell: Callable[[str], None],
) -> tuple[PlanHead, list[PlannedRange]]:
    """Return `asked_plan` with leases. If leases are denied, call ``tell``, and return a plan without them."""
    try:
        return asked_plan(client, ranges, isolation, tier, lease_s)
    except AccessDenied as error:
        if not lease_s:
            raise
        unleased = asked_plan(client, ranges, isolation, tier, 0.0)
        tell(f"no lease keeps what is read, should it expire meanwhile: {error}")
        return unleased


def end_plan(client: GatewayClient, topic: str, plan: str) -> None:
    """End a plan's leases, if it has any. Raises AccessDenied, Unavailable."""
    with suppress(UnknownTopic):
        client.call(f"/v1/plans/{quote(plan)}", {"topic": topic}, NDJSON, method="DELETE")


class GatewayGrants:
    """The `granted_objects.Grants` of one plan."""

    def __init__(self, client: GatewayClient, plan: str) -> None:
        self._client, self._query = client, {"plan": plan} if plan else {}
        self._timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=client.timeout)
        self._direct, self._proxied = urllib3.PoolManager(retries=False), dict[str, urllib3.ProxyManager]()
        self._lock = threading.Lock()

    def grant(self, segment: RemoteSegment) -> SegmentGrant:
        """Return the segment's grant. Raises SegmentExpired, AccessDenied, Unavailable."""
        partition = segment.partition.partition
        path = f"/v1/topics/{quote(segment.topic)}/partitions/{partition}/segments/{segment.segment_id}/grant"
        return grant_from(self._client.json(path, self._query), self._client.url + path)

    def open(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        """Send GET: a path to the gateway, with the caller's credentials; a signed URL without credentials."""
        if url.startswith("/"):
            return self._client.open(url, self._query, headers, whole=False)
        return self._pool(url).request(
            "GET", url, headers=headers, preload_content=False, timeout=self._timeout, redirect=False
        )

    def close(self) -> None:
        for pool in (self._direct, *self._proxied.values()):
            pool.clear()

    def _pool(self, url: str) -> urllib3.PoolManager:
        """Return the pool that the environment names (HTTPS_PROXY, NO_PROXY), as the clouds' own clients do."""
        parts = urlsplit(url)
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        if proxy is None:
            return self._direct
        with self._lock:
            if proxy not in self._proxied:
                self._proxied[proxy] = urllib3.ProxyManager(proxy, retries=False)
            return self._proxied[proxy]


class GatewayTier:
    """The broker's records, through the gateway: `split.LocalReads`."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

    def fetch(self, spec: FetchSpec) -> StoredBatches:
        """Fetch a piece. Raises OffsetOutOfRange, UnknownTopic (re-created), AccessDenied, Unavailable, CorruptData."""
        answer = self._client.call(
            f"/v1/topics/{quote(spec.topic)}/partitions/{spec.partition}/records",
            {
                "offset": spec.offset,
                "max_bytes": spec.max_bytes,
                "isolation_level": spec.isolation.value,
                "tier": Tier.LOCAL.value,
                "timeout_ms": 0,
            },
            BATCHES,
        )
        if answer.headers.get("x-topic-id") != str(spec.topic_id):
            raise UnknownTopic("the topic was re-created", topic=spec.topic, topic_id=spec.topic_id)
        data, aborted = taken_apart(answer.data, self._client.url)
        return StoredBatches(data, aborted, Offset(int(answer.headers["x-next-offset"])))


def taken_apart(body: bytes, source: str) -> tuple[bytes, tuple[AbortedRange, ...]]:
    """Return batches and aborted ranges of a body (`api/record_forms.py`). Raises CorruptData, also for a wrong CRC."""
    count = _COUNT.unpack_from(body, len(body) - _COUNT.size)[0] if len(body) >= _COUNT.size else -1
    size = len(body) - _COUNT.size - count * _ABORTED.size
    if count < 0 or size < 0:
        raise CorruptData("the gateway's batches break off", url=source, bytes=len(body))
    ranges = _ABORTED.iter_unpack(body[size : len(body) - _COUNT.size])
    data = body[:size]
    for _ in iter_batches(data, source=source):
        pass  # this checks each CRC, as for a broker's batches
    return data, tuple(AbortedRange(producer, Offset(first), Offset(last)) for producer, first, last in ranges)

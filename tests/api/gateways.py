"""Gateways for tests, and functions that call them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from kafka.record.default_records import DefaultRecordBatchBuilder
from starlette.types import ASGIApp

from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.open import GatewayServer
from tierstate.api.service import FetchService
from tierstate.fetch.piece import Fetched, LogicalBounds, LogicalTopic
from tierstate.runtime.gateway_settings import Gateway, GatewayAuth
from tierstate.runtime.service import Service as Process
from tierstate.state.errors import BrokerUnavailable, OffsetOutOfRange, UnknownTopic
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.routing import Isolation, Tier

Call = Callable[..., httpx.Response]
Tokens = Callable[[str], GatewayAuth]
Headers = dict[str, str] | list[tuple[str, str]]
RECORDS = "/v1/topics/t/partitions/0/records"


def asgi_call(app: ASGIApp) -> Call:
    """Return ``call(path, accept=…, **query)``. A bug becomes an answer of 500, as it does on a socket."""

    def call(path: str, accept: str | None = None, headers: Headers | None = None, **query: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                sent = list(headers.items()) if isinstance(headers, dict) else list(headers or ())
                if not any(name.lower() == "accept-encoding" for name, _ in sent):
                    sent.append(("accept-encoding", "identity"))  # httpx would ask for a compressed answer
                accepted = [] if accept is None else [("accept", accept)]
                return await client.get(path, params=query or None, headers=[*accepted, *sent])

        return asyncio.run(ask())

    return call


@dataclass
class Running:
    """A gateway that listens on a socket."""

    server: GatewayServer
    process: Process
    service: FetchService
    client: httpx.Client

    def stop(self) -> bool:
        self.process.stop()
        return self.process.join(20)

    def close(self) -> None:
        self.client.close()
        assert self.stop()
        assert self.process.failure is None
        self.server.close()


StandIn: Any = object
"""A base class for which mypy takes a class for any other: it stands in for one of the product."""


class MemoryReader(StandIn):  # type: ignore[misc]
    """Topic ``t``, one partition, on the broker alone. Grows by `append`; one record is one batch.

    ``before``: called at the beginning of every fetch, from the pool's thread.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.before: Callable[[int], None] = lambda offset: None
        self.looks = 0
        self.local_start = 0
        self.last_stable: int | None = None
        self.found: int | None = None
        """The answer of `offset_for_time`."""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        at: int = 1_767_225_600_000,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """``at``: milliseconds, to which the offset is added."""
        offset = len(self.batches)
        builder: Any = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        builder.append(0, at + offset, key, value, [*headers])
        data = bytearray(builder.build())
        struct.pack_into(">q", data, 0, offset)
        self.batches.append(bytes(data))

    def topics(self) -> list[str]:
        return ["t"]

    def topic(self, name: str) -> LogicalTopic:
        if name != "t":
            raise UnknownTopic("no such topic", topic=name)
        return LogicalTopic("t", TopicId.of(b"memory-topic-id!"), 1)

    def view(self, topic: str, partition: int) -> PartitionView:
        return PartitionView(TopicIdPartition(self.topic(topic).topic_id, partition))

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        self.looks += 1
        if partition >= self.topic(topic).partitions:
            raise UnknownTopic("no such partition", topic=topic, partition=partition)
        end = Offset(len(self.batches))
        stable = end if self.last_stable is None else Offset(self.last_stable)
        return LogicalBounds(Offset(0), Offset(self.local_start), None, stable, end)

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched:
        self.before(offset)
        bounds = self.bounds(topic, partition)
        end = bounds.end(isolation)
        if not 0 <= offset <= end:
            raise OffsetOutOfRange("offset out of range", valid_start=0, valid_end=end, offset=offset)
        taken, size, following = list[bytes](), 0, offset
        end = min(end, Offset(self.local_start)) if offset < self.local_start else end
        while following < end and (not taken or size + len(self.batches[following]) <= max_bytes):
            taken.append(self.batches[following])
            size += len(taken[-1])
            following += 1
        data = b"".join(taken)
        served = Tier.LOCAL if offset >= self.local_start else Tier.REMOTE
        return Fetched(data, served, (), Offset(offset), Offset(following), end, bounds)

    def is_tiered(self, topic: str) -> bool:
        return topic in self.topics()

    def tiered_without_brokers(self, topic: str) -> bool:
        return False

    def topics_without_brokers(self) -> list[str]:
        return []

    def topic_without_brokers(self, name: str) -> LogicalTopic:
        raise UnknownTopic("it has no view", topic=name)

    def view_without_brokers(self, topic: str, partition: int) -> tuple[PartitionView, float]:
        raise UnknownTopic("it has no view", topic=topic)

    def fetch_without_brokers(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation
    ) -> Fetched:
        raise BrokerUnavailable("it has no view")

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> tuple[Offset, TimestampMs] | None:
        return None if self.found is None else (Offset(self.found), TimestampMs(timestamp_ms))


def gateway_asking(auth: GatewayAuth, clock: ManualClock | None = None, **settings: Any) -> Call:
    """Return a call to a gateway that authenticates callers by ``auth``, over ten records of a KB."""
    reader = MemoryReader()
    for _ in range(10):
        reader.append(None, b"x" * 1000)
    service = FetchService(reader, Gateway(auth=auth, **settings), clock or ManualClock())
    return asgi_call(create_app(service))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def token_line(token: str, rest: str) -> str:
    """Return one line of a tokens file."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {rest}\n"


def write_keys(path: Path, *keys: tuple[str, str]) -> None:
    jwks = [{**json.loads(text), "kid": name, "use": "sig"} for name, text in keys]
    path.write_text(json.dumps({"keys": jwks}))

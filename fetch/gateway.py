"""The HTTP gateway's client: `digest --via gateway` and `consume --gateway` read through it.

It has no view, no store and no Kafka client.
Memory: one answer, at most ``max_bytes`` of stored batches, decoded.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import urllib3

from ..state.errors import (
    AccessDenied,
    BrokerUnavailable,
    CorruptData,
    InvalidRequest,
    LogGap,
    OffsetOutOfRange,
    Throttled,
    TierstateError,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, TimestampMs
from ..state.routing import Isolation, Tier
from .piece import Batches, LogicalBounds, Names, Search

if TYPE_CHECKING:
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
PAGE_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of the records call: its body, the offset to continue at, and the tier that it came from."""

    body: bytes
    next_offset: Offset
    tier: Tier
    scanned: tuple[int, int] = (0, 0)
    """How many records and bytes were searched for it."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM files: the chain, and the key if it is in a separate file."""

    chain: Path
    key: Path | None = None

    def files(self) -> dict[str, Path | None]:
        """Return the files as urllib3's arguments. Raises InvalidRequest if they cannot be used."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.chain, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest(
                "the client certificate cannot be used", file=self.chain, key=self.key, reason=error.strerror or error
            ) from error
        return {"cert_file": self.chain, "key_file": self.key}


class GatewayClient:
    """A `RecordSource` over one gateway. Thread-safe.

    ``token``: a bearer token; ``basic``: a user's name and password instead; ``ca``: a file of CA certificates, instead
    of the system's; ``certificate``: identifies the client if the gateway requires it; ``timeout``: the most seconds
    for one answer.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        basic: tuple[str, str] | None = None,
        ca: Path | None = None,
        certificate: ClientCertificate | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Raises InvalidRequest if the certificate cannot be used."""
        self.url = url.rstrip("/")
        self.timeout = timeout
        headers = {"authorization": f"Bearer {token}"} if token else {}
        if basic is not None:
            headers = {"authorization": f"Basic {b64encode(':'.join(basic).encode()).decode()}"}
        retries = urllib3.Retry(total=2, redirect=0, status=0)
        files = {"ca_certs": ca} if certificate is None else {"ca_certs": ca, **certificate.files()}
        arguments: dict[str, Any] = {name: None if file is None else str(file) for name, file in files.items()}
        self._pool = urllib3.PoolManager(headers=headers, retries=retries, **arguments)

    def topics(self) -> list[str]:
        """Return the names of the tiered topics."""
        return [str(topic["topic"]) for topic in self.summaries()]

    def summaries(self) -> list[dict[str, Any]]:
        """Return each tiered topic, as in the gateway's table."""
        return list(self.json("/v1/topics")["topics"])

    def describe(self, topic: str) -> list[dict[str, Any]]:
        """Return each partition, as the gateway prints it. Raises UnknownTopic."""
        return list(self.json(f"/v1/topics/{quote(topic)}")["partitions"])

    def topic_id(self, topic: str) -> TopicId:
        """Return the id of the topic that has this name now. Raises UnknownTopic."""
        return TopicId(self.json(f"/v1/topics/{quote(topic)}")["topic_id"])

    def agent(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the answer of the partition's agent to the gateway. Raises UnknownTopic, AccessDenied."""
        return dict(self.json(f"/v1/topics/{quote(topic)}/partitions/{partition}/agent"))

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, ascending. Raises UnknownTopic."""
        return sorted(int(each["partition"]) for each in self.describe(topic))

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        """Return the bounds of both tiers. Raises UnknownTopic, BrokerUnavailable."""
        partition_bounds = self.json(f"/v1/topics/{quote(topic)}/partitions/{partition}")
        if partition_bounds["high_watermark"] is None:
            raise BrokerUnavailable("the broker did not answer the gateway", topic=topic, partition=partition)
        highest = partition_bounds["highest_remote_offset"]
        return LogicalBounds(
            log_start=Offset(partition_bounds["log_start_offset"]),
            local_start=Offset(partition_bounds["local_log_start_offset"]),
            highest_remote=None if highest is None else Offset(highest),
            last_stable_offset=Offset(partition_bounds["last_stable_offset"]),
            high_watermark=Offset(partition_bounds["high_watermark"]),
        )

    def segments(self, topic: str, partition: int) -> list[dict[str, Any]]:
        """Return segments with state, offsets, sizes and object key, as the gateway prints them."""
        return list(self.json(f"/v1/topics/{quote(topic)}/partitions/{partition}/segments")["segments"])

    def first_at(self, topic: str, partition: int, timestamp: TimestampMs) -> Offset | None:
        """Return the offset of the first record at or after a time. Returns None if there is none."""
        path = f"/v1/topics/{quote(topic)}/partitions/{partition}/offsets"
        offset = self.json(path, {"timestamp": timestamp})["offset"]
        return None if offset is None else Offset(offset)

    def extent(self, topic: str, partition: int, isolation: Isolation, tier: Tier) -> Extent:
        """Return the offsets that can be read now."""
        bounds = self.bounds(topic, partition)
        highest = bounds.highest_remote
        end = None if highest is None else Offset(highest + 1)
        return bounds.extent(topic, partition, isolation, tier, lambda start: start if end is None else end)

    def records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, *, columns: Names = None
    ) -> Batches:
        """Yield exactly the records of ``extent``, and the tier each batch came from.

        ``columns`` are selected here, because a gateway's answer has all columns.
        """
        for page in self._pages(topic, partition, extent, isolation, tier):
            for batch in arrow_batches(page.body, self.url):
                selected = below(batch, extent.end)
                yield selected if columns is None else selected.select(list(columns)), page.tier

    def search_records(
        self, topic: str, partition: int, extent: Extent, isolation: Isolation, tier: Tier, search: Search
    ) -> Batches:
        """Yield, like `records`, only records that match ``search``. The gateway reports how far it has searched."""
        for page in self._pages(topic, partition, extent, isolation, tier, search):
            for batch in arrow_batches(page.body, self.url):
                yield below(batch, extent.end), page.tier
            search.count(*page.scanned)
            search.reach(min(page.next_offset, extent.end))

    def _pages(
        self,
        topic: str,
        partition: int,
        extent: Extent,
        isolation: Isolation,
        tier: Tier,
        search: Search | None = None,
    ) -> Iterator[Page]:
        """Yield answers with the records of the extent; with ``search``, only with the matching records.

        Raises OffsetOutOfRange with the valid range.
        """
        query: dict[str, Any] = {"max_bytes": PAGE_BYTES, "isolation_level": isolation, "tier": tier}
        if search is not None:
            parts = {"key": search.key, "contains": search.contains}
            query |= {name: b64encode(part).decode() for name, part in parts.items() if part is not None}
            query["filter_encoding"] = "base64"
        position = extent.start
        while position < extent.end:
            path = f"/v1/topics/{quote(topic)}/partitions/{partition}/records"
            answer = self.call(path, {"offset": position, "timeout_ms": 0, **query}, ARROW)
            following = Offset(int(answer.headers["x-next-offset"]))
            records, size = (int(answer.headers.get(f"x-scanned-{what}", 0)) for what in ("records", "bytes"))
            yield Page(answer.data, following, Tier(answer.headers.get("x-tier", Tier.AUTO)), (records, size))
            if following <= position:
                raise Unavailable("the gateway makes no progress", topic=topic, partition=partition, offset=position)
            position = following

    def close(self) -> None:
        self._pool.clear()

    def json(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return an answer's JSON. Raises as `call`, and CorruptData for other content."""
        answer = self.call(path, query or {}, "application/json")
        try:
            return json.loads(answer.data)
        except ValueError as error:
            raise CorruptData("the gateway's answer is not JSON", url=self.url + path) from error

    def call(
        self,
        path: str,
        query: Mapping[str, Any],
        accept: str,
        body: bytes | None = None,
        *,
        method: str | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Return a complete answer of status 200 or 204. ``body``: JSON, sent by POST.

        Raises the error that the gateway's answer names, TimedOut, Unavailable.
        """
        headers = {"accept": accept} if body is None else {"accept": accept, "content-type": "application/json"}
        try:
            answer = self.open(path, query, headers, body, method=method)
        except urllib3.exceptions.TimeoutError as error:
            raise TimedOut("the gateway did not answer in time", url=self.url + path) from error
        except urllib3.exceptions.HTTPError as error:
            cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            raise Unavailable("the gateway does not answer", url=self.url, reason=cause) from error
        if answer.status not in (200, 204):
            raise problem(answer.status, answer.data, self.url + path)
        return answer

    def open(
        self,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        method: str | None = None,
        whole: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Return an answer of any status. ``whole``: read the complete body now. Raises urllib3's errors."""
        text = urlencode({name: str(value) for name, value in query.items()})
        return self._pool.request(
            method or ("GET" if body is None else "POST"),
            self.url + path + ("?" + text if text else ""),
            body=body,
            headers={**self._pool.headers, **headers},
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=self.timeout),
            preload_content=whole,
        )


def arrow_batches(body: bytes, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow stream. Raises CorruptData for a stream that breaks off."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            yield from stream
    except pa.ArrowInvalid as error:
        raise CorruptData("the gateway's Arrow stream cannot be read", url=source, reason=error) from error


def below(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Return the records below ``end``. Offsets must ascend."""
    import numpy as np

    from ..log.record_columns import numbers

    offsets = numbers(batch.column("offset"), np.int64)
    return batch.slice(0, int(offsets.searchsorted(end)))


def _kinds(root: type[TierstateError]) -> dict[str, type[TierstateError]]:
    kinds = {root.__name__: root}
    for kind in root.__subclasses__():
        kinds |= _kinds(kind)
    return kinds


_STATUSES: dict[int, type[TierstateError]] = {
    **dict.fromkeys((401, 403), AccessDenied),
    404: UnknownTopic,
    429: Throttled,
    **dict.fromkeys((502, 503, 504), Unavailable),
}


def problem(status: int, body: bytes, url: str) -> TierstateError:
    """Return the error that a gateway's answer names. If this name is unknown, the HTTP status determines the error."""
    try:
        data = json.loads(body)
    except ValueError:
        data = {}
    data = data if isinstance(data, dict) else {}
    message = str(data.get("message") or f"the gateway answered {status}")
    kind = _kinds(TierstateError).get(str(data.get("error")))
    if kind is OffsetOutOfRange and isinstance(data.get("valid_start"), int) and isinstance(data.get("valid_end"), int):
        return OffsetOutOfRange(message, valid_start=data["valid_start"], valid_end=data["valid_end"], url=url)
    if kind is LogGap and isinstance(data.get("start"), int) and isinstance(data.get("end"), int):
        return LogGap(message, start=data["start"], end=data["end"], url=url)
    if kind is None or kind.__init__ is not TierstateError.__init__:
        kind = _STATUSES.get(status, InvalidRequest if 400 <= status < 500 else TierstateError)
    return kind(message, status=status, url=url)

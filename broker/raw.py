"""Kafka requests that librdkafka does not offer: raw Fetch, ListOffsets with epochs, DeleteRecords to a named broker.

Only this file, `raw_connection.py` and `sasl.py` use kafka-python's internals (pinned to 3.0.12). tierstate manages the
sockets and deadlines itself, so a request goes to exactly the broker that the caller names. A request is repeated only
if it only reads and its pooled connection turns out to be dead.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from kafka.protocol.admin import DeleteRecordsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from ..runtime.clock import Clock
from ..state.epochs import LeaderEpoch
from ..state.errors import AccessDenied, BrokerUnavailable, CorruptData, TierstateError, TimedOut
from ..state.ids import BrokerId, TopicId
from ..state.offsets import Offset, TimestampMs
from ..state.routing import Isolation
from .answers import (
    Address,
    FetchSpec,
    Place,
    RawConfig,
    RawFetch,
    RawMetadata,
    RawOffset,
    RawTopic,
    configs_of,
    metadata_of,
    topic_of,
)
from .client_config import bootstrap_addresses
from .framed_socket import FramedSocket, tls_context
from .kafka_access import access_of, own_login
from .raw_connection import AnswerMemo, RawConnection

R = TypeVar("R")
LATEST, EARLIEST = TimestampMs(-1), TimestampMs(-2)
EARLIEST_LOCAL = TimestampMs(-4)
"""The start of the local log. For a topic that Kafka itself tiers (KIP-405), `EARLIEST` is the start of both tiers."""
METADATA_SECONDS = 3.0
"""Seconds that a broker has to answer a metadata request before the next broker is asked."""
IDLE_CONNECTIONS = 8
"""Idle connections kept to each broker. A broker serves one request of a connection at a time: callers need several."""
LOGIN_AGAIN_S, LOGIN_PATIENCE_S = 0.2, 10.0
NEVER_LET_IN = float("-inf")
TOPIC_RESOURCE = 2
"""Kafka's number for topics in DescribeConfigs."""


class RawClient:
    """Raw requests to named brokers over pooled connections. Thread-safe; blocking."""

    def __init__(self, kafka: Mapping[str, str], clock: Clock, timeout: float = 10.0) -> None:
        """``kafka``: librdkafka's properties; this client ignores some of them. ``timeout``: seconds for a call."""
        self._kafka = access_of(kafka)
        self._clock = clock
        self.timeout = timeout
        self._tls = tls_context(kafka)
        self._bootstrap = bootstrap_addresses(kafka)
        self._brokers: dict[BrokerId, Address] = {}
        self._idle: dict[Address, list[RawConnection]] = defaultdict(list)
        self._lock = threading.Lock()
        self._closed = False
        self._refused_at: float | None = NEVER_LET_IN
        self._whole_metadata = AnswerMemo(metadata_of)
        self._configs = AnswerMemo(configs_of)

    def metadata(self, topics: Sequence[str] | None = (), *, operations: bool = False) -> RawMetadata:
        """Return the brokers and these topics (None: all topics) from the first broker that answers. Creates no topic.

        ``operations``: also ask for the operations that the credentials are allowed. For all topics, an unchanged
        answer returns the same object. Raises BrokerUnavailable or TimedOut if no broker answers, and AccessDenied if a
        broker refuses the credentials.
        """
        memo = self._whole_metadata if topics is None else None
        with self._lock:
            addresses = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        failure: TierstateError = BrokerUnavailable("no broker is known")
        for address in addresses:
            request = metadata_request(topics, operations=operations)
            try:
                answer = self._read(address, request, min(METADATA_SECONDS, self.timeout), memo)
            except (BrokerUnavailable, TimedOut) as error:
                failure = error
                continue
            metadata: RawMetadata = metadata_of(answer) if memo is None else answer
            with self._lock:
                self._brokers = dict(metadata.brokers)
            return metadata
        raise failure

    def topics_on(self, broker: BrokerId, topics: Sequence[str | TopicId]) -> tuple[RawTopic, ...]:
        """Return this broker's metadata of these topics, in any order. ``topics`` are either all names or all ids.

        Creates no topic. If the broker does not know a topic id, the name in its answer is empty. Raises
        BrokerUnavailable, TimedOut, and InvalidRequest if the broker is too old (ids need Kafka 3.1).
        """
        kind = MetadataRequest.MetadataRequestTopic
        by_id = [each for each in topics if isinstance(each, TopicId)]
        keys = [kind(topic_id=UUID(bytes=each.raw), name=None) for each in by_id] or [kind(name=n) for n in topics]
        lowest = 12 if by_id else 10  # brokers use the id field of versions 10 and 11 as a missing name
        request = MetadataRequest(topics=keys, allow_auto_topic_creation=False, min_version=lowest, max_version=12)
        answer = self._read(self._address(broker), request, min(METADATA_SECONDS, self.timeout))
        return tuple(topic_of(one) for one in answer.topics)

    def list_offset(
        self,
        broker: BrokerId,
        topic: str,
        partition: int,
        timestamp: TimestampMs,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        leader_epoch: LeaderEpoch | None = None,
    ) -> RawOffset:
        """Return the offset at `LATEST` or `EARLIEST`, or of the first record at or after ``timestamp``."""
        epochs = {(topic, partition): leader_epoch}
        return self.list_offsets(broker, epochs, timestamp, isolation)[topic, partition]

    def list_offsets(
        self,
        broker: BrokerId,
        epochs: Mapping[Place, LeaderEpoch | None],
        timestamp: TimestampMs,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[Place, RawOffset]:
        """Return the `list_offset` of many partitions, by one request. ``epochs``: their leader epochs, where known.

        Raises CorruptData if the broker's answer lacks a partition.
        """
        kind = ListOffsetsRequest.ListOffsetsTopic
        topics = defaultdict(list)
        for (topic, partition), epoch in epochs.items():
            topics[topic].append(
                kind.ListOffsetsPartition(
                    partition_index=partition, current_leader_epoch=_or_minus_one(epoch), timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=_level(isolation),
            topics=[kind(name=topic, partitions=parts) for topic, parts in topics.items()],
            timeout_ms=int(self.timeout * 1000),
            min_version=8 if timestamp == EARLIEST_LOCAL else 4,
        )
        answer = self.ask(broker, request)
        answers = {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}
        if not answers.keys() >= epochs.keys():
            raise CorruptData("the broker's answer leaves a partition out", request="ListOffsets", broker=broker)
        return {
            place: RawOffset(
                part.error_code,
                Offset(part.offset),
                TimestampMs(part.timestamp),
                LeaderEpoch(part.leader_epoch) if part.leader_epoch >= 0 else None,
            )
            for place, part in answers.items()
        }

    def topic_configs(self, broker: BrokerId, topics: Sequence[str], names: Sequence[str]) -> dict[str, RawConfig]:
        """Return the settings of these ``names`` for every topic, by one request."""
        kind = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            kind(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names)) for topic in topics
        ]
        request = DescribeConfigsRequest(resources=resources, min_version=1, max_version=4)
        configs: dict[str, RawConfig] = self._read(self._address(broker), request, self.timeout, self._configs)
        return configs

    def end_of_epoch(
        self,
        broker: BrokerId,
        topic: str,
        partition: int,
        epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch | None = None,
    ) -> RawOffset:
        """Return the end of an epoch in the leader's log (OffsetForLeaderEpoch). It is -1 if all the log's epochs are
        older. `state/lineage.py`, `epoch_end`, explains the answer for an epoch that the leader no longer knows.
        """
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        current = _or_minus_one(leader_epoch)
        part = kind.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        topics = [kind(topic=topic, partitions=[part])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics, min_version=3, max_version=4)
        answer = self.ask(broker, request).topics[0].partitions[0]
        last = LeaderEpoch(answer.leader_epoch) if answer.leader_epoch >= 0 else None
        return RawOffset(answer.error_code, Offset(answer.end_offset), TimestampMs(-1), last)

    def ask(self, broker: BrokerId, request: Any) -> Any:
        """Return this broker's answer to a request that only reads.

        Raises BrokerUnavailable, TimedOut, CorruptData, and InvalidRequest if the broker is too old.
        """
        return self._read(self._address(broker), request, self.timeout)

    def connection(self, broker: BrokerId) -> RawConnection:
        """Return a new connection to this broker, which the caller closes. Raises the errors of `ask`."""
        return self._connect(self._address(broker), self._clock.monotonic() + self.timeout)[0]

    def on_any(self, call: Callable[[BrokerId], R]) -> R:
        """Return ``call`` of the first broker that answers. Raises BrokerUnavailable or TimedOut if no broker does."""
        failure: TierstateError = BrokerUnavailable("no broker is known")
        for broker in self.metadata().brokers:
            try:
                return call(broker)
            except (BrokerUnavailable, TimedOut) as error:
                failure = error
        raise failure

    def fetch(self, broker: BrokerId, spec: FetchSpec) -> RawFetch:
        """Send one Fetch, without a fetch session. The first batch is complete, even if it exceeds ``max_bytes``."""
        kind = FetchRequest.FetchTopic
        part = kind.FetchPartition(
            partition=spec.partition,
            current_leader_epoch=_or_minus_one(spec.leader_epoch),
            fetch_offset=spec.offset,
            partition_max_bytes=spec.max_bytes,
        )
        by_id = spec.topic_id is not None
        topic = kind(topic_id=UUID(bytes=spec.topic_id.raw), partitions=[part]) if spec.topic_id is not None else None
        request = FetchRequest(
            max_wait_ms=spec.wait_ms,
            min_bytes=1,
            max_bytes=spec.max_bytes,
            isolation_level=_level(spec.isolation),
            topics=[topic or kind(topic=spec.topic, partitions=[part])],
            min_version=13 if by_id else 11,
            max_version=16 if by_id else 12,
        )
        answer = self._read(self._address(broker), request, self.timeout + spec.wait_ms / 1000)
        if not answer.responses:
            code = answer.error_code or -1
            return RawFetch(code, b"", Offset(-1), Offset(-1), Offset(-1), ())
        row = answer.responses[0].partitions[0]
        aborted = tuple((one.producer_id, Offset(one.first_offset)) for one in row.aborted_transactions or ())
        ends = Offset(row.high_watermark), Offset(row.last_stable_offset), Offset(row.log_start_offset)
        return RawFetch(answer.error_code or row.error_code, bytes(row.records or b""), *ends, aborted)

    def delete_records(
        self, broker: BrokerId, topic: str, partition: int, before: Offset, timeout: float
    ) -> tuple[int, Offset]:
        """Send DeleteRecords once, to this broker only, over a new connection, after looking up the broker's address.

        Return (error code, low watermark). Raises BrokerUnavailable if the request was not sent, and TimedOut if it was
        sent and its outcome is unknown.
        """
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        part = kind.DeleteRecordsPartition(partition_index=partition, offset=before)
        topics = [kind(name=topic, partitions=[part])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=int(timeout * 1000), max_version=2)
        deadline = self._clock.monotonic() + timeout
        try:
            self.metadata()
            connection, deadline = self._connect(self._address(broker), deadline)
        except TimedOut as error:
            raise BrokerUnavailable("DeleteRecords was not sent", broker=broker, reason=error) from error
        try:
            connection.dies_at(deadline)  # a retransmission after the time-out would trim what was checked long before
            answer = connection.ask(request, deadline).topics[0].partitions[0]
        except (BrokerUnavailable, TimedOut) as error:
            raise TimedOut("DeleteRecords was sent, its outcome is unknown", broker=broker, reason=error) from error
        finally:
            connection.close()
        return answer.error_code, Offset(answer.low_watermark)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _address(self, broker: BrokerId) -> Address:
        with self._lock:
            address = self._brokers.get(broker)
        if address is None:
            address = self.metadata().brokers.get(broker)
        if address is None:
            raise BrokerUnavailable("the cluster has no such broker now", broker=broker)
        return address

    def _read(self, address: Address, request: Any, seconds: float, memo: AnswerMemo[Any] | None = None) -> Any:
        """Send a request that may be repeated. If a pooled connection turns out to be dead, repeat it on a new one."""
        deadline = self._clock.monotonic() + seconds
        pooled = self._borrow(address)
        if pooled is not None:
            try:
                return self._ask_and_keep(address, pooled, deadline, request, memo)
            except BrokerUnavailable:
                pass
        return self._ask_and_keep(address, *self._connect(address, deadline), request, memo)

    def _ask_and_keep(
        self, address: Address, connection: RawConnection, deadline: float, request: Any, memo: AnswerMemo[Any] | None
    ) -> Any:
        try:
            answer = connection.ask(request, deadline, memo)
        except BaseException:
            connection.close()  # the broker may still send the answer on this connection
            raise
        with self._lock:
            keep = not self._closed and len(self._idle[address]) < IDLE_CONNECTIONS
            if keep:
                self._idle[address].append(connection)
        if not keep:
            connection.close()
        return answer

    def _borrow(self, address: Address) -> RawConnection | None:
        now = self._clock.monotonic()
        with self._lock:
            idle = self._idle[address]
            while idle:
                connection = idle.pop()
                if connection.good_until > now:
                    return connection
                connection.close()
        return None

    def log_in(self, *, everywhere: bool) -> None:
        """Log in again at every known broker (``everywhere``), or only at brokers that refused a login. An open
        connection does not show that a password was changed or corrected. Brokers that do not answer are ignored.
        """
        logins = self._kafka.logins
        with self._lock:
            brokers = list(self._brokers.values())
        names = {server_of(address): address for address in [*brokers, *self._bootstrap]}
        logins.keep(names)
        for name, address in names.items():
            if name in logins.servers or (everywhere and address in brokers):
                with suppress(BrokerUnavailable, TimedOut, AccessDenied):
                    self._connect_once(address, self._clock.monotonic() + METADATA_SECONDS).close()

    def _connect(self, address: Address, deadline: float) -> tuple[RawConnection, float]:
        """Return a connection, and the deadline of requests on it.

        If a login is refused that was accepted before, it is retried for `LOGIN_PATIENCE_S` seconds, and the deadline
        is extended by that time: operators change a password on the cluster first, and a moment later here.
        """
        while True:
            began = self._clock.monotonic()
            try:
                return self._connect_once(address, deadline), deadline
            except AccessDenied:
                since = self._refused_at
                if since is None or self._clock.monotonic() - since > LOGIN_PATIENCE_S:
                    raise
            self._clock.sleep(LOGIN_AGAIN_S)
            deadline += self._clock.monotonic() - began

    def _connect_once(self, address: Address, deadline: float) -> RawConnection:
        server = server_of(address)
        try:
            login = own_login(self._kafka)
            frames = FramedSocket(address, self._tls, self._clock, deadline)
            connection = RawConnection(frames, login, self._clock, deadline)
            self._refused_at = None
            self._kafka.accepts(server)
            return connection
        except AccessDenied as error:
            self._refused_at = self._clock.monotonic() if self._refused_at is None else self._refused_at
            raise self._kafka.refuses(server, error) from error
        except BrokerUnavailable:
            with self._lock:  # a restarted broker may have a new address
                self._brokers = {broker: other for broker, other in self._brokers.items() if other != address}
            raise


def metadata_request(topics: Sequence[str] | None, *, operations: bool = False) -> Any:
    """Return a request for the brokers and these topics (None: all topics), as `RawClient.metadata` describes it."""
    return MetadataRequest(
        topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=operations,
        min_version=10,
        max_version=12,
    )


def server_of(address: Address) -> str:
    """Return an address as ``host:port``."""
    return f"{address[0]}:{address[1]}"


def _level(isolation: Isolation) -> int:
    return 1 if isolation is Isolation.READ_COMMITTED else 0


def _or_minus_one(epoch: LeaderEpoch | None) -> int:
    return -1 if epoch is None else epoch

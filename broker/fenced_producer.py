"""Produces finished record batches into one partition, so that only the newest producer can append.

    InitProducerId  →  AddPartitionsToTxn, EndTxn (abort)  →  the marker is in the log  →  Produce, Produce, …

The transactional id gives all producers of a partition one producer id, with a higher epoch for each. The marker of an
empty, aborted transaction carries the new epoch into the partition's log: from then on, the leader refuses each batch
of an earlier epoch, also one that was still on its way. Readers at any isolation level never see a marker.

The batches themselves belong to no transaction: an aborted one would leave records that read_uncommitted shows. They
are idempotent. A batch that is sent again after a broken connection lands once, because the leader remembers the last
five batches of a producer (Kafka's ``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from ..runtime.clock import Clock, repeated
from ..state.errors import BrokerUnavailable, CorruptData, Fenced, InvalidRequest, TimedOut
from ..state.ids import BrokerId
from ..state.offsets import Offset
from .error_codes import check
from .local_reads import Leadership
from .produced_frame import API_KEY, VERSION, outcome_of, request_of
from .raw import RawClient
from .raw_connection import RawConnection

IN_FLIGHT = 5
"""Batches without an answer. Of more, a leader would not recognise all that are sent again."""
PATIENCE_S = 60.0
"""Seconds without an answer after which sending is abandoned."""
AGAIN_S = 0.1
GROUP, TRANSACTION = 0, 1
"""Kafka's numbers for kinds of coordinators."""
_CONCURRENT_TRANSACTIONS, _DUPLICATE_SEQUENCE = 51, 46
_FENCED = {47: "INVALID_PRODUCER_EPOCH", 90: "PRODUCER_FENCED"}
_OUT_OF_ORDER = 45
_NOT_ENOUGH_REPLICAS = (19, 20)
_REFUSED = {
    10: "a batch is larger than the topic's max.message.bytes",
    18: "a batch is larger than the topic's segment.bytes",
    32: "a timestamp is outside of the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    87: "the topic does not take these records (a compacted topic needs keys)",
}
LARGEST_SEQUENCE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The id and epoch by which a leader identifies a producer."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Records that are in the log of every in-sync replica, from the offset ``base`` on."""

    base: Offset
    count: int


@dataclass(slots=True)
class _Sent:
    """``request``: the id of the request on this connection; None: it has not been sent there."""

    batch: bytes
    count: int
    request: int | None


Stamp = Callable[[int, int, int], bytes]
"""Returns a batch with this producer id, epoch and sequence of its first record."""


class FencedProducer:
    """The producer of one partition. Not thread-safe. Call `fence` once, before anything else."""

    def __init__(self, raw: RawClient, clock: Clock, topic: str, partition: int, transactional_id: str) -> None:
        self._raw, self._clock = raw, clock
        self._topic, self._partition, self._id = topic, partition, transactional_id
        self._leadership = Leadership(raw, clock)
        self._identity = ProducerIdentity(-1, -1)
        self._sequence = 0
        self._sent: deque[_Sent] = deque()
        self._connection: RawConnection | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {"topic": self._topic, "partition": self._partition}

    def fence(self) -> ProducerIdentity:
        """Refuse all earlier producers of this transactional id, once the marker of the returned identity is in the
        log: the coordinator writes it a moment later. Raises AccessDenied, BrokerUnavailable, Fenced.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1, max_version=4
        )
        answer = self._on_coordinator(request)
        self._identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
        self._sequence = 0
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        begin = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[kind(name=self._topic, partitions=[self._partition])],
            max_version=3,
        )
        self._on_coordinator(begin, _code_of_partition)
        end = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=False,
            max_version=4,  # from version 5 on, the epoch grows at the end of each transaction
        )
        self._on_coordinator(end)
        return self._identity

    def send(self, stamp: Stamp, count: int) -> list[Appended]:
        """Send a batch of ``count`` records. Return the batches that were appended since the last call. Waits if five
        are in flight.
        Raises Fenced if a newer producer was fenced in, InvalidRequest if the topic does not take the batch, and
        BrokerUnavailable or TimedOut after `PATIENCE_S`.
        """
        identity = self._identity
        batch = stamp(identity.producer_id, identity.epoch, self._sequence)
        self._sequence = (self._sequence + count) % (LARGEST_SEQUENCE + 1)
        appended = [self._answered()] if len(self._sent) >= IN_FLIGHT else []
        self._sent.append(_Sent(batch, count, None))
        self._patiently(self._post_all)
        return appended

    def drain(self) -> list[Appended]:
        """Wait for all answers. Raises as `send`."""
        return [self._answered() for _ in range(len(self._sent))]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answered(self) -> Appended:
        base = self._patiently(self._answer)
        return Appended(base, self._sent.popleft().count)

    def _answer(self) -> Offset:
        self._post_all()
        request = self._sent[0].request
        assert self._connection is not None
        assert request is not None
        try:
            code, base = outcome_of(self._connection.encoded_answer(request, self._deadline()))
        except struct.error as error:
            raise CorruptData("the broker's answer cannot be read", request="Produce", **self.facts) from error
        if code in _NOT_ENOUGH_REPLICAS:
            raise BrokerUnavailable("too few replicas are in sync", **self.facts)
        if code == _OUT_OF_ORDER:
            raise BrokerUnavailable("the leader lacks batches before this one", **self.facts)
        if code == _DUPLICATE_SEQUENCE:
            raise InvalidRequest("the leader has this batch, but not its offset: run it again", **self.facts)
        self._check(code)
        return Offset(base)

    def _post_all(self) -> None:
        """Send every batch that this connection has not sent, in order."""
        if self._connection is None:
            self._connection = self._leadership.on_leader(
                self._topic, self._partition, self._raw.connection, self._raw.timeout
            )
        for each in self._sent:
            if each.request is None:
                body = request_of(self._topic, self._partition, each.batch, int(self._raw.timeout * 1000))
                each.request = self._connection.post_encoded(API_KEY, VERSION, body, self._deadline())

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Return ``call()``. After a broken connection or a moved leader, all batches in flight are sent again."""

        def attempt() -> Any:
            try:
                return call()
            except (BrokerUnavailable, TimedOut):
                self.close()
                for each in self._sent:
                    each.request = None
                self._leadership = Leadership(self._raw, self._clock)
                raise

        return repeated(self._clock, attempt, (BrokerUnavailable, TimedOut), PATIENCE_S, AGAIN_S)

    def _deadline(self) -> float:
        return self._clock.monotonic() + 2 * self._raw.timeout

    def _check(self, code: int) -> None:
        if code in _FENCED:
            raise Fenced("another restore into this partition has begun: this one ends", **self.facts)
        if code in _REFUSED:
            raise InvalidRequest(_REFUSED[code], **self.facts)
        check(code, **self.facts)

    def _on_coordinator(
        self, request: Any, code_of: Callable[[Any], int] = lambda answer: int(answer.error_code)
    ) -> Any:
        """Return the coordinator's answer, once no other transaction of this id is being ended."""

        def ask() -> Any:
            answer = self._raw.ask(coordinator(self._raw, TRANSACTION, self._id), request)
            code = code_of(answer)
            if code == _CONCURRENT_TRANSACTIONS:
                raise TimedOut("an earlier transaction of this id does not end", transactional_id=self._id)
            self._check(code)
            return answer

        return repeated(self._clock, ask, (BrokerUnavailable, TimedOut), PATIENCE_S, AGAIN_S)


def _code_of_partition(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def coordinator(raw: RawClient, kind: int, key: str) -> BrokerId:
    """Return the broker that coordinates a group or a transactional id. Raises AccessDenied, BrokerUnavailable."""
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key], min_version=1, max_version=4)
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    place = answer.coordinators[0] if answer.API_VERSION >= 4 else answer
    check(place.error_code, coordinator_of=key)
    return BrokerId(place.node_id)

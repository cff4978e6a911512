"""The open transactions of a partition and their producers, from the producer state that its leader keeps.

Kafka's DescribeProducers (KIP-664, since 2.8) needs READ on the topic. It returns where a transaction begins, not when:
only the coordinator knows that, and the transactional id.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..state.ids import BrokerId
from ..state.offsets import Offset, TimestampMs
from .error_codes import error_of
from .raw import RawClient


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """``start``: its first record in the partition. ``last_timestamp``: of its producer's newest batch there, as that
    producer stamped it; None: unknown.
    """

    producer_id: int
    producer_epoch: int
    start: Offset
    last_timestamp: TimestampMs | None


def read_open_transactions(raw: RawClient, broker: BrokerId, topic: str, partition: int) -> tuple[OpenTransaction, ...]:
    """Return them, lowest start first. On the leader the first one holds back the last stable offset; a follower
    answers too (seen on 4.3.0), with what it has fetched.

    Raises LeaderMoved (it has no replica, or not yet), UnknownTopic, AccessDenied (no READ on the topic),
    InvalidRequest (the broker does not know the request), BrokerUnavailable, TimedOut.
    """
    answer = raw.active_producers(broker, topic, partition)
    error = error_of(answer.code, topic=topic, partition=partition, broker=broker)
    if error is not None:
        raise error
    transactions = [
        OpenTransaction(
            each.producer_id, each.epoch, each.open_from, each.last_timestamp if each.last_timestamp >= 0 else None
        )
        for each in answer.producers
        if each.open_from is not None
    ]
    return tuple(sorted(transactions, key=lambda each: each.start))

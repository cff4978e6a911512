"""The open transactions of a partition and their producers, from the producer state that its leader keeps.

Kafka's DescribeProducers (KIP-664, since 2.8) needs READ on the topic. It returns the offset where a transaction
begins. Only the coordinator knows its begin time and its transactional id.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..state.ids import BrokerId
from ..state.offsets import Offset, TimestampMs
from .error_codes import error_of
from .raw import RawClient


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """``start``: the offset of its first record in the partition. ``last_timestamp``: the time of the producer's newest
    batch in the partition, by the producer's clock; None: unknown.
    """

    producer_id: int
    producer_epoch: int
    start: Offset
    last_timestamp: TimestampMs | None


def read_open_transactions(raw: RawClient, broker: BrokerId, topic: str, partition: int) -> tuple[OpenTransaction, ...]:
    """Return the open transactions, lowest start first. On the leader, the first one determines the last stable offset.
    A follower also answers (seen on 4.3.0), by the records that it has fetched.

    Raises LeaderMoved if the broker has no replica (yet), AccessDenied without READ on the topic, and InvalidRequest if
    the broker is too old. Also raises UnknownTopic, BrokerUnavailable, TimedOut.
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

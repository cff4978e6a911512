"""Record batches that no client library would send, appended to a real broker as they are."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest

from tierstate.broker.client_config import bootstrap_addresses
from tierstate.broker.framed_socket import FramedSocket
from tierstate.broker.raw_connection import RawConnection
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox


def append_batch(kafka: KafkaSandbox, topic: str, batch: bytes) -> int:
    """Append a batch to partition 0, which the first broker leads. Return the error code of the answer."""
    clock = SystemClock()
    ends, (address, *_) = clock.monotonic() + 60, bootstrap_addresses(kafka.client_config)
    connection = RawConnection(FramedSocket(address, None, clock, ends), None, clock, ends)
    try:
        kind = ProduceRequest.TopicProduceData
        data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data], max_version=9)
        answer = connection.ask(request, ends)
    finally:
        connection.close()
    return int(answer.responses[0].partition_responses[0].error_code)

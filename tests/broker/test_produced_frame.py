"""Produce requests as bytes: those of kafka-python, and its answers."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tierstate.broker.produced_frame import API_KEY, VERSION, outcome_of, request_of

BATCH = bytes(range(200))


@pytest.mark.parametrize("topic", ["orders", "ö" * 100])
def test_a_request_has_the_bytes_of_kafka_pythons(topic: str) -> None:
    kind: Any = ProduceRequest.TopicProduceData
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=7, records=BATCH)])
    request: Any = ProduceRequest(version=VERSION, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data])
    assert request.API_KEY == API_KEY
    assert request_of(topic, 7, BATCH, 10_000) == request.encode()


@pytest.mark.parametrize(("code", "base"), [(0, 2**40), (47, -1)])
def test_an_answer_is_read_as_kafka_python_reads_it(code: int, base: int) -> None:
    kind: Any = ProduceResponse.TopicProduceResponse
    part = kind.PartitionProduceResponse(
        index=7, error_code=code, base_offset=base, log_append_time_ms=-1, log_start_offset=0
    )
    answer: Any = ProduceResponse(
        version=VERSION, responses=[kind(name="ö", partition_responses=[part])], throttle_time_ms=0
    )
    assert outcome_of(answer.encode()) == (code, base)

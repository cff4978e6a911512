"""Uncompressed batches whose records' offsets do not count up: Kafka's own consumer gets what both parsers decode."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.broker.conftest import RealTopics
from tests.broker.raw_batches import append_batch
from tests.log.batches import GZIP, OFFSET_DELTAS, ZSTD, Batch, block_rows, plain_batch, record
from tests.proxy.java_programs import Readers
from tierstate.log.decode import decode_records
from tierstate.log.record_parser import parse_records
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
INPUTS = {
    "same": (OFFSET_DELTAS / "same.log").read_bytes(),
    "back": (OFFSET_DELTAS / "back.log").read_bytes(),
    "below": (OFFSET_DELTAS / "below.log").read_bytes(),
    "far": Batch(0, [record(delta, b"k", b"r%d" % delta) for delta in (1, -(2**31), 0, 3, 2)]).bytes,
}
CONFIG = {"retention.ms": "-1"}


@pytest.fixture
def topics(kafka: KafkaSandbox) -> RealTopics:
    return RealTopics(kafka)


@pytest.mark.parametrize("name", INPUTS)
def test_kafkas_consumer_gets_the_records_that_both_parsers_decode(
    name: str, kafka: KafkaSandbox, topics: RealTopics, topic_name: str
) -> None:
    topic = topics.create(topic_name, config=CONFIG)
    assert append_batch(kafka, topic, INPUTS[name]) == 0
    assert append_batch(kafka, topic, plain_batch(0, 2)) == 0
    data = (kafka.brokers[0].log_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    decoded = [row for block in decode_records(data, source="broker") for row in block_rows(block)]
    ours = [f"{offset}:{(value or b'').decode()}" for offset, _, _, _, value, _ in decoded]
    assert ours == [f"{each.offset}:{(each.value or b'').decode()}" for each in parse_records(data, source="broker")]
    with closing(Readers(kafka.bootstrap, topic, [0])) as java:
        java.begin(len(ours))
        assert java.said() == [" ".join(ours)]


def test_a_broker_takes_an_offset_above_its_batch_only_where_records_are_not_packed(
    kafka: KafkaSandbox, topics: RealTopics, topic_name: str
) -> None:
    """So the agent looks only at batches without a codec."""
    topic = topics.create(topic_name, config=CONFIG)
    above = [record(delta, b"k", b"v") for delta in (0, 1, 7)]
    assert append_batch(kafka, topic, Batch(0, above).bytes) == 0
    for codec in (GZIP, ZSTD):
        assert append_batch(kafka, topic, Batch(0, above, codec).bytes) != 0
        assert append_batch(kafka, topic, Batch(0, above[:1] * 2, codec).bytes) != 0

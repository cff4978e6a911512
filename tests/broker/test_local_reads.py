"""Raw reads of the local tier: whole batches, exact bounds, and errors that say what to do."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tierstate.broker.answers import FetchSpec
from tierstate.broker.local_reads import whole_batches
from tierstate.broker.open import Broker
from tierstate.broker.raw import RawClient
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.ports import PortLease
from tierstate.state.errors import BrokerUnavailable, OffsetOutOfRange, UnknownTopic
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation, LocalBounds

ME = BrokerId(1)
LARGE = 1 << 20


def batches(data: bytes) -> list[tuple[int, int]]:
    """Return (base offset, last offset) of each batch; fail on anything else in between."""
    offsets, at = [], 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        offsets.append((base, base + last_delta))
        at += 12 + length
    assert at == len(data)
    return offsets


def fetch(broker: Broker, topic: str, offset: int, isolation: str = "read_uncommitted", **more: Any) -> Any:
    more = {"max_bytes": LARGE, **more}
    return broker.reads.fetch(FetchSpec(topic, 0, Offset(offset), isolation=Isolation(isolation), **more))


@pytest.mark.kafka
def test_a_fetch_returns_the_brokers_own_bytes_and_bounds(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.append(topics.create(topic_name), 0, 30)
    piece = fetch(broker, topic_name, 0)
    (segment,) = (topics.sandbox.brokers[0].log_dir / f"{topic_name}-0").glob("*.log")
    assert piece.batches == segment.read_bytes()[: len(piece.batches)]
    assert batches(piece.batches)[-1][1] == 29
    assert (piece.bounds, piece.aborted) == (LocalBounds(Offset(0), Offset(30), Offset(30), None), ())


@pytest.mark.kafka
def test_the_first_batch_holds_the_offset_and_cut_batches_are_left_out(
    broker: Broker, topics: Any, topic_name: str
) -> None:
    topics.append(topics.create(topic_name), 0, 100)
    everything = batches(fetch(broker, topic_name, 0).batches)
    assert len(everything) > 5
    base, last = everything[3]
    one = fetch(broker, topic_name, last, max_bytes=1)
    assert batches(one.batches) == [(base, last)]
    some = fetch(broker, topic_name, 0, max_bytes=len(one.batches) * 5 // 2)
    assert batches(some.batches) == everything[: len(batches(some.batches))]
    assert 0 < len(batches(some.batches)) < len(everything)


@pytest.mark.kafka
def test_at_the_end_nothing_comes_and_beyond_both_ends_the_range_is_named(
    broker: Broker, topics: Any, topic_name: str
) -> None:
    topics.append(topics.create(topic_name), 0, 30)
    broker.control.delete_records_on(ME, topic_name, 0, Offset(10))
    assert fetch(broker, topic_name, 30).batches == b""
    for outside in (9, 31):
        with pytest.raises(OffsetOutOfRange) as raised:
            fetch(broker, topic_name, outside)
        assert (raised.value.valid_start, raised.value.valid_end) == (10, 30)


@pytest.mark.kafka
def test_aborted_transactions_come_with_the_batches_under_read_committed(
    broker: Broker, topics: Any, topic_name: str
) -> None:
    topics.create(topic_name)
    topics.append(topic_name, 0, 3)  # 0..2
    topics.append(topic_name, 0, 5, transaction="abort")  # 3..7, its marker at 8
    topics.append(topic_name, 0, 5, transaction="commit")  # 9..13, its marker at 14
    ((producer_id, first_offset),) = fetch(broker, topic_name, 0, "read_committed").aborted
    assert first_offset == 3
    assert producer_id >= 0
    assert fetch(broker, topic_name, 9, "read_committed").aborted == ()
    assert fetch(broker, topic_name, 0).aborted == ()


@pytest.mark.kafka
def test_an_open_transaction_ends_a_committed_read(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.create(topic_name)
    topics.append(topic_name, 0, 3)
    topics.append(topic_name, 0, 5, transaction="leave open")
    bounds = broker.reads.bounds(topic_name, 0)
    assert (bounds.last_stable_offset, bounds.high_watermark) == (3, 8)
    committed, everything = fetch(broker, topic_name, 0, "read_committed"), fetch(broker, topic_name, 0)
    assert batches(committed.batches)[-1][1] == 2
    assert batches(everything.batches)[-1][1] == 7
    assert committed.bounds.last_stable_offset == everything.bounds.last_stable_offset == 3
    assert committed.bounds.high_watermark == 8
    assert fetch(broker, topic_name, 5, "read_committed").batches == b""


@pytest.mark.kafka
def test_a_topic_id_fences_a_recreated_topic(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.append(topics.create(topic_name), 0, 5)
    before = broker.control.topic(topic_name).topic_id
    assert fetch(broker, topic_name, 0, topic_id=before).bounds.high_watermark == 5
    topics.delete(topic_name)
    topics.append(topics.create(topic_name), 0, 5)
    with pytest.raises(UnknownTopic):
        fetch(broker, topic_name, 0, topic_id=before)
    now = broker.control.topic(topic_name).topic_id
    assert fetch(broker, topic_name, 0, topic_id=now).bounds.high_watermark == 5


@pytest.mark.kafka
def test_topic_ids_are_the_ones_in_kafkas_files(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.append(topics.create(topic_name), 0, 1)  # Kafka writes the file before the first record
    written = (topics.sandbox.brokers[0].log_dir / f"{topic_name}-0" / "partition.metadata").read_text()
    assert f"topic_id: {broker.control.topic(topic_name).topic_id}" in written.splitlines()
    properties = (topics.sandbox.brokers[0].log_dir / "meta.properties").read_text()
    assert f"cluster.id={broker.control.cluster().cluster_id}\n" in properties


@pytest.mark.kafka
def test_offsets_are_found_by_time(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.append(topics.create(topic_name), 0, 5)
    record = broker.reads.offset_at(topic_name, 0, TimestampMs(0))
    assert record is not None
    assert record[0] == 0
    assert broker.reads.offset_at(topic_name, 0, TimestampMs(2**60)) is None


@pytest.mark.kafka
def test_a_client_that_was_closed_still_answers_and_keeps_nothing(broker: Broker, topics: Any, topic_name: str) -> None:
    topics.append(topics.create(topic_name), 0, 5)
    broker.close()
    assert fetch(broker, topic_name, 0).bounds.high_watermark == 5


def test_whole_batches_leaves_out_what_was_cut() -> None:
    batch = struct.pack(">qi", 0, 5) + b"12345"
    assert whole_batches(batch * 2) == batch * 2
    for cut in range(1, len(batch)):
        assert whole_batches(batch * 2 + batch[:cut]) == batch * 2
    assert whole_batches(b"") == b""
    assert whole_batches(struct.pack(">qi", 0, -12) + batch) == b""


def test_an_address_without_a_broker_is_reported_at_once() -> None:
    lease = PortLease()
    raw = RawClient({"bootstrap.servers": f"127.0.0.1:{lease.take()}"}, SystemClock())
    with pytest.raises(BrokerUnavailable):
        raw.metadata()
    lease.release()

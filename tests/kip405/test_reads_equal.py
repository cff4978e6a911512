"""What Kafka tiered is read from the bucket, record for record as Kafka's own consumer reads it through the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kip405.kafkas_tiers import KafkasTiers, kafkas_tiers, plainly, transactions, until, write
from tierstate.broker.raw import RawClient
from tierstate.sandbox.artifacts import RELEASES
from tierstate.state.errors import CorruptData, OffsetOutOfRange, SegmentExpired
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
LARGE = b"x" * 15_000
"""Two of these do not fit into one segment."""


def several_partitions(tiers: KafkasTiers, topic: str) -> None:
    for partition in (0, 1):
        plainly(tiers.kafka, topic, partition, count=500)


def left_open(tiers: KafkasTiers, topic: str) -> None:
    """Leave a transaction open. Once it is aborted, its marker is the last record of the log."""
    transactions(tiers.kafka, topic, [("a", "begin"), ("a", "write"), ("b", "begin"), ("b", "write"), ("b", "commit")])
    plainly(tiers.kafka, topic, count=350)


def markers_two_segments_later(tiers: KafkasTiers, topic: str) -> None:
    for _ in range(3):
        transactions(tiers.kafka, topic, [("a", "begin"), ("a", "write"), ("b", "begin"), ("b", "write")])
        plainly(tiers.kafka, topic, count=250)
        transactions_end(tiers, topic, "a")
        plainly(tiers.kafka, topic, count=120)
        transactions_end(tiers, topic, "b")


def more_than_an_inline_list(tiers: KafkasTiers, topic: str) -> None:
    producer = Producer({**tiers.kafka.client_config, "transactional.id": f"{topic}-many", "linger.ms": 0})
    producer.init_transactions(30)
    for number in range(300):
        producer.begin_transaction()
        producer.produce(topic, b"aborted %d" % number, partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
    plainly(tiers.kafka, topic, count=700)


def decided_behind_the_last_stable_offset(tiers: KafkasTiers, topic: str) -> None:
    """The remote tier ends where an open transaction begins; an older one is aborted behind that."""
    transactions(tiers.kafka, topic, [("older", "begin"), ("older", "write")])
    plain = Producer({**tiers.kafka.client_config, "linger.ms": 0})
    plain.produce(topic, LARGE, partition=0)
    assert plain.flush(30) == 0
    config = {**tiers.kafka.client_config, "transactional.id": f"{topic}-open", "linger.ms": 0, "log_level": 0}
    left_open = Producer({**config, "transaction.timeout.ms": 900_000})
    left_open.init_transactions(30)
    left_open.begin_transaction()
    left_open.produce(topic, LARGE, partition=0)
    assert left_open.flush(30) == 0
    transactions_end(tiers, topic, "older")
    write(plain, topic, count=200)


def transactions_end(tiers: KafkasTiers, topic: str, name: str) -> None:
    """Abort what the producer left open: a new producer with its id does so."""
    producer = Producer({**tiers.kafka.client_config, "transactional.id": f"{topic}-{name}", "log_level": 0})
    producer.init_transactions(30)


Fill = Callable[[KafkasTiers, str], None]
TOPICS: dict[str, tuple[Fill, dict[str, Any]]] = {
    "several": (several_partitions, {"partitions": 2}),
    "marker-local": (left_open, {}),
    "markers-later": (markers_two_segments_later, {}),
    "many": (more_than_an_inline_list, {"segment_bytes": 60_000}),
    "behind-the-end": (decided_behind_the_last_stable_offset, {}),
}


@pytest.fixture(scope="module", params=[RELEASES[0], RELEASES[-1]])
def tiers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasTiers]:
    folder = tmp_path_factory.mktemp("tiers")
    with kafkas_tiers(folder, release=request.param) as made:
        made.use(prefix="ts/", compression=Compression.ZSTD)
        for name, (fill, options) in TOPICS.items():
            fill(made, made.topic(name, **options))
        made.kafka.stop(0)
        made.kafka.start(0)  # a new leader epoch
        for name in TOPICS:
            plainly(made.kafka, name, count=150)
        transactions_end(made, "marker-local", "a")
        for name in TOPICS:
            made.offloaded(name)
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Return the offsets that are asked of brokers, by topic."""
    offsets: dict[str, list[int]] = {}
    fetch = RawClient.fetch

    def watched(self: RawClient, broker: Any, spec: Any) -> Any:
        offsets.setdefault(spec.topic, []).append(spec.offset)
        return fetch(self, broker, spec)

    monkeypatch.setattr(RawClient, "fetch", watched)
    return offsets


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_the_one_that_kafka_serves(
    tiers: KafkasTiers, topic: str, isolation: Isolation, asked: dict[str, list[int]]
) -> None:
    assert tiers.digests(topic, isolation) == tiers.digests(topic, isolation, "--via", "broker")
    allowed = 1 if topic == "behind-the-end" and isolation is Isolation.READ_COMMITTED else 0
    if topic != "several":
        assert min(asked[topic], default=10**9) >= tiers.local_start(topic) - allowed


@pytest.mark.parametrize("topic", list(TOPICS)[1:])
def test_aborted_records_are_in_the_remote_tier_and_hidden(tiers: KafkasTiers, topic: str) -> None:
    committed, everything = (
        tiers.digests(topic, each) for each in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
    )
    assert committed[0][1] < everything[0][1]
    assert tiers.local_start(topic) > 0


def test_the_marker_of_an_aborted_transaction_in_the_remote_tier_is_in_the_local_log_alone(tiers: KafkasTiers) -> None:
    with closing(Consumer({**tiers.kafka.client_config, "group.id": "ends"})) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition("marker-local", 0), 20)
    assert 40 < tiers.finished("marker-local")[-1].offsets.end < end - 1


def test_a_time_is_found_where_kafka_finds_it(tiers: KafkasTiers) -> None:
    topic = "several"
    rows = [each for each in tiers.finished(topic) if each.partition.partition == 0]
    config = {**tiers.kafka.client_config, "group.id": "times"}
    with tiers.connection() as connection, closing(Consumer(config)) as consumer:
        reader = connection.reader(connection.view())
        for record in rows:
            for time in (record.max_timestamp - 1, record.max_timestamp, record.max_timestamp + 1):
                (expected,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], 20)
                found = reader.offset_for_time(topic, 0, time)
                assert (-1 if found is None else found[0]) == expected.offset


def test_after_delete_records_the_log_begins_where_kafka_says(tiers: KafkasTiers) -> None:
    topic = tiers.topic("deleted-from")
    plainly(tiers.kafka, topic, count=500)
    tiers.offloaded(topic, segments=2)
    tiers.admin.delete_records([TopicPartition(topic, 0, 130)])[TopicPartition(topic, 0)].result(30)
    (facts,) = tiers.run("describe", topic)
    assert facts["log_start_offset"] == 130
    for isolation in Isolation:
        assert tiers.digests(topic, isolation) == tiers.digests(topic, isolation, "--via", "broker")
    with tiers.connection() as connection, pytest.raises(OffsetOutOfRange) as refused:
        connection.reader(connection.view()).fetch(topic, 0, 129)
    assert refused.value.facts["valid_start"] == 130


def test_a_prefix_that_changed_in_the_middle_changes_no_record(tiers: KafkasTiers) -> None:
    """The aborted records are below the old prefix, their marker is below the new one."""
    topic = tiers.topic("prefix-changed")
    left_open(tiers, topic)
    transactions_end(tiers, topic, "a")
    plainly(tiers.kafka, topic, count=300)

    def are_equal() -> None:
        for isolation in Isolation:
            assert tiers.digests(topic, isolation) == tiers.digests(topic, isolation, "--via", "broker")

    try:
        tiers.use("old/")
        until(lambda: len(tiers.finished(topic)) >= 5)
        tiers.publish(topic, first=2)
        tiers.use("new-", Compression.ZSTD, "old/")
        assert tiers.offloaded(topic, segments=5)
        old, new = tiers.finished(topic)[:2], tiers.finished(topic)[2:]
        assert [tiers.base_key(each)[:4] for each in (*old, *new)] == ["old/"] * 2 + ["new-"] * len(new)
        are_equal()
        assert tiers.run("verify", topic, "--level", "3")["findings"] == []
        tiers.use("new-", Compression.ZSTD)
        error = tiers.run("digest", topic, fails=True)
        assert str(old[0].segment_id) in str(error), "it is not skipped"
        tiers.name_keys(old)
        are_equal()
    finally:
        tiers.use("ts/", Compression.ZSTD)


def test_what_kafka_expires_is_gone_here_too(tiers: KafkasTiers) -> None:
    topic = tiers.topic("expires")
    plainly(tiers.kafka, topic, count=500)
    tiers.offloaded(topic, segments=3)
    first = tiers.finished(topic)[0]
    tiers.configure(topic, **{"retention.bytes": "45000"})
    until(lambda: tiers.finished(topic)[0].offsets.start > first.offsets.end)
    tiers.remove(first)
    tiers.publish(topic)
    for isolation in Isolation:
        assert tiers.digests(topic, isolation) == tiers.digests(topic, isolation, "--via", "broker")


def test_what_goes_while_it_is_read_ends_the_read_by_name(tiers: KafkasTiers) -> None:
    topic = tiers.topic("goes-while-read")
    plainly(tiers.kafka, topic, count=900)
    start = tiers.offloaded(topic, segments=6)
    first, second, third, fourth, *_ = tiers.finished(topic)
    with tiers.connection() as connection:
        reader, at = connection.reader(connection.view()), Offset(0)

        def read_to(end: int) -> None:
            nonlocal at
            while at < end:
                at = reader.fetch(topic, 0, at, max_bytes=4_000).next_offset

        read_to(10)
        log = tiers.bucket / object_key(tiers.base_key(second), ObjectKind.LOG)
        kept = log.read_bytes()
        log.unlink()
        with pytest.raises(CorruptData, match="an object of a live segment is missing") as gone:
            read_to(start)
        assert gone.value.facts["segment_id"] == second.segment_id
        assert at == second.offsets.start
        log.write_bytes(kept)
        read_to(third.offsets.start + 10)
        tiers.configure(topic, **{"retention.bytes": "45000"})  # Kafka says first that it deletes, and then deletes
        until(lambda: tiers.finished(topic)[0].offsets.start > fourth.offsets.start)
        for each in (first, second, third, fourth):
            tiers.remove(each)
        with pytest.raises((SegmentExpired, OffsetOutOfRange)):
            read_to(start)
        assert at <= fourth.offsets.start, "nothing was skipped"

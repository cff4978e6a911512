"""One log for a consumer: from the remote tier to the broker and back, on a broker that is really trimmed."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.consumer.tiered_cluster import TieredCluster, first_error, offsets, polled, until
from tests.sampled import sampled
from tierstate.consumer.hand_over import NOWHERE
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.state.errors import OffsetOutOfRange
from tierstate.state.routing import Tier

pytestmark = pytest.mark.kafka
RECORDS = 400


def tiers(messages: list[Any]) -> list[Tier]:
    return [TieredConsumer.tier_of(message) for message in messages]


@pytest.mark.essential
@pytest.mark.parametrize("batch", sampled([37, 1, 1000], 3))
def test_a_group_reads_both_tiers_as_one_log(cluster: TieredCluster, batch: int) -> None:
    topic, (start,) = cluster.tiered(f"one-log-{batch}")
    with TieredConsumer(cluster.config(topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        messages = polled(consumer, RECORDS, batch)
    assert offsets(messages) == list(range(RECORDS))
    assert [message.key() for message in messages] == [str(number).encode() for number in range(RECORDS)]
    assert [message.headers() for message in messages] == [[("n", b"%d" % number)] for number in range(RECORDS)]
    assert [message.timestamp() for message in messages] == [(1, 1_000_000 + number) for number in range(RECORDS)]
    assert tiers(messages) == [Tier.REMOTE] * start + [Tier.LOCAL] * (RECORDS - start)


@pytest.mark.essential
def test_a_consumer_that_fell_behind_a_trim_goes_on_in_the_remote_tier_and_comes_back(cluster: TieredCluster) -> None:
    topic = cluster.topic("fell-behind")
    small = {"max.partition.fetch.bytes": 2000, "queued.min.messages": 1, "queued.max.messages.kbytes": 1}
    with TieredConsumer(cluster.config(topic, **small)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = polled(consumer, 30)
        assert set(tiers(messages)) == {Tier.LOCAL}
        place = [TopicPartition(topic, 0)]
        consumer.pause(place)  # what librdkafka has fetched ahead is dropped
        (start,) = cluster.copy_and_trim(topic)
        consumer.resume(place)
        messages += polled(consumer, RECORDS - 30)
        cluster.produce(topic, RECORDS, RECORDS + 5)
        messages += polled(consumer, 5)
    assert offsets(messages) == list(range(RECORDS + 5))
    assert tiers(messages) == [Tier.LOCAL] * 30 + [Tier.REMOTE] * (start - 30) + [Tier.LOCAL] * (RECORDS + 5 - start)


def test_the_mode_says_which_tier_serves_what_both_have(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("modes")
    by_mode = {}
    for mode in ("kafka_preferred", "tiered_storage_preferred"):
        with TieredConsumer(cluster.config(topic, tiered_mode=mode)) as consumer:
            consumer.assign([TopicPartition(topic, 0, start)])
            by_mode[mode] = polled(consumer, RECORDS - start)
    assert offsets(by_mode["kafka_preferred"]) == offsets(by_mode["tiered_storage_preferred"])
    assert set(tiers(by_mode["kafka_preferred"])) == {Tier.LOCAL}
    assert tiers(by_mode["tiered_storage_preferred"])[0] is Tier.REMOTE
    assert tiers(by_mode["tiered_storage_preferred"])[-1] is Tier.LOCAL


def test_the_remote_tier_alone_ends_where_nothing_more_is_copied_and_goes_on_when_it_is(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("remote-alone")
    config = cluster.config(topic, tiered_mode="tiered_storage_only", enable_partition_eof=True)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = []
        while (message := consumer.poll(5)) is not None and message.error() is None:
            messages.append(message)
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
        copied = message.offset()
        assert offsets(messages) == list(range(copied))
        assert copied < RECORDS
        assert consumer.poll(0.5) is None
        cluster.produce(topic, RECORDS, RECORDS + 200)
        cluster.copy_and_trim(topic)
        more = polled(consumer, 100)
    assert offsets(more) == list(range(copied, copied + 100))
    assert set(tiers(messages + more)) == {Tier.REMOTE}


def test_kafka_only_is_kafkas_own_consumer(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("kafka-only")
    config = {**cluster.kafka.client_config, "group.id": topic, "auto.offset.reset": "earliest"}
    with TieredConsumer({**config, "tiered.mode": "kafka_only"}) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, RECORDS - start)) == list(range(start, RECORDS))


def test_a_commit_below_the_local_start_is_where_a_restart_goes_on(cluster: TieredCluster) -> None:
    topic = cluster.topic("restart")
    config = cluster.config(topic)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = polled(consumer, 50)[-1]
        consumer.commit(message=message, asynchronous=False)  # with its leader epoch
        assert message.leader_epoch() is not None
    (start,) = cluster.copy_and_trim(topic)
    assert start > 50
    with TieredConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, RECORDS - 50)) == list(range(50, RECORDS))


def test_out_of_range_is_one_error_unless_a_reset_is_asked_for(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("out-of-range")
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, RECORDS + 1000)])
        message = first_error(consumer)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert isinstance(message.cause(), OffsetOutOfRange)
        assert (message.cause().valid_start, message.cause().valid_end) == (0, RECORDS)
        assert consumer.poll(0.5) is None
        consumer.seek(TopicPartition(topic, 0, 3))
        assert polled(consumer, 1)[0].offset() == 3


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", RECORDS)])
def test_a_reset_goes_to_the_ends_of_the_log_and_is_reported(cluster: TieredCluster, reset: str, expected: int) -> None:
    topic, _ = cluster.tiered(f"reset-{reset}")
    errors: list[Any] = []
    with TieredConsumer(cluster.config(topic, auto_offset_reset=reset, **{"error_cb": errors.append})) as consumer:
        consumer.assign([TopicPartition(topic, 0, RECORDS + 1000)])
        consumer.pause(consumer.assignment())
        until(lambda: errors, lambda: consumer.poll(0.1))
        cluster.produce(topic, RECORDS, RECORDS + 1)
        consumer.resume(consumer.assignment())
        assert polled(consumer, 1)[0].offset() == expected
    assert KafkaError._AUTO_OFFSET_RESET in [error.code() for error in errors]


def test_a_group_without_a_commit_is_an_error_by_default(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("no-commit")
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.subscribe([topic])
        message = first_error(consumer)
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert "no committed offset" in message.error().str()


def test_logical_offsets_are_those_of_both_tiers(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("logical")
    tail = -2000
    with TieredConsumer(cluster.config(topic)) as consumer:
        for position, first in ((OFFSET_BEGINNING, 0), (tail - 5, RECORDS - 5), (tail - RECORDS - 50, 0)):
            consumer.assign([TopicPartition(topic, 0, position)])
            assert polled(consumer, 1)[0].offset() == first
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert consumer.poll(2) is None
        cluster.produce(topic, RECORDS, RECORDS + 1)
        assert polled(consumer, 1)[0].offset() == RECORDS


def test_position_and_stored_offset_follow_each_record_not_each_piece(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("positions")
    place = [TopicPartition(topic, 0)]
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 7)])
        assert consumer.position(place)[0].offset == OFFSET_INVALID
        for offset in range(7, 20):
            assert polled(consumer, 1)[0].offset() == offset
            assert consumer.position(place)[0].offset == offset + 1
            assert consumer.commit(asynchronous=False)[0].offset == offset + 1
    with Consumer({**cluster.kafka.client_config, "group.id": topic}) as plain:
        assert plain.committed(place, 10)[0].offset == 20


def test_records_that_are_only_buffered_are_not_committed_by_themselves(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("buffered")
    config = cluster.config(topic, enable_auto_commit=True, auto_commit_interval_ms=100, auto_offset_reset="earliest")
    with TieredConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, 3)) == [0, 1, 2]
        consumer.pause(consumer.assignment())
        consumer.poll(1)
    with Consumer({**cluster.kafka.client_config, "group.id": topic}) as plain:
        assert plain.committed([TopicPartition(topic, 0)], 10)[0].offset == 3


def test_records_handed_out_just_before_a_close_are_committed(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("closed")
    config = cluster.config(topic, enable_auto_commit=True, auto_commit_interval_ms=60_000)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])  # assign() revokes nothing at the end, unlike subscribe()
        assert offsets(polled(consumer, 50, 50)) == list(range(50))
    with Consumer({**cluster.kafka.client_config, "group.id": topic}) as plain:
        assert plain.committed([TopicPartition(topic, 0)], 10)[0].offset == 50


def test_nothing_is_reported_for_a_partition_revoked_during_its_look(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("taken-away")
    errors: list[Any] = []
    config = cluster.config(topic, auto_offset_reset="earliest", **{"error_cb": errors.append})
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, RECORDS + 1000)])
        consumer.poll(0)  # the look begins; its outcome comes with another poll
        consumer.unassign()
        assert consumer.poll(2) is None
    assert KafkaError._AUTO_OFFSET_RESET not in [error.code() for error in errors]


def test_what_the_application_stores_is_what_is_committed(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("stored")
    config = cluster.config(topic, enable_auto_offset_store=False)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = polled(consumer, 10)
        with pytest.raises(KafkaException):
            consumer.commit(asynchronous=False)
        consumer.store_offsets(message=messages[4])
        assert consumer.commit(asynchronous=False)[0].offset == 5
        consumer.store_offsets(offsets=[TopicPartition(topic, 0, 8)])
        polled(consumer, RECORDS - 10)  # over to the broker, where the partition was assigned again on the way
        assert consumer.commit(asynchronous=False)[0].offset == 8


def test_a_pause_keeps_what_waits_and_a_seek_drops_it(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("pause-and-seek")
    place = [TopicPartition(topic, 0)]
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        polled(consumer, 5)
        consumer.pause(place)
        assert consumer.poll(0.5) is None
        assert consumer.consume(10, 0.5) == []
        consumer.resume(place)
        assert polled(consumer, 1)[0].offset() == 5
        for to in (100, start + 3, 2, start - 1, start):
            consumer.seek(TopicPartition(topic, 0, to))
            assert consumer.position(place)[0].offset == OFFSET_INVALID
            assert offsets(polled(consumer, 3)) == [to, to + 1, to + 2]


def test_a_read_in_flight_at_a_seek_is_not_handed_out_after_it(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("seek-in-a-read")
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        polled(consumer, 1)
        for to in (start - 1, 30, 100, 2) * 3:
            consumer.seek(TopicPartition(topic, 0, to + 1))
            consumer.poll(0)  # it is being read from there
            consumer.seek(TopicPartition(topic, 0, to))
            assert offsets(polled(consumer, 2)) == [to, to + 1]


def test_a_pause_holds_over_the_border_of_the_tiers(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("pause-at-border")
    place = [TopicPartition(topic, 0)]
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, start - 2)])
        assert offsets(polled(consumer, 2)) == [start - 2, start - 1]
        consumer.pause(place)
        assert consumer.poll(1.5) is None
        consumer.resume(place)
        assert offsets(polled(consumer, 2)) == [start, start + 1]
        consumer.pause(place)
        assert consumer.poll(1) is None


@pytest.mark.parametrize("given", [OFFSET_END, 5])
def test_kafkas_consumer_asks_the_broker_nothing_of_what_it_does_not_serve(cluster: TieredCluster, given: int) -> None:
    topic, _ = cluster.tiered(f"nothing-asked-{abs(given)}")
    with TieredConsumer(cluster.config(topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, given)])
        assert [place.offset for place in Consumer.assignment(consumer)] == [NOWHERE]
        assert Consumer.poll(consumer, 3) is None  # past every end the broker would answer with "out of range"


def test_times_and_watermarks_are_those_of_both_tiers(cluster: TieredCluster) -> None:
    topic, (start,) = cluster.tiered("times")
    times = [TopicPartition(topic, 0, 1_000_000 + number) for number in (0, 10, start - 1, start, RECORDS - 1, RECORDS)]
    place = TopicPartition(topic, 0)
    with TieredConsumer(cluster.config(topic)) as consumer:
        answers = [place.offset for place in consumer.offsets_for_times(times, timeout=30)]
        assert answers == [0, 10, start - 1, start, RECORDS - 1, OFFSET_END]
        assert consumer.get_watermark_offsets(place, timeout=30) == (0, RECORDS)
        consumer.assign([TopicPartition(topic, 0, 5)])
        polled(consumer, 1)
        assert consumer.get_watermark_offsets(place, cached=True) == (0, RECORDS)


def test_offsets_of_the_remote_tier_go_into_a_transaction(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("transaction")
    producer = Producer({**cluster.kafka.client_config, "transactional.id": topic})
    producer.init_transactions(30)
    with TieredConsumer(cluster.config(topic, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        polled(consumer, 12)
        producer.begin_transaction()
        at = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        assert consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == 12


def is_told_that_it_was_made_again(cluster: TieredCluster, topic: str, mode: str) -> None:
    with TieredConsumer(cluster.config(topic, tiered_mode=mode)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        polled(consumer, 5)
        cluster.admin.delete_topics([topic])[topic].result(30)
        cluster.topic(topic.removeprefix("tier-state-test-hand-over-"), RECORDS)
        message = first_error(consumer)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert message.cause().facts["was"] != message.cause().facts["is"]


def test_a_recreated_topic_is_not_read_on_as_if_it_were_the_same(cluster: TieredCluster) -> None:
    topic, _ = cluster.tiered("made-again")
    is_told_that_it_was_made_again(cluster, topic, "tiered_storage_only")


def test_kafkas_consumer_does_not_go_on_in_a_recreated_topic(
    cluster: TieredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would silently go on by the name, at the offset in the old topic."""
    monkeypatch.setattr("tierstate.fetch.reader.TOPIC_AGE_S", 3600.0)  # as if all of it took no time
    topic, _ = cluster.tiered("made-again-before-the-turn")
    is_told_that_it_was_made_again(cluster, topic, "kafka_preferred")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_hidden_in_both_tiers_as_kafkas_consumer_hides_them(
    cluster: TieredCluster, isolation: str
) -> None:
    topic = cluster.topic(f"aborted-{isolation.replace('_', '-')}", 0)
    producer = Producer({**cluster.kafka.client_config, "transactional.id": topic, "batch.num.messages": 7})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(topic, f"{number}/{at} ".ljust(200, "."), partition=0)
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)
    config = cluster.config(topic, auto_offset_reset="earliest", isolation_level=isolation)
    count = 400 if isolation == "read_uncommitted" else 260
    with Consumer({key: value for key, value in config.items() if not key.startswith("tierstate.")}) as plain:
        plain.assign([TopicPartition(topic, 0, 0)])
        expected = [(row.offset(), row.value()) for row in polled(plain, count, 50)]
    (start,) = cluster.copy_and_trim(topic)
    with TieredConsumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = polled(consumer, count, 50)
        assert consumer.poll(1) is None
    assert [(message.offset(), message.value()) for message in messages] == expected
    assert start > 60
    assert set(tiers(messages)) == {Tier.LOCAL, Tier.REMOTE}

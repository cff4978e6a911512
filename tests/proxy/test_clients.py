"""The same client reads the same topic at the broker before the trim, and through the proxy after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.clients import (
    ALIKE,
    CLIENTS,
    LEVELS,
    MARKERS,
    PARTITIONS,
    READS,
    SHOW_ABORTED,
    SHOW_MARKERS,
    UNCOMMITTED_ONLY,
    by_librdkafka,
)
from tests.proxy.python_clients import Rows
from tests.proxy.running import RunningProxy, running
from tests.proxy.scenario import FIRST_MS, Scenario
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]
CASES = [
    (client, level)
    for client in CLIENTS
    for level in LEVELS
    if level == Isolation.READ_UNCOMMITTED or client not in UNCOMMITTED_ONLY
]
SLOW = {(name, level): pytest.mark.slow for name in list(CLIENTS)[3:] for level in LEVELS}


@dataclass
class Oracle(Scenario):
    """``whole`` has what each client read of the whole log at the broker. ``topic`` has every codec.

    ``absent`` says why a client is not on this machine.
    """

    times: dict[int, list[int]] = field(default_factory=dict)
    specs: dict[str, dict[int, int]] = field(default_factory=dict)
    whole: dict[tuple[str, Isolation], Rows] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    proxy: RunningProxy = field(init=False)

    @property
    def topic(self) -> str:
        return self.topics["orders"]


SPECS = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest(), "max": OffsetSpec.max_timestamp()}


def at_times(bootstrap: str, topic: str) -> dict[int, list[int]]:
    times = range(FIRST_MS - 5_000, FIRST_MS + 60_000, 1_000)
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "times"})) as consumer:
        return {
            time: [
                each.offset
                for each in consumer.offsets_for_times(
                    [TopicPartition(topic, number, time) for number in range(PARTITIONS)], 20
                )
            ]
            for time in times
        }


def by_spec(bootstrap: str, topic: str) -> dict[str, dict[int, int]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    offsets: dict[str, dict[int, int]] = {}
    for name, spec in SPECS.items():
        futures = admin.list_offsets({TopicPartition(topic, n): spec for n in range(PARTITIONS)})
        offsets[name] = {place.partition: future.result(20).offset for place, future in futures.items()}
    return offsets


@pytest.fixture(scope="module")
def oracle(
    kafka: KafkaSandbox, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Oracle]:
    cluster = TieredCluster(kafka, tmp_path_factory.mktemp("clients"), "_tier-state-clients")
    made = Oracle(cluster)
    made.fill_topics(("orders", *sorted({*READS.values()})))
    topic = made.topic
    made.times, made.specs = at_times(kafka.bootstrap, topic), by_spec(kafka.bootstrap, topic)
    for name, level in cases_of(request):
        try:
            if name not in made.absent:
                made.whole[name, level] = CLIENTS[name](kafka.bootstrap, made.read_by(name), level)
        except pytest.skip.Exception as reason:
            made.absent[name] = str(reason)
    made.starts = cluster.copy_and_trim(topic, PARTITIONS)
    assert all(start > 500 for start in made.starts), made.starts
    assert all(cluster.local_start(each) > 200 for each in made.topics.values())
    with running(cluster) as made.proxy:
        yield made


def cases_of(request: pytest.FixtureRequest) -> list[tuple[str, Isolation]]:
    """Return the cases of the clients that this run's tests need: librdkafka, and those that it selected."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    specs = [test.callspec.params for test in tests if test.module is request.module and hasattr(test, "callspec")]
    names = {"librdkafka", *(spec.get("name") for spec in specs)}
    return [each for each in CASES if each[0] in names]


@pytest.mark.parametrize(("name", "level"), [pytest.param(*each, marks=SLOW.get(each, ())) for each in CASES])
def test_a_client_reads_what_it_read_before_the_trim(oracle: Oracle, name: str, level: Isolation) -> None:
    if name in oracle.absent:
        pytest.skip(f"{name}: {oracle.absent[name]}")
    before = oracle.whole[name, level]
    assert CLIENTS[name](oracle.proxy.bootstrap, oracle.read_by(name), level) == before
    if name not in (*SHOW_ABORTED, *UNCOMMITTED_ONLY):
        others = oracle.whole[name, LEVELS[1 - LEVELS.index(level)]]
        assert len(before) != len(others), "no transaction was aborted"
    if name in ALIKE:
        records = [row for row in before if row[3] not in MARKERS] if name in SHOW_MARKERS else before
        assert records == oracle.truth(name, level)


def test_a_time_is_found_where_it_was_before_the_trim(oracle: Oracle) -> None:
    """A record or a marker, which has the coordinator's time, may have it: a broker stops at both."""
    offsets = at_times(oracle.proxy.bootstrap, oracle.topic)
    assert len(offsets) > 60
    assert offsets == oracle.times
    records = {(row[0], row[1]) for row in oracle.whole["librdkafka", Isolation.READ_UNCOMMITTED]}
    below = [
        (number, at) for each in offsets.values() for number, at in enumerate(each) if 0 <= at < oracle.starts[number]
    ]
    assert {place in records for place in below} == {True, False}, "no record, or no marker, was found"


def test_earliest_latest_and_the_latest_time_are_those_before_the_trim(oracle: Oracle) -> None:
    assert by_spec(oracle.proxy.bootstrap, oracle.topic) == oracle.specs


def batches_of(oracle: Oracle) -> list[int]:
    """Return the base offsets of partition 0 in the remote tier."""
    bases, at = list[int](), 0
    while at < oracle.starts[0]:
        fetch = partial(oracle.proxy.reader.fetch, oracle.topic, 0, at, max_bytes=1 << 20)
        piece = fetch(isolation=Isolation.READ_UNCOMMITTED, tier=Tier.REMOTE)
        bases += [each.base_offset for each in iter_batches(piece.data, source="piece")]
        at = piece.next_offset
    return bases


@pytest.mark.parametrize("level", LEVELS)
def test_from_every_border_is_read_what_was_there_before_the_trim(oracle: Oracle, level: Isolation) -> None:
    """Reads begin at the first and the last offset of each segment and batch, and at both neighbours."""
    rows = [row for row in oracle.whole["librdkafka", level] if row[0] == 0]
    segments = [each.offsets.start for each in oracle.proxy.reader.view(oracle.topic, 0).readable]
    bases = {*segments, *batches_of(oracle)}
    assert len(bases) > 100 > len(segments) > 3
    with closing(PlainConsumer({"bootstrap.servers": oracle.proxy.bootstrap}, level, SystemClock())) as consumer:
        for start in sorted({max(0, base + beside) for base in bases for beside in (-2, -1, 0, 1)}):
            following = [row for row in rows if row[1] >= start][:5]
            read = consumer.records(oracle.topic, 0, Offset(start), Offset(following[-1][1] + 1))
            assert [(0, *each) for batch in read for each in batch] == following, start


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_commits_in_the_remote_tier_and_goes_on_there(oracle: Oracle, protocol: str) -> None:
    config = {
        "bootstrap.servers": oracle.proxy.bootstrap,
        "group.id": f"{oracle.topic}-{protocol}",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
    }
    seen: list[tuple[int, int]] = []

    def read(count: int) -> None:
        with closing(Consumer(config)) as consumer:
            consumer.subscribe([oracle.topic])
            until(lambda: len(seen) >= count, lambda: seen.extend(took(consumer, count - len(seen))))
            consumer.commit(asynchronous=False)

    read(100)
    assert all(offset < oracle.starts[partition] for partition, offset in seen)
    admin = AdminClient({"bootstrap.servers": oracle.proxy.bootstrap})
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(str(config["group.id"]))])
    committed = {p.partition: p.offset for p in futures[str(config["group.id"])].result(20).topic_partitions}
    for partition, offset in committed.items():
        assert offset == max(at for number, at in seen if number == partition) + 1
    rows = [(row[0], row[1]) for row in oracle.whole["librdkafka", Isolation.READ_UNCOMMITTED]]
    read(len(rows))
    assert sorted(seen) == sorted(rows), "skipped, or read twice"


def took(consumer: Any, most: int) -> list[tuple[int, int]]:
    got = consumer.consume(min(most, 500), 0.5)
    assert not [each.error() for each in got if each.error()]
    return [(each.partition(), each.offset()) for each in got]


def test_producers_and_an_admin_work_through_it(oracle: Oracle) -> None:
    config = {"bootstrap.servers": oracle.proxy.bootstrap}
    admin, topic = AdminClient(config), f"{oracle.topic}-made-through"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    for more in ({"enable.idempotence": True}, {"acks": 0}, {"transactional.id": topic}):
        producer = Producer({**config, **more})
        if "transactional.id" in more:
            producer.init_transactions(30)
            producer.begin_transaction()
        producer.produce(topic, b"x" * 100)
        assert producer.flush(30) == 0
        if "transactional.id" in more:
            producer.commit_transaction(30)
    assert admin.describe_topics(TopicCollection([topic]))[topic].result(30).name == topic
    with closing(PlainConsumer(config, Isolation.READ_COMMITTED, SystemClock())) as consumer:
        assert consumer.bounds(topic, 0) == (0, 4)  # and the marker
    admin.delete_topics([topic])[topic].result(30)


def test_a_transaction_that_reads_the_remote_tier_commits_what_it_read_with_what_it_wrote(oracle: Oracle) -> None:
    config = {"bootstrap.servers": oracle.proxy.bootstrap}
    topic, group = f"{oracle.topic}-copied", f"{oracle.topic}-copies"
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({**config, "transactional.id": topic})
    producer.init_transactions(30)
    read: list[int] = []

    def copied(count: int, *, commit: bool) -> list[int]:
        """Return the offsets of partition 0 that were read and written."""
        client_config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        got: list[int] = []
        with closing(Consumer({**config, **client_config})) as consumer:
            place = TopicPartition(oracle.topic, 0)
            (place,) = consumer.committed([place], 20)
            consumer.assign([place])
            producer.begin_transaction()
            until(lambda: len(got) >= count, lambda: got.extend(at for _, at in took(consumer, count - len(got))))
            for offset in got:
                producer.produce(topic, b"%d" % offset)
            positions = consumer.position([place])
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        return got

    read += copied(20, commit=True)
    assert copied(20, commit=False) == copied(20, commit=True), "what was aborted is read again"
    rows = [row[1] for row in oracle.whole["librdkafka", Isolation.READ_COMMITTED] if row[0] == 0]
    with closing(PlainConsumer(config, Isolation.READ_COMMITTED, SystemClock())) as consumer:
        start, end = consumer.bounds(topic, 0)
        written = [int(row.value or b"") for batch in consumer.records(topic, 0, start, end) for row in batch]
    assert written == rows[:40]
    assert written[-1] < oracle.starts[0]
    admin.delete_topics([topic])[topic].result(30)


def test_a_read_only_proxy_is_read_through_and_nothing_is_written(oracle: Oracle) -> None:
    with running(oracle.cluster, "proxy.read_only=true") as proxy:
        level = Isolation.READ_COMMITTED
        assert by_librdkafka(proxy.bootstrap, oracle.topic, level) == oracle.whole["librdkafka", level]
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "message.timeout.ms": 3_000})
        producer.produce(oracle.topic, b"x", on_delivery=lambda error, message: errors.append(error))
        producer.flush(20)
        assert [error.code() for error in errors] == [KafkaError.CLUSTER_AUTHORIZATION_FAILED]
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        with pytest.raises(KafkaException):
            admin.delete_topics([oracle.topic], request_timeout=5)[oracle.topic].result(20)
        assert oracle.topic in AdminClient(oracle.cluster.kafka.client_config).list_topics(timeout=60).topics

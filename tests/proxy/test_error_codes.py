"""Clients' reactions to the error codes of a remote read: by these codes an application goes on, or ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka import KafkaConsumer
from kafka import TopicPartition as Place
from kafka.errors import CorruptRecordError, OffsetOutOfRangeError

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.java_programs import Readers
from tests.proxy.other_clients import by_go
from tests.proxy.running import RunningProxy, running
from tests.proxy.starts import Read
from tierstate.proxy.codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE, code_of
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state import errors
from tierstate.state.errors import CorruptData, OffsetOutOfRange, StorageUnavailable, TierstateError
from tierstate.state.routing import Isolation

RECORDS = 300
OTHERS = {
    "OffsetOutOfRange": OFFSET_OUT_OF_RANGE,
    **dict.fromkeys(
        ("CorruptData", "HistoryBroken", "ObjectNotFound", "LogGap", "OtherBytes", "PrefixContested", "Undecodable"),
        CORRUPT_MESSAGE,
    ),
    **dict.fromkeys(("IllegalTransition", "TierStateLost"), CORRUPT_MESSAGE),
}


def everything_below(kind: type[TierstateError]) -> list[type[TierstateError]]:
    return [subclass for below in kind.__subclasses__() for subclass in (below, *everything_below(below))]


def test_every_error_is_asked_again_but_those_that_a_person_must_see_and_the_end_of_the_log() -> None:
    ours = [kind for kind in everything_below(TierstateError) if kind.__module__ == errors.__name__]
    assert {each.__name__: code_of(each.__new__(each)) for each in ours} == {
        each.__name__: OTHERS.get(each.__name__, KAFKA_STORAGE_ERROR) for each in ours
    }
    assert code_of(RuntimeError("a bug")) == KAFKA_STORAGE_ERROR


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("error-codes"), "_tier-state-error-codes")


@pytest.fixture(scope="module")
def topic(cluster: TieredCluster) -> str:
    return cluster.tiered("orders", RECORDS)[0]


Reads = Callable[[], str]
"""A few records from its position: "0, 1, 2", or the application's error in their place."""
COUNT = 5


@contextmanager
def librdkafka(proxy: RunningProxy, topic: str) -> Iterator[Reads]:
    names = {KafkaError._AUTO_OFFSET_RESET: "out of range", KafkaError._BAD_MSG: "damage", 2: "damage"}
    with proxy.consumer((topic, 0, 0)) as consumer:

        def read() -> str:
            messages: list[Any] = []
            until(lambda: len(messages) == COUNT or said(messages), lambda: messages.extend(consumer.consume(1, 0.2)))
            return said(messages) or ", ".join(str(each.offset()) for each in messages)

        def said(found: list[Any]) -> str:
            return next((names[each.error().code()] for each in found if each.error() is not None), "")

        yield read


@contextmanager
def java(proxy: RunningProxy, topic: str) -> Iterator[Reads]:
    def read() -> str:
        readers.begin(COUNT)
        (output,) = readers.said()
        for text in ("out of range", "damage"):
            if text in output:
                return text
        return ", ".join(each.split(":")[0] for each in output.split() if ":" in each) or output

    with closing(Readers(proxy.bootstrap, topic, [0])) as readers:
        yield read


@contextmanager
def kafka_python(proxy: RunningProxy, topic: str) -> Iterator[Reads]:
    place = Place(topic, 0)
    config: dict[str, Any] = {"auto_offset_reset": "none", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=proxy.bootstrap, **config)) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)

        def read() -> str:
            offsets: list[int] = []

            def step() -> None:
                offsets.extend(each.offset for each in consumer.poll(200, max_records=1).get(place, []))

            try:
                until(lambda: len(offsets) == COUNT, step)
            except OffsetOutOfRangeError:
                return "out of range"
            except CorruptRecordError:
                return "damage"
            return ", ".join(map(str, offsets))

        yield read


FAMILIES = [librdkafka, java, kafka_python]


def store_is_away(proxy: RunningProxy, times: int) -> None:
    """Keep the store away until clients were answered so ``times`` times."""

    def away(topic: str, partition: int, offset: int) -> None:
        if proxy.server.counts.errors[KAFKA_STORAGE_ERROR] < times:
            raise StorageUnavailable("the store does not answer")

    proxy.reader.before = away


@pytest.mark.kafka
@pytest.mark.parametrize("family", FAMILIES)
def test_a_store_that_is_away_is_waited_for_and_the_application_hears_nothing(
    cluster: TieredCluster, topic: str, family: Any
) -> None:
    with running(cluster) as proxy, family(proxy, topic) as read:
        store_is_away(proxy, times=3)
        assert read() == "0, 1, 2, 3, 4"
        assert proxy.server.counts.errors[KAFKA_STORAGE_ERROR] >= 3


@pytest.mark.kafka
@pytest.mark.parametrize("family", FAMILIES)
def test_an_application_gets_damage_as_an_error_and_reads_on_once_repaired(
    cluster: TieredCluster, topic: str, family: Any
) -> None:
    with running(cluster) as proxy, family(proxy, topic) as read:

        def damaged(topic: str, partition: int, offset: int) -> None:
            raise CorruptData("the object is not what it must be", offset=offset)

        proxy.reader.before = damaged
        assert read() == "damage"
        proxy.reader.let_go()
        until(lambda: read() == "0, 1, 2, 3, 4", lambda: None)


@pytest.mark.kafka
@pytest.mark.parametrize("family", FAMILIES)
def test_offsets_that_the_logical_log_lost_are_out_of_range(cluster: TieredCluster, topic: str, family: Any) -> None:
    with running(cluster) as proxy, family(proxy, topic) as read:

        def expired(topic: str, partition: int, offset: int) -> None:
            raise OffsetOutOfRange("expired", valid_start=100, valid_end=RECORDS)

        proxy.reader.before = expired
        assert read() == "out of range"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_gos_clients_wait_too(cluster: TieredCluster, topic: str, client: str) -> None:
    level = Isolation.READ_UNCOMMITTED
    with running(cluster) as proxy:
        store_is_away(proxy, times=2)
        (rows,) = by_go(client, proxy.bootstrap, level, [Read(topic)])
        assert [row[1] for row in rows] == list(range(RECORDS))
        assert proxy.server.counts.errors[KAFKA_STORAGE_ERROR] >= 2

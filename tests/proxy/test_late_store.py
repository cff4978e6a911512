"""A store that is late, away or wrong: hot partitions go on, nothing is skipped, and clients live."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.running import Held, received, running
from tierstate.proxy import fetches
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import CorruptData, OffsetOutOfRange, StorageUnavailable, UnknownTopic

pytestmark = pytest.mark.kafka
RECORDS = 400


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("late-store"), "_tier-state-late-store")


@pytest.fixture(scope="module")
def topic(cluster: TieredCluster) -> str:
    """Three partitions, each trimmed."""
    return cluster.tiered("orders", RECORDS, 3)[0]


def fetch_of(topic: str, *places: tuple[int, int], max_wait_ms: int) -> bytes:
    """A Fetch of version 4 (FetchRequest.json): partition and offset of each."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 26, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(places))
    body += b"".join(struct.pack(">iqi", partition, offset, 1 << 20) for partition, offset in places)
    return struct.pack(">i", len(body)) + body


def records_of(client: socket.socket, topic: str) -> dict[int, int]:
    """Bytes of records by partition, of one answer."""
    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
    answer = client.recv(size, socket.MSG_WAITALL)
    at, found = 4 + 4 + 4 + 2 + len(topic), {}
    (partitions,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(partitions):
        partition, _error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        at += 26 + 16 * max(0, aborted)
        (found[partition],) = struct.unpack_from(">i", answer, at)
        at += 4 + max(0, found[partition])
    return found


def whole(found: dict[int, list[int]], *partitions: int) -> bool:
    return all(found.get(each) == list(range(RECORDS)) for each in partitions)


def test_a_cold_partition_whose_store_never_answers_keeps_no_hot_one_waiting(
    cluster: TieredCluster, topic: str
) -> None:
    start = cluster.local_start(topic, 0)
    with running(cluster) as proxy, proxy.consumer((topic, 0, start), (topic, 1, 0), (topic, 2, 0)) as consumer:
        proxy.reader.before = held = Held()
        found: dict[int, list[int]] = {}
        until(lambda: found.get(0) == list(range(start, RECORDS)), lambda: received(consumer, found))
        cluster.produce(topic, RECORDS, RECORDS + 50)
        until(lambda: found[0] == list(range(start, RECORDS + 50)), lambda: received(consumer, found))
        assert found.keys() == {0}
        assert {fetch[:2] for fetch in proxy.reader.fetches} == {(1, 0), (2, 0)}
        held.set()
        until(lambda: whole(found, 1, 2), lambda: received(consumer, found))


def test_an_answer_with_records_of_the_brokers_own_never_waits_for_remote_ones(
    cluster: TieredCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "FIRST_WAIT_S", 3600.0)
    start = cluster.local_start(topic, 0)
    with running(cluster) as proxy:
        proxy.reader.before = held = Held()
        host, _, port = proxy.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            for _ in range(3):  # the first begins the remote read
                client.sendall(fetch_of(topic, (0, start), (1, 0), max_wait_ms=3_600_000))
                assert records_of(client, topic)[0] > 0
        held.set()


def test_while_nothing_can_be_read_the_store_is_asked_once_and_the_broker_not_without_end(
    cluster: TieredCluster, topic: str
) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0)) as consumer:
        proxy.reader.before = held = Held()
        found: dict[int, list[int]] = {}
        until(lambda: proxy.server.counts.not_yet >= 10, lambda: received(consumer, found))
        assert len(proxy.reader.fetches) == 1
        held.set()
        until(lambda: whole(found, 1), lambda: received(consumer, found))


def test_a_store_that_is_away_is_waited_for_by_the_client(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0)) as consumer:
        tries = 0

        def away(topic: str, partition: int, offset: int) -> None:
            nonlocal tries
            tries += 1
            if tries <= 2 and offset < RECORDS // 2:
                raise StorageUnavailable("the store does not answer")

        proxy.reader.before = away
        found: dict[int, list[int]] = {}
        until(lambda: whole(found, 1), lambda: received(consumer, found))  # no error reaches the application
        assert proxy.server.counts.errors[56] >= 1
        assert [event for event, _ in proxy.said].count("a remote read failed") == 2


def test_damage_is_told_to_the_application_and_nothing_is_skipped(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), auto_offset_reset="earliest") as consumer:

        def damaged(topic: str, partition: int, offset: int) -> None:
            raise CorruptData("the object is not what it must be", offset=offset)

        proxy.reader.before = damaged
        found: dict[int, list[int]] = {}
        errors: list[KafkaError] = []
        until(lambda: proxy.server.counts.errors[2] >= 2, lambda: received(consumer, found, errors))
        assert found == {}
        proxy.reader.before = lambda topic, partition, offset: None
        until(lambda: whole(found, 1), lambda: received(consumer, found, errors))


@pytest.mark.parametrize("error", [UnknownTopic("the proxy may not see it"), RuntimeError("a bug")])
def test_what_the_proxy_itself_cannot_do_is_never_an_end_of_the_log(
    cluster: TieredCluster, topic: str, error: Exception
) -> None:
    """By ``auto.offset.reset`` the consumer would skip to the local start."""
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), auto_offset_reset="earliest") as consumer:

        def fail(topic: str, partition: int, offset: int) -> None:
            if proxy.server.counts.errors[56] < 2:
                raise error

        proxy.reader.before = fail
        found: dict[int, list[int]] = {}
        until(lambda: whole(found, 1), lambda: received(consumer, found))


def test_an_offset_that_the_logical_log_does_not_have_is_out_of_range_as_at_a_broker(
    cluster: TieredCluster, topic: str
) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0)) as consumer:

        def expired(topic: str, partition: int, offset: int) -> None:
            raise OffsetOutOfRange("expired", valid_start=100, valid_end=RECORDS)

        proxy.reader.before = expired
        errors: list[KafkaError] = []
        until(lambda: errors, lambda: received(consumer, {}, errors))
        assert errors[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_proxy_with_hardly_any_memory_gives_everything_all_the_same(cluster: TieredCluster, topic: str) -> None:
    with running(cluster, "proxy.memory=1MiB") as proxy, ExitStack() as opened:
        proxy.reader.before = held = Held()
        places = [(topic, partition, 0) for partition in (1, 2)]
        consumers = [opened.enter_context(proxy.consumer(*places)) for _ in range(5)]
        found: list[dict[int, list[int]]] = [{} for _ in consumers]

        def step() -> None:
            for consumer, into in zip(consumers, found, strict=True):
                received(consumer, into)

        until(lambda: proxy.server.budget.refused > 0, step)
        held.set()
        until(lambda: all(whole(each, 1, 2) for each in found), step)


def test_the_limit_of_a_partition_is_what_is_read_at_a_time(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), max_partition_fetch_bytes=5_000) as consumer:
        found: dict[int, list[int]] = {}
        until(lambda: whole(found, 1), lambda: received(consumer, found))
        assert {size for _, _, size in proxy.reader.fetches} == {5_000}
        assert len(proxy.reader.fetches) > 3


def test_what_was_read_ahead_for_a_client_that_left_is_given_back(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy:
        with proxy.consumer((topic, 1, 0), max_partition_fetch_bytes=2_000) as consumer:
            until(lambda: proxy.server.counts.filled, lambda: received(consumer, {}))
        until(lambda: proxy.server.counts.connections == 0, lambda: None)
        assert proxy.server.budget.used == 0

"""A store that is late, away or wrong: hot partitions go on, nothing is skipped, and clients live."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.bare_fetch import fetch_of, records_of
from tests.proxy.running import Held, RunningProxy, received, running
from tierstate.proxy import fetches, remote_reads
from tierstate.proxy.budget import FREE
from tierstate.proxy.peer import Peer
from tierstate.proxy.remote_reads import RemoteRead, wait_for_one
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import CorruptData, OffsetOutOfRange, StorageUnavailable, UnknownTopic
from tierstate.state.routing import Isolation, Tier

pytestmark = pytest.mark.kafka
RECORDS = 400


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("late-store"), "_tier-state-late-store")


@pytest.fixture(scope="module")
def topic(cluster: TieredCluster) -> str:
    """Return a topic of three partitions, each trimmed."""
    return cluster.tiered("orders", RECORDS, 3)[0]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds for which answers without records may wait, as they are decided."""
    waits: list[float] = []

    async def watched(reads: list[RemoteRead], seconds: float, failed_s: float) -> bool:
        waits.append(round(seconds, 3))
        return await wait_for_one(reads, seconds, failed_s)

    monkeypatch.setattr(fetches, "wait_for_one", watched)
    return waits


def whole(found: dict[int, list[int]], *partitions: int) -> bool:
    return all(found.get(each) == list(range(RECORDS)) for each in partitions)


def test_a_cold_partition_whose_store_never_answers_keeps_no_hot_one_waiting(
    cluster: TieredCluster, topic: str
) -> None:
    start = cluster.local_start(topic, 0)
    with running(cluster) as proxy, proxy.consumer((topic, 0, start), (topic, 1, 0), (topic, 2, 0)) as consumer:
        proxy.reader.before = held = Held()
        offsets: dict[int, list[int]] = {}
        until(lambda: offsets.get(0) == list(range(start, RECORDS)), lambda: received(consumer, offsets))
        cluster.produce(topic, RECORDS, RECORDS + 50)
        until(lambda: offsets[0] == list(range(start, RECORDS + 50)), lambda: received(consumer, offsets))
        assert offsets.keys() == {0}
        assert {fetch[:2] for fetch in proxy.reader.fetches} == {(1, 0), (2, 0)}
        held.set()
        until(lambda: whole(offsets, 1, 2), lambda: received(consumer, offsets))


@pytest.mark.parametrize("records", [1, 50])
def test_an_answer_with_records_of_the_brokers_own_never_waits_for_remote_ones(
    cluster: TieredCluster, topic: str, records: int
) -> None:
    """One record, as at the tail, or many: with one record an answer looks as if it were empty."""
    hot = cluster.topic(f"hot-{records}", records)
    with running(cluster, "proxy.remote_wait=1s") as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        for _ in range(3):  # the first begins the remote read
            client.sendall(fetch_of((hot, 0, 0), (topic, 1, 0), max_wait_ms=3_600_000))
            assert records_of(client)[hot, 0] > 0
        held.set()


def test_an_unreadable_store_is_asked_once_and_never_taken_for_the_end(cluster: TieredCluster, topic: str) -> None:
    more = {"enable_partition_eof": True, "fetch_wait_max_ms": 10}
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), **more) as consumer:
        proxy.reader.before = held = Held()
        offsets: dict[int, list[int]] = {}
        until(lambda: proxy.server.counts.not_yet >= 10, lambda: received(consumer, offsets))  # fails by an "end"
        assert len(proxy.reader.fetches) == 1
        held.set()
        until(lambda: whole(offsets, 1), lambda: received(consumer, offsets, []))


def test_an_answer_waits_as_long_as_its_client_for_remote_records_alone_and_shortly_beside_others(
    cluster: TieredCluster, topic: str, waits: list[float]
) -> None:
    """Records may arrive at the end of another partition of the same request. The client must get them soon."""
    empty = cluster.topic("nothing-yet", 0)
    with running(cluster, "proxy.remote_wait=100ms") as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        for max_wait_ms in (300, 5):
            client.sendall(fetch_of((topic, 1, 0), (topic, 2, 0), max_wait_ms=max_wait_ms))
            assert records_of(client) == {(topic, 1): 0, (topic, 2): 0}
            client.sendall(fetch_of((topic, 1, 0), (empty, 0, 0), max_wait_ms=max_wait_ms))
            assert records_of(client) == {(topic, 1): 0, (empty, 0): 0}
        held.set()
    assert waits == [0.3, 0.1, 0.005, 0.005]


def test_an_answer_waits_shortly_while_its_client_omits_a_partition_that_it_reads_from_the_broker(
    cluster: TieredCluster, topic: str, waits: list[float]
) -> None:
    """Clients omit it while its queue is full. They request it again only after this answer, perhaps with none left."""
    start = cluster.local_start(topic, 0)
    with running(cluster, "proxy.remote_wait=100ms") as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        for hot in ((topic, 0, start), None, (topic, 0, 0)):  # the last: the client went back to remote records of it
            client.sendall(fetch_of(*([hot] if hot else []), (topic, 1, 0), max_wait_ms=300))
            records_of(client)
        held.set()
    assert waits == [0.1, 0.3]


def test_a_read_that_failed_hurries_no_answer(cluster: TieredCluster, topic: str) -> None:
    """Otherwise it would come back at once, and be asked for again at once."""
    held = Held()

    def before(topic: str, partition: int, offset: int) -> None:
        if partition == 1:
            raise StorageUnavailable("the store does not answer")
        held(topic, partition, offset)

    with running(cluster) as proxy, proxy.connected() as client:
        proxy.reader.before = before
        client.sendall(fetch_of((topic, 1, 0), (topic, 2, 0), max_wait_ms=3_600_000))
        until(lambda: proxy.said, lambda: None)
        held.set()
        sizes = records_of(client)
        assert sizes[topic, 1] == 0 < sizes[topic, 2]


def test_a_read_that_failed_holds_no_memory(
    cluster: TieredCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still remembered, so that the store is not asked again at once."""
    monkeypatch.setattr(remote_reads, "AGAIN_S", 3600.0)

    def away(topic: str, partition: int, offset: int) -> None:
        raise StorageUnavailable("the store does not answer")

    with running(cluster) as proxy, proxy.connected() as client:
        proxy.reader.before = away
        client.sendall(fetch_of((topic, 1, 0), max_wait_ms=100))
        assert records_of(client) == {(topic, 1): 0}
        until(lambda: proxy.said, lambda: None)
        assert proxy.server.budget.used == 0


def test_the_client_waits_as_long_if_all_reads_failed(cluster: TieredCluster, topic: str) -> None:
    async def waited() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await wait_for_one([failed], 3600.0, 0.05)
        return loop.time() - began

    failed: Any = type("Failed", (), {"ready": True, "error": StorageUnavailable("away")})()
    assert asyncio.run(waited()) >= 0.05


def test_remote_records_get_into_answers_that_the_broker_could_fill_alone_whatever_the_memory(
    cluster: TieredCluster, topic: str
) -> None:
    """Megabytes of a hot partition do not fit into this proxy's memory; they are asked for in smaller answers."""
    hot = cluster.topic("hot", 12_000, 1, **{"internal.segment.bytes": str(1 << 30)})  # one answer: 2.4 MB and more
    with running(cluster, "proxy.memory=1MiB") as proxy, proxy.connected() as client:

        def asked() -> None:
            client.sendall(fetch_of((hot, 0, 0), (topic, 1, 0), max_wait_ms=100, max_bytes=4 << 20))
            records_of(client)

        until(lambda: proxy.server.counts.filled > 0, asked)


def test_records_read_ahead_are_freed_when_the_client_reaches_local_ones(cluster: TieredCluster, topic: str) -> None:
    start = cluster.local_start(topic, 1)
    with running(cluster) as proxy, proxy.connected() as client:
        client.sendall(fetch_of((topic, 1, 0), max_wait_ms=10_000, max_bytes=1))
        assert records_of(client)[topic, 1] > 0
        until(lambda: len(proxy.reader.fetches) == 2 and proxy.server.budget.used > 1, lambda: None)
        client.sendall(fetch_of((topic, 1, start), max_wait_ms=100))
        assert records_of(client)[topic, 1] > 0
        assert proxy.server.budget.used == 0


def test_a_store_that_is_away_is_waited_for_by_the_client(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0)) as consumer:
        tries = 0

        def away(topic: str, partition: int, offset: int) -> None:
            nonlocal tries
            tries += 1
            if tries <= 2 and offset < RECORDS // 2:
                raise StorageUnavailable("the store does not answer")

        proxy.reader.before = away
        offsets: dict[int, list[int]] = {}
        until(lambda: whole(offsets, 1), lambda: received(consumer, offsets))  # no error reaches the application
        assert proxy.server.counts.errors[56] >= 1
        assert [event for event, _ in proxy.said].count("a remote read failed") == 2


def test_the_application_gets_damage_as_an_error_and_skips_nothing(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), auto_offset_reset="earliest") as consumer:

        def damaged(topic: str, partition: int, offset: int) -> None:
            raise CorruptData("the object is not what it must be", offset=offset)

        proxy.reader.before = damaged
        offsets: dict[int, list[int]] = {}
        errors: list[KafkaError] = []
        until(lambda: proxy.server.counts.errors[2] >= 2, lambda: received(consumer, offsets, errors))
        assert offsets == {}
        proxy.reader.before = lambda topic, partition, offset: None
        until(lambda: whole(offsets, 1), lambda: received(consumer, offsets, errors))


@pytest.mark.parametrize("error", [UnknownTopic("the proxy may not see it"), RuntimeError("a bug")])
def test_an_error_of_the_proxy_itself_is_never_an_end_of_the_log(
    cluster: TieredCluster, topic: str, error: Exception
) -> None:
    """Otherwise the consumer would skip to the local start, by ``auto.offset.reset``."""
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), auto_offset_reset="earliest") as consumer:

        def fail(topic: str, partition: int, offset: int) -> None:
            if proxy.server.counts.errors[56] < 2:
                raise error

        proxy.reader.before = fail
        offsets: dict[int, list[int]] = {}
        until(lambda: whole(offsets, 1), lambda: received(consumer, offsets))


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
        consumers = [
            opened.enter_context(proxy.consumer(*[(topic, partition, first) for partition in (1, 2)]))
            for first in range(5)  # reads of the same offset would be shared
        ]
        offsets: list[dict[int, list[int]]] = [{} for _ in consumers]

        def step() -> None:
            for consumer, into in zip(consumers, offsets, strict=True):
                received(consumer, into)

        until(lambda: proxy.server.budget.refused > 0, step)
        held.set()
        expected = [{partition: list(range(first, RECORDS)) for partition in (1, 2)} for first in range(5)]
        until(lambda: offsets == expected, step)


@contextmanager
def reading_all_it_may(proxy: RunningProxy, topic: str) -> Iterator[None]:
    """Let three clients ask for 1 MiB of three partitions each; the store answers none of them until the end."""
    proxy.reader.before = held = Held()
    with ExitStack() as opened:
        for first in range(3):  # reads of the same offset would be shared
            client = opened.enter_context(proxy.connected())
            client.sendall(fetch_of(*[(topic, partition, first) for partition in range(3)], max_wait_ms=100))
            assert records_of(client) == {(topic, partition): 0 for partition in range(3)}
        yield
        held.set()


def test_six_remote_reads_fit_into_the_memory_whatever_each_of_them_asks_for(
    cluster: TieredCluster, topic: str
) -> None:
    with running(cluster, "proxy.memory=1MiB") as proxy, reading_all_it_may(proxy, topic):
        until(lambda: len(proxy.reader.fetches) == 6, lambda: None)
        assert {size for _, _, size in proxy.reader.fetches} == {128 << 10}


def test_a_large_request_passes_while_remote_reads_hold_all_the_memory_they_may(
    cluster: TieredCluster, topic: str
) -> None:
    with running(cluster, "proxy.memory=4MiB") as proxy, reading_all_it_may(proxy, topic), proxy.connected() as client:
        assert proxy.server.budget.refused > 0
        request = fetch_of(*[(topic, 1_000 + number, 0) for number in range(12_000)], max_wait_ms=100)
        assert FREE < len(request) < 4 * FREE
        client.sendall(request)
        assert len(records_of(client)) == 12_000


def test_the_limit_of_a_partition_is_what_is_read_at_a_time(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.consumer((topic, 1, 0), max_partition_fetch_bytes=5_000) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: whole(offsets, 1), lambda: received(consumer, offsets))
        assert {size for _, _, size in proxy.reader.fetches} == {5_000}
        assert len(proxy.reader.fetches) > 3


def test_an_answer_has_one_whole_batch_then_as_many_as_its_limit_allows_and_the_others_are_empty(
    cluster: TieredCluster, topic: str
) -> None:
    """Each partition may have one byte, so it gets one batch."""
    places = [(topic, partition, 0) for partition in range(3)]
    with running(cluster) as proxy:
        level = Isolation.READ_UNCOMMITTED
        read = partial(proxy.reader.fetch, max_bytes=1, isolation=level, tier=Tier.AUTO)
        sizes = [len(read(*place).data) for place in places]

        def given(of_all: int) -> list[int]:
            """Return the bytes of each partition in an answer for which all of them were at hand."""
            with proxy.connected() as client:
                proxy.reader.before = held = Held()
                client.sendall(fetch_of(*places, max_wait_ms=0, max_bytes=1))
                assert set(records_of(client).values()) == {0}
                held.set()
                until(lambda: proxy.server.budget.used == sum(sizes), lambda: None)
                client.sendall(fetch_of(*places, max_wait_ms=100, max_bytes=1, of_all=of_all))
                size_by_partition = list(records_of(client).values())
            until(lambda: proxy.server.counts.connections == 0, lambda: None)
            return size_by_partition

        assert given(1) == [sizes[0], 0, 0]
        assert given(sum(sizes[:2]) - 1) == [sizes[0], 0, 0]
        assert given(sum(sizes[:2])) == [*sizes[:2], 0]
        assert given(sum(sizes)) == sizes


def test_records_read_ahead_for_a_client_that_left_are_freed(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy:
        with proxy.connected() as client:
            client.sendall(fetch_of((topic, 1, 0), max_wait_ms=10_000, max_bytes=1))
            assert records_of(client)[topic, 1] > 0
            until(lambda: len(proxy.reader.fetches) == 2 and proxy.server.budget.used > 1, lambda: None)
        until(lambda: proxy.server.counts.connections == 0, lambda: None)
        assert proxy.server.budget.used == 0


def test_a_connection_that_ended_within_a_frame_is_gone_before_python_looks_for_cycles(
    cluster: TieredCluster, topic: str
) -> None:
    """It ends with all that it was reading, which no longer counts in any account."""
    with running(cluster) as proxy:
        gc.collect()
        gc.disable()
        try:
            with proxy.connected() as client:
                client.sendall(fetch_of((topic, 1, 0), max_wait_ms=100)[:-1])
                until(lambda: proxy.server.counts.connections == 1, lambda: None)
            until(lambda: proxy.server.counts.connections == 0, lambda: None)
            until(lambda: not any(isinstance(each, Peer) for each in gc.get_objects()), lambda: None)
        finally:
            gc.enable()

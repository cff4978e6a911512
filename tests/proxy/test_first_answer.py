"""The first answer of a remote read: its records, or the true bounds of both tiers; never an invented offset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.consumer.tiered_cluster import TieredCluster, until
from tests.proxy.bare_answers import answers_of, send_fetch
from tests.proxy.running import Held, RunningProxy, running
from tierstate.proxy import known_bounds
from tierstate.proxy.apis import APIS, Key
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import BrokerUnavailable, StorageUnavailable
from tierstate.state.ids import TopicId

pytestmark = pytest.mark.kafka
RECORDS = 400
VERSION = 11
LONG_MS = 60_000
OUT_OF_RANGE = 1
STORAGE_ERROR = 56


@pytest.fixture(scope="module")
def cluster(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> TieredCluster:
    return TieredCluster(kafka, tmp_path_factory.mktemp("first-answer"), "_tier-state-first-answer")


@pytest.fixture(scope="module")
def topic(cluster: TieredCluster) -> str:
    """Return a topic of three partitions, each trimmed."""
    return cluster.tiered("orders", RECORDS, 3)[0]


@contextmanager
def patient(cluster: TieredCluster, topic: str) -> Iterator[RunningProxy]:
    """Run a proxy that knows the topic. It waits a second for the bounds, because tests share a CPU."""
    with running(cluster, "proxy.remote_wait=1s") as proxy:
        proxy.reader.bounds(topic, 1)
        yield proxy


def topic_ids(proxy: RunningProxy) -> dict[str, TopicId]:
    return {name: topic_id for topic_id, name in proxy.reader.topic_names().items()}


@pytest.mark.parametrize("version", range(APIS[Key.FETCH].oldest, APIS[Key.FETCH].newest + 1))
def test_the_first_fetch_of_a_connection_gets_remote_records_in_its_first_answer(
    cluster: TieredCluster, topic: str, version: int
) -> None:
    """kafka-go takes an empty answer below the high watermark for a broken connection, and connects again."""
    with running(cluster) as proxy, proxy.connected() as client:
        ids = topic_ids(proxy)
        send_fetch(client, version, {(topic, 1): 0}, LONG_MS, ids)
        answer = answers_of(client, version, ids)[topic, 1]
        assert answer.offsets[0] == 0
        assert (answer.error, answer.high_watermark) == (0, RECORDS)
        assert answer.log_start == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [VERSION, APIS[Key.FETCH].newest])
@pytest.mark.parametrize("beside_hot", [False, True])
@pytest.mark.parametrize("offset", [-1, RECORDS + 1, 10**9])
def test_an_offset_that_no_tier_has_is_out_of_range_in_the_first_answer(
    cluster: TieredCluster, topic: str, offset: int, beside_hot: bool, version: int
) -> None:
    hot = {(topic, 0): cluster.local_start(topic, 0)} if beside_hot else {}
    with patient(cluster, topic) as proxy, proxy.connected() as client:
        ids = topic_ids(proxy)
        send_fetch(client, version, {**hot, (topic, 1): offset}, LONG_MS, ids)
        answers = answers_of(client, version, ids)
        assert (answers[topic, 1].error, answers[topic, 1].offsets) == (OUT_OF_RANGE, ())
        assert all(answers[place].offsets for place in hot)


@pytest.mark.parametrize("beside_hot", [False, True])
def test_an_answer_without_records_has_the_true_bounds(cluster: TieredCluster, topic: str, beside_hot: bool) -> None:
    hot = {(topic, 0): cluster.local_start(topic, 0)} if beside_hot else {}
    with patient(cluster, topic) as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        send_fetch(client, VERSION, {**hot, (topic, 1): 0}, max_wait_ms=100)
        answers = answers_of(client, VERSION)
        held.set()
        cold = answers[topic, 1]
        assert (cold.error, cold.high_watermark, cold.log_start, cold.offsets) == (0, RECORDS, 0, ())
        assert all(answers[place].offsets for place in hot)


def test_an_answer_from_the_broker_has_the_log_start_of_both_tiers(cluster: TieredCluster, topic: str) -> None:
    with patient(cluster, topic) as proxy, proxy.connected() as client:
        for offset in (cluster.local_start(topic, 1), RECORDS):  # with records, and without
            send_fetch(client, VERSION, {(topic, 1): offset}, max_wait_ms=10)
            answer = answers_of(client, VERSION)[topic, 1]
            assert (answer.error, answer.high_watermark, answer.log_start) == (0, RECORDS, 0)


def test_connections_that_want_the_same_offset_share_one_read(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy, proxy.connected() as first, proxy.connected() as second:
        proxy.reader.before = held = Held()
        for client in (first, second):
            send_fetch(client, VERSION, {(topic, 1): 0}, LONG_MS, max_bytes=1)
        until(lambda: proxy.server.counts.connections == 2 and proxy.reader.fetches, lambda: None)
        held.set()
        answers = [answers_of(client, VERSION)[topic, 1] for client in (first, second)]
        assert answers[0] == answers[1]
        assert answers[0].offsets[0] == 0
        assert [offset for _, offset, _ in proxy.reader.fetches].count(0) == 1
        until(lambda: proxy.server.counts.filled == 2, lambda: None)


def test_a_client_that_connects_again_finds_the_read_that_it_began(cluster: TieredCluster, topic: str) -> None:
    with running(cluster) as proxy:
        proxy.reader.before = held = Held()
        with proxy.connected() as client:
            send_fetch(client, VERSION, {(topic, 1): 0}, LONG_MS)
            until(lambda: proxy.reader.fetches, lambda: None)
        until(lambda: proxy.server.counts.connections == 0, lambda: None)
        with proxy.connected() as client:
            send_fetch(client, VERSION, {(topic, 1): 0}, max_wait_ms=50)
            assert answers_of(client, VERSION)[topic, 1].offsets == ()
            assert len(proxy.reader.fetches) == 1
            held.set()
            send_fetch(client, VERSION, {(topic, 1): 0}, LONG_MS)
            assert answers_of(client, VERSION)[topic, 1].offsets[0] == 0
        until(lambda: proxy.server.counts.connections == 0 and proxy.server.budget.used == 0, lambda: None)


def test_a_client_that_connects_again_gets_the_error_of_the_read_that_it_began(
    cluster: TieredCluster, topic: str
) -> None:
    def away(topic: str, partition: int, offset: int) -> None:
        raise StorageUnavailable("the store does not answer")

    with running(cluster) as proxy:
        proxy.reader.before = away
        for _ in range(2):
            with proxy.connected() as client:
                send_fetch(client, VERSION, {(topic, 1): 0}, max_wait_ms=50)
                assert answers_of(client, VERSION)[topic, 1].error == STORAGE_ERROR
        assert len(proxy.reader.fetches) == 1


def test_a_client_for_which_there_is_no_memory_waits_for_it(cluster: TieredCluster, topic: str) -> None:
    """An empty answer would make kafka-go connect again, ten times a second."""
    with running(cluster, "proxy.memory=1MiB") as proxy, ExitStack() as opened:
        proxy.reader.before = held = Held()
        clients = [opened.enter_context(proxy.connected()) for _ in range(7)]
        for offset, client in enumerate(clients):  # each read takes an eighth of the memory; a quarter is for frames
            send_fetch(client, VERSION, {(topic, 1): offset}, LONG_MS)
        until(lambda: proxy.server.budget.refused > 2, lambda: None)
        assert len(proxy.reader.fetches) == 6
        held.set()
        for client in clients:
            assert answers_of(client, VERSION)[topic, 1].offsets[0] == 0
        assert proxy.server.counts.not_yet == 0


@pytest.mark.parametrize("beside_hot", [False, True])
def test_unknown_bounds_are_an_error_that_clients_retry_and_keep_no_hot_partition_waiting(
    cluster: TieredCluster, topic: str, beside_hot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = {(topic, 0): cluster.local_start(topic, 0)} if beside_hot else {}
    held = Held()

    def bounds(topic: str, partition: int, max_age: float) -> None:
        held(topic, partition, 0)
        raise BrokerUnavailable("the leader does not answer")

    with running(cluster) as proxy, proxy.connected() as client:
        monkeypatch.setattr(proxy.reader, "bounds", bounds, raising=False)
        send_fetch(client, VERSION, {**hot, (topic, 1): 0}, LONG_MS)
        answers = answers_of(client, VERSION)
        held.set()
        cold = answers[topic, 1]
        assert (cold.error, cold.high_watermark, cold.log_start, cold.offsets) == (STORAGE_ERROR, -1, -1, ())
        assert all(answers[place].offsets for place in hot)


def test_bounds_that_have_grown_old_keep_no_hot_partition_waiting(
    cluster: TieredCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {(topic, 0): cluster.local_start(topic, 0), (topic, 1): 0}
    with patient(cluster, topic) as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        for _ in range(2):
            send_fetch(client, VERSION, places, LONG_MS)
            answers = answers_of(client, VERSION)
            assert answers[topic, 0].offsets
            assert (answers[topic, 1].error, answers[topic, 1].high_watermark) == (0, RECORDS)
            monkeypatch.setattr(known_bounds, "AGE_S", 0.0)
            monkeypatch.setattr(proxy.reader, "bounds", lambda *_: held(topic, 1, 0), raising=False)
        held.set()


def test_a_topic_without_a_known_name_is_never_read_from_the_remote_tier(
    cluster: TieredCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy may not DESCRIBE it, so it cannot know its records. The broker's own error would skip them."""
    version = APIS[Key.FETCH].newest
    with running(cluster) as proxy, proxy.connected() as client:
        ids = topic_ids(proxy)
        monkeypatch.setattr(proxy.reader, "topic_names", dict, raising=False)
        send_fetch(client, version, {(topic, 1): 0}, 50, ids)
        answer = answers_of(client, version, ids)[topic, 1]
        assert (answer.error, answer.offsets) == (STORAGE_ERROR, ())
        assert proxy.reader.fetches == []


def test_records_of_an_earlier_topic_of_the_same_name_are_not_given(
    cluster: TieredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read of the earlier topic is still running when the topic is deleted and created again."""
    name = cluster.tiered("created-again")[0]
    with running(cluster) as proxy, proxy.connected() as client:
        proxy.reader.before = held = Held()
        send_fetch(client, VERSION, {(name, 0): 0}, max_wait_ms=50)
        assert answers_of(client, VERSION)[name, 0].offsets == ()
        monkeypatch.setattr(known_bounds, "AGE_S", 0.0)
        identity = proxy.reader.topic(name)
        other = type(identity)(name, TopicId("AAAAAAAAAAAAAAAAAAAAAA"), 1)
        monkeypatch.setattr(proxy.reader, "topic", lambda topic: other, raising=False)
        held.set()
        for _ in range(3):
            send_fetch(client, VERSION, {(name, 0): 0}, max_wait_ms=50)
            answer = answers_of(client, VERSION)[name, 0]
            assert (answer.error, answer.offsets) == (0, ())

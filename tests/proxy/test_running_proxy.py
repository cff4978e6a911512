"""`tierstate proxy` as a process: its output, its readers, its end."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.consumer.tiered_cluster import until
from tests.proxy.running import received
from tests.scenarios.house import House, Running, eventually, get, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka
RECORDS = 1_500


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A world with a topic ``orders``, copied and trimmed."""
    with opened_house(kafka, tmp_path_factory.mktemp("proxy") / "house", "running-proxy") as house:
        topic = house.create("orders", internal_segment_bytes="40000")
        house.append(topic, RECORDS)
        with house.agent():
            eventually(lambda: len(house.logs(topic)) == 1)
        yield house


@pytest.fixture(scope="module")
def topic(house: House) -> str:
    return f"{house.name}-orders"


@pytest.fixture
def proxy(house: House, tmp_path: Path) -> Iterator[tuple[Running, str]]:
    """A proxy with an access log in the test's folder."""
    running, bootstrap = house.proxy("--set", f"proxy.access_log={tmp_path / 'access.log'}")
    yield running, bootstrap
    running.stop()


@pytest.fixture(scope="module")
def standing(house: House) -> Iterator[tuple[Running, str]]:
    """A proxy that no test stops."""
    running, bootstrap = house.proxy()
    yield running, bootstrap
    running.stop()


@contextmanager
def consumer_at(bootstrap: str, topic: str, **more: int) -> Iterator[Consumer]:
    """Yield Kafka's own consumer at offset 0; it commits nothing, so it can be closed without a broker that answers."""
    config = {"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "error"}
    consumer = Consumer(config | {"enable.auto.commit": False} | more)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        yield consumer
    finally:
        consumer.close()


@pytest.mark.essential
def test_the_digest_that_kafkas_own_client_makes_through_it_is_that_of_both_tiers(
    house: House, topic: str, standing: tuple[Running, str]
) -> None:
    """`--via broker` is a plain consumer from the earliest offset on."""
    both = house.json("digest", f"{topic}:0", "--via", "reader")
    alone = house.json("digest", f"{topic}:0", "--via", "broker")
    through = house.json("digest", f"{topic}:0", "--via", "broker", "--bootstrap-server", standing[1])
    assert through["digest"] == both["digest"] != alone["digest"]
    assert through["records"] == RECORDS


@pytest.mark.essential
def test_no_answer_names_a_broker_itself(kafka: KafkaSandbox, standing: tuple[Running, str]) -> None:
    admin = AdminClient({"bootstrap.servers": standing[1]})
    own = {("127.0.0.1", broker.address.port) for broker in kafka.brokers}
    cluster = admin.describe_cluster(request_timeout=20).result(30)
    named = {(node.host, node.port) for node in cluster.nodes}
    named |= {(each.host, each.port) for each in admin.list_topics(timeout=60).brokers.values()}
    assert named
    assert not named & own


def test_the_access_log_has_user_topic_and_tier_of_each_read(
    topic: str, proxy: tuple[Running, str], tmp_path: Path
) -> None:
    with consumer_at(proxy[1], topic) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: len(offsets.get(0, [])) == RECORDS, lambda: received(consumer, offsets))
    lines = [json.loads(line) for line in eventually((tmp_path / "access.log").read_text).splitlines()]
    seen = {line["tier"]: line for line in lines if line["topic"] == topic}
    assert seen.keys() == {"local", "remote"}
    assert seen["remote"]["first_offset"] == 0
    assert seen["remote"]["last_fetch_offset"] < seen["local"]["first_offset"]
    assert seen["remote"]["bytes"] > seen["local"]["bytes"] > 0
    assert {(line["user"], line["partition"]) for line in seen.values()} == {("", 0)}


@pytest.mark.essential
def test_it_is_ready_and_counts_what_it_filled(topic: str, house: House, standing: tuple[Running, str]) -> None:
    management = json.loads(standing[0].out.read_text().splitlines()[0])["management"]
    eventually(lambda: get(f"http://{management}/readyz")[0] == 200)
    house.json("digest", topic, "--via", "broker", "--bootstrap-server", standing[1])
    page = get(f"http://{management}/metrics")[1].decode()
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(values["tierstate_proxy_filled_bytes_total"]) > float(values["tierstate_proxy_passed_bytes_total"]) > 0
    assert float(values["tierstate_proxy_filled_partitions_total"]) > 0
    assert float(values["tierstate_proxy_passed_partitions_total"]) > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_a_signal_though_clients_are_connected(
    topic: str, proxy: tuple[Running, str], number: signal.Signals
) -> None:
    with consumer_at(proxy[1], topic) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: offsets, lambda: received(consumer, offsets))
        assert proxy[0].stop(number) == (0 if number is signal.SIGTERM else 130)


def test_clients_go_on_when_a_proxy_is_started_again_where_it_was(house: House, topic: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listen = ("--listen", f"127.0.0.1:{port}")
    first, bootstrap = house.proxy(*listen)
    with consumer_at(bootstrap, topic, **{"max.partition.fetch.bytes": 10_000}) as consumer:
        offsets: dict[int, list[int]] = {}
        until(lambda: offsets, lambda: received(consumer, offsets))
        assert first.stop() == 0
        second, _ = house.proxy(*listen)
        until(lambda: offsets[0] == list(range(RECORDS)), lambda: received(consumer, offsets, []))
        assert second.stop() == 0


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["proxy.listen=0.0.0.0:0"], "proxy.advertised"),
        (["proxy.tls.certificate=/nowhere.pem"], "certificate and key are needed together"),
        (["proxy.tls.certificate=/nowhere.pem", "proxy.tls.key=/nowhere.pem"], "proxy.tls"),
        (["proxy.access_log=/nowhere/access.log"], "proxy.access_log"),
    ],
)
def test_settings_it_cannot_keep_are_refused_by_name(house: House, sets: list[str], said: str) -> None:
    flags = [flag for each in sets for flag in ("--set", each)]
    done = house.run("proxy", *flags, code=2)
    assert said in done.stderr


def test_a_port_that_is_taken_is_named(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert where in house.run("proxy", "--listen", where, code=2).stderr


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("127.0.0.1:9192", "bootstrap.servers=127.0.0.1:9192, broker 1 at 9194"),
        ("0.0.0.0:9192", "cannot be run: proxy.advertised"),
        ("127.0.0.1:65534", "cannot be run: a broker would have port 65536"),
    ],
)
def test_check_shows_clients_addresses_and_never_prevents_an_agent(house: House, listen: str, said: str) -> None:
    rows = house.json("check", "--set", f"proxy.listen={listen}")
    (row,) = [each for each in rows if each["check"] == "proxy"]
    assert row["ok"]
    assert row["detail"].startswith(said)

"""Agents, gateways, proxies, commands and Python with bearer tokens that expire in seconds: docs/production.md."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.signed import SECRET, TokenEndpoint, by_token, lasting, signed_sandbox
from tests.scenarios.house import House, eventually, get, opened_house
from tierstate.consumer.connect import connect
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

RECORDS = 2_000
SESSION_MS = "5000"
LIFETIME_S = 8.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    with signed_sandbox(tmp_path_factory.mktemp("tokens"), oauthbearer_connections_max_reauth_ms=SESSION_MS) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with closing(TokenEndpoint(LIFETIME_S)) as opened:
        yield opened


@dataclass
class World:
    """``house`` logs in by tokens. ``properties``: its librdkafka properties."""

    house: House
    topic: str
    properties: dict[str, str]


@pytest.fixture
def world(kafka: KafkaSandbox, endpoint: TokenEndpoint, tmp_path: Path) -> Iterator[World]:
    endpoint.answer = None
    with opened_house(kafka, tmp_path / "house", f"tokens-{time.time_ns() % 1_000_000}") as house:
        topic = house.create("orders")
        house.append(topic, RECORDS)
        yield World(house, topic, log_in_by(house, endpoint.properties))


def log_in_by(house: House, properties: dict[str, str]) -> dict[str, str]:
    """Write these properties, with the secret in a file, into the house's settings. Return all of `[kafka]`."""
    before, kafka = house.kafka_settings(house.kafka.client_config), by_token(house.kafka, properties)
    lines = {name: f'"{value}"' for name, value in kafka.items()}
    if "sasl.oauthbearer.client.secret" in kafka:
        file = house.folder / "client-secret"
        file.write_text(SECRET)
        lines["sasl.oauthbearer.client.secret"] = f'{{ file = "{file}" }}'
    after = "".join(f'"{name}" = {value}\n' for name, value in lines.items())
    text = house.config.read_text()
    assert before in text
    house.config.write_text(text.replace(before, after))
    return kafka


def test_an_agent_copies_once_and_consume_reads(world: World) -> None:
    house = world.house
    house.run("agent", "--once")
    assert house.manifests(world.topic)
    assert len(house.logs(world.topic)) == 1, "the copied segments were trimmed"
    assert house.holds(world.topic, RECORDS)
    shown = house.run("config").stdout
    assert SECRET not in shown
    assert "sasl.oauthbearer.client.secret" in shown


def test_services_outlive_many_tokens_and_sessions(world: World, endpoint: TokenEndpoint) -> None:
    house, topic = world.house, world.topic
    before = len(endpoint.forms)
    with house.agent() as agent:
        eventually(lambda: len(house.logs(topic)) == 1)
        gateway, url = house.gateway()
        began = time.monotonic()
        while time.monotonic() - began < 3 * LIFETIME_S:
            for offset in (0, RECORDS - 5):
                status, _ = get(
                    f"{url}/v1/topics/{topic}/partitions/0/records?offset={offset}",
                    "application/vnd.kafka.binary.v2+json",
                )
                assert status == 200
            time.sleep(0.2)
        house.append(topic, RECORDS, first=RECORDS)
        eventually(lambda: len(house.logs(topic)) == 1)
        for running in (agent, gateway):
            assert running.events("login refused") == []
            assert SECRET not in running.err.read_text()
    assert len(endpoint.forms) - before >= 6, "agent and gateway renewed their tokens"


def test_python_and_the_proxy_read_both_tiers(world: World, endpoint: TokenEndpoint) -> None:
    house, topic = world.house, world.topic
    house.run("agent", "--once")
    options = {"tierstate.store.url": house.store.as_uri(), "tierstate.tier_state.topic": house.tier_topic}
    read = {"group.id": "tokens", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    with closing(TieredConsumer({**world.properties, **read, **options})) as consumer:
        assert offsets(consumer, topic) == list(range(RECORDS))
    bootstrap, settings = world.properties["bootstrap.servers"], {"tier_state.topic": house.tier_topic}
    others = {name: value for name, value in world.properties.items() if name != "bootstrap.servers"}
    with connect(bootstrap, house.store.as_uri(), kafka=others, settings=settings) as log:
        assert sum(batch.num_rows for batch in log.topic(topic).read()) == RECORDS
    _, address = house.proxy()
    theirs = {**house.kafka.client_config, "bootstrap.servers": address, "security.protocol": "sasl_plaintext"}
    with closing(Consumer(theirs | read)) as plain:
        assert offsets(plain, topic) == list(range(RECORDS))


def offsets(consumer: Consumer, topic: str) -> list[int]:
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            found.append(message.offset())
    return found


def test_commands_read_the_file_that_a_sidecar_renews(kafka: KafkaSandbox, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with opened_house(kafka, tmp_path / "house", "sidecar") as house:
        topic = house.create("orders")
        house.append(topic, RECORDS)
        log_in_by(house, {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": token.as_uri()})
        token.write_text(lasting(60))
        house.run("agent", "--once")
        assert house.holds(topic, RECORDS)
        token.write_text(lasting(-1))
        done = house.run("describe", topic, code=5)
        assert f"has expired. origin={token.as_uri()}" in done.stderr


def test_a_refused_token_endpoint_is_named(world: World, endpoint: TokenEndpoint) -> None:
    endpoint.answer = 401, {"error": "invalid_client"}
    done = world.house.run("describe", world.topic, code=5)
    assert f"endpoint={endpoint.url} client=tierstate-agents answer=401 invalid_client" in done.stderr
    assert SECRET not in done.stdout + done.stderr

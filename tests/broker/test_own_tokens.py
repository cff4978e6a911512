"""tierstate's own logins by bearer tokens, at a real broker that checks signatures and ends sessions."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.guarded import PASSWORDS, unsigned_token
from tests.broker.signed import ANOTHERS, OURS, TokenEndpoint, by_token, lasting, signed_sandbox
from tests.leader.real import eventually
from tests.topics import create
from tierstate.app.opening.split_reads import access_by
from tierstate.broker.answers import FetchSpec
from tierstate.broker.callers import Callers
from tierstate.broker.client_config import admin_config
from tierstate.broker.kafka_access import KafkaAccess
from tierstate.broker.live_client import LiveClient
from tierstate.broker.open import open_broker
from tierstate.broker.plain_reads import PlainConsumer
from tierstate.broker.sasl import Login
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic, open_tier_topic
from tierstate.consumer.tiered_consumer import TieredConsumer
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.settings_load import settings_from
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.spark.kafka_properties import kafka_properties
from tierstate.state.errors import AccessDenied, BrokerUnavailable, UnknownOutcome
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka

SESSION_S = 4
"""The broker ends each session after so many seconds, also of a token that lives longer."""
ONE = BrokerId(1)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    ends = {"oauthbearer_connections_max_reauth_ms": str(SESSION_S * 1000)}
    with signed_sandbox(tmp_path_factory.mktemp("own"), **ends) as opened:
        create(AdminClient(opened.client_config), NewTopic("orders", 1, 1))
        yield opened


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with closing(TokenEndpoint()) as opened:
        yield opened


def tier_topic(kafka: KafkaAccess, name: str) -> KafkaTierTopic:
    spec = TierTopicSpec(name, 1, 1)
    create_tier_topic(kafka, spec, TimestampMs(1_700_000_000_000))
    return open_tier_topic(kafka, spec)


def test_one_token_serves_every_kind_of_connection(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    kafka = KafkaAccess(by_token(sandbox, endpoint.properties))
    with open_broker(kafka) as broker, closing(tier_topic(kafka, "_tiers-kinds")) as topic:
        assert broker.control.config("orders").cleanup_policy == {"delete"}
        assert broker.control.bounds("orders", 0).high_watermark == 0
        topic.append(0, "agent/1", b"fact")
        with closing(topic.reader({0: topic.end(0)})) as reader:
            reader.poll(0.1)
        with closing(PlainConsumer(kafka, Isolation.READ_COMMITTED, SystemClock())) as consumer:
            assert consumer.partitions("orders") == [0]
        assert Callers(kafka, SystemClock()).groups(None, "orders", [0]).why_incomplete() is None
    assert len(endpoint.forms) == 1


def test_sessions_end_and_nothing_is_lost(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = 6
    kafka = KafkaAccess(by_token(sandbox, endpoint.properties))
    spec = FetchSpec("orders", 0, Offset(0), 1000, Isolation.READ_UNCOMMITTED)
    with open_broker(kafka) as broker, closing(tier_topic(kafka, "_tiers-ends")) as topic:
        began, positions = time.monotonic(), list[int]()
        while time.monotonic() - began < 4 * SESSION_S:
            assert broker.raw.fetch(ONE, spec).code == 0
            assert broker.control.config("orders").cleanup_policy == {"delete"}
            positions.append(topic.append(0, f"agent/{len(positions)}", b"fact"))
            time.sleep(0.05)
        assert positions == list(range(positions[0], positions[0] + len(positions)))
        assert kafka.logins.count == 0
    assert 3 <= len(endpoint.forms) <= 8


def test_a_file_is_replaced_while_clients_run(sandbox: KafkaSandbox, tmp_path: Path) -> None:
    file, stop = tmp_path / "token", threading.Event()

    def write() -> None:
        (tmp_path / "next").write_text(lasting(6))
        (tmp_path / "next").rename(file)

    def renew() -> None:
        while not stop.wait(3):
            write()

    write()
    thread = threading.Thread(target=renew)
    thread.start()
    properties = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    kafka = KafkaAccess(by_token(sandbox, properties))
    try:
        with open_broker(kafka) as broker, closing(tier_topic(kafka, "_tiers-file")) as topic:
            began = time.monotonic()
            while time.monotonic() - began < 14:
                broker.raw.metadata()
                topic.append(0, "agent/1", b"fact")
                time.sleep(0.05)
    finally:
        stop.set()
        thread.join()
    time.sleep(6)
    with open_broker(kafka) as broker, pytest.raises(AccessDenied, match=rf"has expired\. origin={file.as_uri()}"):
        broker.raw.metadata()


def test_a_refused_endpoint_is_named_at_every_client(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    wrong = by_token(sandbox, endpoint.properties | {"sasl.oauthbearer.client.secret": "wrong"})
    named = rf"endpoint={endpoint.url} client=tierstate-agents answer=401 invalid_client"
    with open_broker(wrong) as broker:
        with pytest.raises(AccessDenied, match=named):
            broker.raw.metadata()
        with pytest.raises(AccessDenied, match=named):
            LiveClient(wrong, AdminClient, admin_config).now()
    with pytest.raises(AccessDenied, match=named):
        TieredConsumer({**wrong, "group.id": "g", "tiered.mode": "kafka_only"})


def test_an_endpoint_that_is_away_is_named_and_nothing_was_appended(
    sandbox: KafkaSandbox, endpoint: TokenEndpoint
) -> None:
    kafka = KafkaAccess(by_token(sandbox, endpoint.properties))
    with closing(tier_topic(kafka, "_tiers-away")) as topic:
        topic_id, end = topic.topic_id, topic.end(0)
    endpoint.answer = 503, "later"
    kafka = KafkaAccess(by_token(sandbox, endpoint.properties))
    with (
        closing(KafkaTierTopic(kafka, "_tiers-away", topic_id, 1)) as topic,
        pytest.raises(UnknownOutcome, match=rf"append was not sent\. .*endpoint={endpoint.url} .*503"),
    ):
        topic.append(0, "agent/1", b"fact")
    with open_broker(kafka) as broker, pytest.raises(BrokerUnavailable, match=rf"endpoint={endpoint.url} .*503"):
        broker.control.cluster()
    endpoint.answer = None
    time.sleep(1)
    with open_broker(kafka) as broker:
        assert broker.control.cluster().cluster_id
    with closing(KafkaTierTopic(kafka, "_tiers-away", topic_id, 1)) as topic:
        assert topic.end(0) == end


def test_clients_recover_from_a_token_that_the_broker_refused(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    """librdkafka alone would use the refused token for 48 minutes."""
    kafka = KafkaAccess(by_token(sandbox, endpoint.properties))
    endpoint.key = ANOTHERS
    admin = LiveClient(kafka, AdminClient, admin_config)
    with open_broker(kafka) as broker:
        assert admin.now() is not None
        with pytest.raises(AccessDenied, match="user=tierstate-agents mechanism=OAUTHBEARER"):
            broker.raw.metadata()
        endpoint.key = OURS
        eventually(lambda: _answers(broker.raw.metadata))
        assert admin.now().list_topics(timeout=10).topics.keys() >= {"orders"}


def _answers(ask: Any) -> bool:
    try:
        ask()
    except AccessDenied:
        return False
    return True


def test_executors_of_spark_ask_for_their_own_token(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    options = {f"kafka.{name}": value for name, value in by_token(sandbox, endpoint.properties).items()}
    properties = {f"kafka.{name}": value for name, value in kafka_properties(options).items()}
    access = access_by(settings_from({**properties, "store.url": "file:///nowhere"}))
    sent = pickle.loads(pickle.dumps(access))
    with open_broker(sent.kafka) as broker:
        assert broker.raw.metadata(["orders"]).topics["orders"] is not None
    assert len(endpoint.forms) == 1


def test_kafkas_consumer_reads_by_our_token(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    endpoint.lifetime_s = 6
    config = by_token(sandbox, endpoint.properties) | {"group.id": "tokens", "auto.offset.reset": "earliest"}
    with closing(TieredConsumer({**config, "tiered.mode": "kafka_only"})) as consumer:
        began = time.monotonic()
        while time.monotonic() - began < 10:
            assert "orders" in consumer.list_topics(timeout=5).topics
            time.sleep(0.1)
    assert len(endpoint.forms) >= 2


def test_passwords_of_callers_are_no_bearer_tokens(sandbox: KafkaSandbox, endpoint: TokenEndpoint) -> None:
    callers = Callers(by_token(sandbox, endpoint.properties), SystemClock())
    assert callers.mechanism == "SCRAM-SHA-256"
    assert callers.rights(Login("PLAIN", "admin", PASSWORDS["admin"]), ["orders"])["orders"].read
    with pytest.raises(AccessDenied):
        callers.rights(Login("OAUTHBEARER", "", unsigned_token("admin")), ["orders"])

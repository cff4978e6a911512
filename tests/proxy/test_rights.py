"""A client that may not read a topic at the broker gets no byte of it through the proxy, of either tier."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourceType,
)

from tests.broker.guarded import PASSWORDS, allow, binding, bytes_a_second, denied, set_password
from tests.scenarios.bound_topics import copy_bound_topics
from tests.scenarios.house import House, eventually
from tierstate.broker.answers import FetchSpec, RawFetch
from tierstate.broker.callers import Callers
from tierstate.broker.raw import RawClient
from tierstate.log.batch import iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied, TierstateError
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka

FORBIDDEN, OUT_OF_RANGE, POLICY_VIOLATION = 29, 1, 44
READ, DESCRIBE, WRITE, DENY = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE, AclPermissionType.DENY
TOPIC = ResourceType.TOPIC
BINDINGS: dict[str, tuple[list[tuple[AclOperation, AclPermissionType]], bool]] = {
    "may-read": ([(READ, AclPermissionType.ALLOW)], True),
    "may-describe": ([(DESCRIBE, AclPermissionType.ALLOW)], False),
    "may-write": ([(WRITE, AclPermissionType.ALLOW)], False),
    "is-denied": ([(READ, AclPermissionType.ALLOW), (READ, DENY)], False),
    "has-none": ([], False),
    "by-prefix": ([], True),
}
"""The bindings of ``guest`` by name, and whether they let it read."""


@dataclass
class Proxied:
    """``untiered`` are topics in addition to the tiered ones, bound in the same ways."""

    house: House
    bootstrap: str
    authority: Path
    log: Path
    untiered: list[str]
    verified: bool = True
    """Whether clients check the name in the certificate."""

    def topic(self, name: str) -> str:
        return f"{self.house.name}-{name}"

    def client(self, user: str, password: str | None = None, mechanism: str = "PLAIN") -> RawClient:
        """Return a client that connects as this user through the proxy."""
        kafka = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority),
            "enable.ssl.certificate.verification": str(self.verified).lower(),
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
        }
        return RawClient(kafka, SystemClock())

    @contextmanager
    def logged(self, user: str, topic: str) -> Iterator[None]:
        """Require that the access log gets lines of this user and topic, and no others."""
        before = len(self._lines())
        yield
        lines = eventually(lambda: self._lines()[before:])
        assert {(line["user"], line["topic"]) for line in lines} == {(user, self.topic(topic))}

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def proxied(tls_kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A proxy that is ``reader``, with a reader's rights; it has a topic for each binding, copied and trimmed."""
    house = House(tls_kafka, tmp_path_factory.mktemp("rights") / "house", "rights")
    authority = Path(tls_kafka.client_config["ssl.ca.location"])
    identity = authority.with_name("broker.pem")
    try:
        house.run("init")
        copy_bound_topics(house, {name: bound for name, (bound, _) in BINDINGS.items()})
        untiered = cut_topics(tls_kafka)
        log = house.folder / "access.log"
        sets = (f"proxy.tls.certificate={identity}", f"proxy.tls.key={identity}", f"proxy.access_log={log}")
        flags = [flag for each in sets for flag in ("--set", each)]
        _, bootstrap = house.as_user("reader", PASSWORDS["reader"]).proxy(*flags)
        yield Proxied(house, bootstrap, authority, log, untiered)
    finally:
        house.close()


def cut_topics(kafka: KafkaSandbox) -> list[str]:
    """Return topics that are not tiered and whose first records are deleted. ``reader`` may see that they exist."""
    admin, producer = AdminClient(kafka.client_config), Producer(kafka.client_config)
    names = {f"nobodys-{name}": bound for name, (bound, _) in BINDINGS.items()}
    for future in admin.create_topics([NewTopic(each, 1, 1) for each in names]).values():
        future.result(30)
    allow(kafka, [binding("guest", TOPIC, each, *how) for each, bound in names.items() for how in bound])
    allow(kafka, [binding("reader", TOPIC, each, DESCRIBE) for each in names])
    for each in names:
        for _ in range(10):
            producer.produce(each, b"x", partition=0)
        assert producer.flush(30) == 0
    places = [TopicPartition(each, 0, 5) for each in names]
    for future in admin.delete_records(places).values():
        future.result(30)
    return list(names)


def fetched(client: RawClient, topic: str, offset: int = 0) -> RawFetch:
    """Fetch until there are records, or an error."""

    def look() -> RawFetch | None:
        spec = FetchSpec(topic, 0, Offset(offset), 1, Isolation.READ_UNCOMMITTED, wait_ms=100)
        answer = client.fetch(BrokerId(1), spec)
        return answer if answer.code or answer.batches else None

    reply = eventually(look)
    assert isinstance(reply, RawFetch)
    return reply


def first_offset(answer: RawFetch) -> int:
    return next(iter(iter_batches(answer.batches, source="answer"))).base_offset


@pytest.mark.parametrize("name", BINDINGS)
def test_remote_records_are_given_to_those_alone_whom_the_broker_lets_read(proxied: Proxied, name: str) -> None:
    with closing(proxied.client("guest")) as client:
        answer = fetched(client, proxied.topic(name))
    may_read = BINDINGS[name][1]
    assert (answer.code, bool(answer.batches)) == ((0, True) if may_read else (FORBIDDEN, False))
    assert not may_read or first_offset(answer) == 0


def test_the_records_of_the_table_above_are_not_on_the_broker(proxied: Proxied, tls_kafka: KafkaSandbox) -> None:
    with closing(RawClient(tls_kafka.client_config, SystemClock())) as client:
        assert {fetched(client, proxied.topic(name)).code for name in BINDINGS} == {OUT_OF_RANGE}


def test_a_right_that_goes_between_two_fetches_of_one_connection_takes_what_was_read_ahead(
    proxied: Proxied, tls_kafka: KafkaSandbox
) -> None:
    topic = proxied.topic("may-read")
    refused = [binding("guest", TOPIC, topic, READ, DENY)]
    with closing(proxied.client("guest")) as client:
        answer = fetched(client, topic)
        following = list(iter_batches(answer.batches, source="answer"))[-1].last_offset + 1
        with denied(tls_kafka, *refused), closing(RawClient({**guest(tls_kafka)}, SystemClock())) as direct:
            eventually(lambda: fetched(direct, topic).code == FORBIDDEN)
            answer = fetched(client, topic, following)
            assert (answer.code, answer.batches) == (FORBIDDEN, b"")
        with closing(RawClient({**guest(tls_kafka)}, SystemClock())) as direct:
            eventually(lambda: fetched(direct, topic).code == OUT_OF_RANGE)
        assert first_offset(fetched(client, topic, following)) == following


def guest(tls_kafka: KafkaSandbox) -> dict[str, str]:
    return tls_kafka.client_config | {"sasl.username": "guest", "sasl.password": PASSWORDS["guest"]}


@pytest.mark.parametrize("user", ["guest", "operator", "reader", "admin"])
def test_each_principal_gets_no_more_of_a_topic_than_at_the_broker(
    proxied: Proxied, tls_kafka: KafkaSandbox, user: str
) -> None:
    """The topics are tiered or not; the offset is one that no broker has."""
    tiered = [proxied.topic(name) for name in BINDINGS]
    own = tls_kafka.client_config | {"sasl.username": user, "sasl.password": PASSWORDS[user]}
    with closing(proxied.client(user)) as through, closing(RawClient(own, SystemClock())) as direct:
        for topic in [*tiered, *proxied.untiered]:
            broker_fetch, proxy_fetch = fetched(direct, topic), fetched(through, topic)
            assert broker_fetch.code in (FORBIDDEN, OUT_OF_RANGE)
            if broker_fetch.code == OUT_OF_RANGE and topic in tiered:
                assert (proxy_fetch.code, first_offset(proxy_fetch)) == (0, 0), topic
            else:
                assert (proxy_fetch.code, proxy_fetch.batches) == (broker_fetch.code, b""), topic


@pytest.mark.parametrize(("user", "code"), [("guest", FORBIDDEN), ("admin", POLICY_VIOLATION)])
def test_a_deletion_is_judged_by_the_clients_own_right_first(proxied: Proxied, user: str, code: int) -> None:
    config = {
        "bootstrap.servers": proxied.bootstrap,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(proxied.authority),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
    admin = AdminClient(config)
    (answer,) = admin.delete_records([TopicPartition(proxied.topic("may-read"), 0, 3)]).values()
    with pytest.raises(KafkaException) as refused:
        answer.result(30)
    assert refused.value.args[0].code() == code


def test_the_access_log_has_the_name_of_a_client_that_logged_in_by_password(proxied: Proxied) -> None:
    with proxied.logged("guest", "may-read"), closing(proxied.client("guest")) as client:
        fetched(client, proxied.topic("may-read"))


def test_a_delegation_token_is_made_and_logs_in_through_it(proxied: Proxied, tls_kafka: KafkaSandbox) -> None:
    topics = [proxied.topic(name) for name in BINDINGS]
    kafka = {**tls_kafka.client_config, "bootstrap.servers": proxied.bootstrap}
    rights = Callers(kafka, SystemClock()).rights("guest", topics)
    assert [each.read for each in rights.values()] == [may_read for _, may_read in BINDINGS.values()]


def test_a_quota_of_the_clients_own_user_slows_it_down_through_the_proxy(
    proxied: Proxied, tls_kafka: KafkaSandbox
) -> None:
    throttled: list[Any] = []
    config = {
        "bootstrap.servers": proxied.bootstrap,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(proxied.authority),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "guest",
        "sasl.password": PASSWORDS["guest"],
    }
    producer = Producer({**config, "throttle_cb": throttled.append})

    def slowed() -> bool:
        producer.produce("nobodys-may-write", bytes(2_000), partition=0)
        producer.flush(10)
        return bool(throttled)

    assert not any(slowed() for _ in range(5))
    with bytes_a_second(tls_kafka, "guest", 1_000):
        eventually(slowed)


def test_names_of_brokers_by_tls_and_a_login_work_together(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names resolve to this machine, as by a wildcard entry in DNS."""
    lookup = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: lookup("127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more),
    )
    house = proxied.house
    identity = Path(house.kafka.client_config["ssl.ca.location"]).with_name("broker.pem")
    sets = [f"proxy.tls.certificate={identity}", f"proxy.tls.key={identity}", "proxy.sni=broker-{node}.localhost"]
    sets.append(f"state_dir={house.folder / 'one-port'}")
    flags = [flag for each in sets for flag in ("--set", each)]
    running, bootstrap = house.as_user("reader", PASSWORDS["reader"]).proxy(*flags)
    one_port = replace(proxied, bootstrap=bootstrap, verified=False)
    try:
        with closing(one_port.client("guest")) as client:
            assert client.metadata().brokers == {BrokerId(1): ("broker-1.localhost", int(bootstrap.rpartition(":")[2]))}
            assert first_offset(fetched(client, proxied.topic("may-read"))) == 0
            assert fetched(client, proxied.topic("may-describe")).code == FORBIDDEN
        with closing(one_port.client("guest", "wrong")) as client, pytest.raises(AccessDenied):
            fetched(client, proxied.topic("may-read"))
    finally:
        running.stop()


def test_a_wrong_password_gets_in_nowhere(proxied: Proxied) -> None:
    with closing(proxied.client("guest", "wrong")) as client, pytest.raises(AccessDenied):
        fetched(client, proxied.topic("may-read"))


def test_no_client_is_let_in_as_the_proxy_itself(proxied: Proxied) -> None:
    kafka = {"bootstrap.servers": proxied.bootstrap, "security.protocol": "ssl"}
    client = RawClient(kafka | {"ssl.ca.location": str(proxied.authority)}, SystemClock())
    with closing(client), pytest.raises(TierstateError):
        client.metadata()


def test_scram_passes_and_the_access_log_has_its_name(proxied: Proxied, tls_kafka: KafkaSandbox) -> None:
    set_password(tls_kafka, "guest", b"scrambled")
    with proxied.logged("guest", "may-read"), closing(proxied.client("guest", "scrambled", "SCRAM-SHA-256")) as client:
        assert first_offset(fetched(client, proxied.topic("may-read"))) == 0


@pytest.mark.parametrize(("topic", "may_read"), [("may-read", True), ("may-describe", False)])
def test_a_bearer_token_passes_and_its_subject_is_the_reader(proxied: Proxied, topic: str, may_read: bool) -> None:
    """This broker takes unsigned tokens."""
    config = {
        "bootstrap.servers": proxied.bootstrap,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(proxied.authority),
        "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=guest",
        "group.id": "bearer",
        "auto.offset.reset": "error",
    }
    logged = proxied.logged("guest", topic) if may_read else nullcontext()
    with logged, closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(proxied.topic(topic), 0, 0)])
        groups = KafkaError.GROUP_AUTHORIZATION_FAILED  # it may use no group

        def received() -> Any:
            message = consumer.poll(1.0)
            other = message is None or (message.error() is not None and message.error().code() == groups)
            return None if other else message

        message: Any = eventually(received)
    if may_read:
        assert (message.error(), message.offset()) == (None, 0)
    else:
        assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

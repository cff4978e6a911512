"""Certificates: the proxy's own lets it connect to brokers, and is no client's identity; also TLS to clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.guarded import PASSWORDS, guarded_sandbox, self_signed
from tests.proxy.serving import serving
from tests.scenarios.house import House
from tierstate.broker.answers import FetchSpec
from tierstate.broker.open import open_broker
from tierstate.broker.raw import RawClient
from tierstate.proxy.server import ProxyServer
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.proxy_settings import Proxy, ProxyTls
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import AccessDenied, TierstateError
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation

pytestmark = pytest.mark.kafka
FORBIDDEN = 29


def own(folder: Path) -> dict[str, str]:
    """Return the settings of the proxy's certificate, and of its trust store."""
    identity = str(folder / "broker.pem")
    return {
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": identity,
        "ssl.key.location": identity,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def by_certificate(folder: Path) -> Iterator[KafkaSandbox]:
    """A broker that takes the certificate for the client's identity."""
    authority, identity = self_signed(folder)
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "ssl.client.auth": "required",
    }
    with KafkaSandbox(properties=properties, client={"security.protocol": "ssl", **own(folder)}) as opened:
        yield opened


@pytest.fixture(scope="module")
def by_both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSandbox]:
    """A broker that demands a certificate, and then a login."""
    folder = tmp_path_factory.mktemp("both")
    sandbox = guarded_sandbox(folder, ssl_client_auth="required")
    sandbox._client |= own(folder)
    with sandbox as opened:
        yield opened


@contextmanager
def proxied(kafka: KafkaSandbox) -> Iterator[ProxyServer]:
    """Yield a proxy with TLS to clients; it demands no certificate of them."""
    with open_broker(kafka.client_config) as broker:
        cluster = broker.control.cluster()
    identity = Path(kafka.client_config["ssl.certificate.location"])
    reader: Any = None  # no test here uses a reader
    settings = Proxy(tls=ProxyTls(certificate=identity, key=identity))
    with serving(reader, cluster, kafka.client_config, settings) as server:
        yield server


def test_the_proxys_certificate_is_never_shown_for_a_client_with_tls_alone(by_certificate: KafkaSandbox) -> None:
    with proxied(by_certificate) as proxy:
        kafka = {"bootstrap.servers": str(proxy.address), "security.protocol": "ssl"}
        kafka["ssl.ca.location"] = by_certificate.client_config["ssl.ca.location"]
        with closing(RawClient(kafka, SystemClock())) as client, pytest.raises(TierstateError):
            client.metadata()


def test_check_says_that_a_proxy_cannot_bring_its_clients_certificates(
    by_certificate: KafkaSandbox, tmp_path: Path
) -> None:
    house = House(by_certificate, tmp_path / "house", "certificates")
    house.run("init")
    rows = house.json("check")
    (row,) = [each for each in rows if each["check"] == "proxy"]
    assert row["ok"]
    assert row["detail"].startswith("cannot be run: the brokers want a certificate of every client")


def test_with_sasl_the_proxys_certificate_connects_and_the_client_logs_in(by_both: KafkaSandbox) -> None:
    admin = AdminClient(by_both.client_config)
    admin.create_topics([NewTopic("nobodys", 1, 1)])["nobodys"].result(30)
    with proxied(by_both) as proxy:

        def code(user: str, password: str) -> int:
            kafka = {
                "bootstrap.servers": str(proxy.address),
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": by_both.client_config["ssl.ca.location"],
                "sasl.mechanisms": "PLAIN",
                "sasl.username": user,
                "sasl.password": password,
            }
            with closing(RawClient(kafka, SystemClock())) as client:
                spec = FetchSpec("nobodys", 0, Offset(0), 1, Isolation.READ_UNCOMMITTED, wait_ms=1)
                return client.fetch(BrokerId(1), spec).code

        assert code("admin", PASSWORDS["admin"]) == 0
        assert code("guest", PASSWORDS["guest"]) == FORBIDDEN
        with pytest.raises(AccessDenied):
            code("admin", "wrong")

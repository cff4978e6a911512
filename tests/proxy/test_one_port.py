"""One port for all brokers: the name that a client's TLS asks for selects the broker."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.guarded import self_signed
from tests.proxy.serving import serving
from tierstate.broker.control import ClusterDescription
from tierstate.broker.open import open_broker
from tierstate.broker.raw import RawClient
from tierstate.proxy.listeners import _Names
from tierstate.proxy.server import ProxyServer
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.live_tls import LiveTls
from tierstate.runtime.proxy_settings import Proxy, ProxyTls
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidSettings
from tierstate.state.ids import BrokerId

NAMES = "{node}.localhost"


@pytest.fixture
def one_port(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[ProxyServer]:
    _, identity = self_signed(tmp_path)
    with open_broker(kafka.client_config) as broker:
        cluster = broker.control.cluster()
    with socket.create_server(("127.0.0.1", 0)) as dead:
        dead_port = dead.getsockname()[1]
    cluster = replace(cluster, addresses={**cluster.addresses, BrokerId(2): ("127.0.0.1", dead_port)})
    proxy = Proxy(sni=NAMES, tls=ProxyTls(certificate=identity, key=identity))
    reader: Any = None  # no test here needs one
    with serving(reader, cluster, kafka.client_config, proxy) as server:
        yield server


@pytest.mark.kafka
def test_every_broker_has_a_name_of_its_own_and_the_port_of_all(one_port: ProxyServer) -> None:
    tls = {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}
    with closing(RawClient({"bootstrap.servers": str(one_port.address), **tls}, SystemClock())) as client:
        assert client.metadata().brokers == {BrokerId(1): ("1.localhost", one_port.address.port)}


@pytest.mark.kafka
def test_a_renewed_certificate_is_shown_to_new_clients_and_names_still_say_which_broker_is_meant(
    one_port: ProxyServer, tmp_path: Path
) -> None:
    (tmp_path / "next").mkdir()
    authority, renewed = self_signed(tmp_path / "next", "renewed")
    trusted = ssl.create_default_context(cafile=authority)
    trusted.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError):
        _versions(one_port, trusted, "1.localhost")
    renewed.replace(tmp_path / "broker.pem")
    for _ in range(3):
        assert _versions(one_port, trusted, "1.localhost")
        assert not _versions(one_port, trusted, "2.localhost")


def _versions(proxy: ProxyServer, context: ssl.SSLContext, name: str) -> bool:
    """Return whether ApiVersions 0, without a client id, is answered."""
    with (
        socket.create_connection(("127.0.0.1", proxy.address.port), 20) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        answer = connection.makefile("rb").read(8)
    return bool(answer[4:] == struct.pack(">i", 7))


@pytest.mark.kafka
@pytest.mark.parametrize(("name", "answers"), [("1.localhost", True), ("2.localhost", False), ("other", True)])
def test_a_client_gets_to_the_broker_that_it_names_and_by_any_other_name_to_one_that_lives(
    one_port: ProxyServer, name: str, answers: bool
) -> None:
    """Broker 2 is dead in this test."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert _versions(one_port, context, name) == answers


@pytest.mark.parametrize("sni", ["kafka.example.com", "{node}-{node}.example.com", "{node}.example.com"])
def test_names_without_tls_or_that_tell_no_broker_apart_are_refused(sni: str) -> None:
    reader: Any = None
    cluster = ClusterDescription("x", (), {BrokerId(1): ("127.0.0.1", 1)})
    with (
        pytest.raises(InvalidSettings, match=r"proxy\.sni"),
        serving(reader, cluster, {"bootstrap.servers": "127.0.0.1:1"}, Proxy(sni=sni)),
    ):
        pass


def test_a_name_that_is_no_brokers_is_for_whichever_answers() -> None:
    names = _Names(NAMES, LiveTls(lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ()))
    others = dict.fromkeys(["07.localhost", "x.localhost", "7.localhost.org", "localhost", ""])
    for name, node in {"7.localhost": 7, **others}.items():
        connection = type("Connection", (), {})()
        names._remember(connection, name, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        assert names.node_of(connection) == node, name
    assert names.node_of(object) is None

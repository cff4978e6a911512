"""Rubbish from either side ends its own connection, and nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from tests.broker.guarded import self_signed
from tests.consumer.tiered_cluster import until
from tests.proxy.messages import encoded, message, versions
from tests.proxy.serving import serving
from tests.proxy.test_frames import read_brokers, through
from tierstate.broker.control import ClusterDescription
from tierstate.broker.wire import Malformed
from tierstate.proxy import addresses
from tierstate.proxy.apis import APIS, Key
from tierstate.proxy.fetch_request import read_fetch
from tierstate.proxy.offsets import epochs_said, offsets_said, read_epochs, read_list_offsets
from tierstate.proxy.peer import HELD, PIPED, SMALL, WRITE_HIGH, Peer
from tierstate.proxy.relay import Relay
from tierstate.proxy.server import ProxyServer
from tierstate.proxy.versions import offered
from tierstate.runtime.proxy_settings import Proxy, ProxyTls
from tierstate.state.ids import BrokerId

Read = Callable[[bytes, int], object]
READERS: dict[str, tuple[Key, Any, Read]] = {
    "fetch request": (Key.FETCH, FetchRequest, lambda data, version: read_fetch(bytearray(data), 0, version)),
    "fetch answer": (Key.FETCH, FetchResponse, through),
    "offsets asked": (Key.LIST_OFFSETS, ListOffsetsRequest, lambda data, version: read_list_offsets(data, 0, version)),
    "offsets said": (Key.LIST_OFFSETS, ListOffsetsResponse, lambda data, version: list(offsets_said(data, version))),
    "epochs asked": (
        Key.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest,
        lambda data, version: read_epochs(data, 0, version),
    ),
    "epochs said": (
        Key.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochResponse,
        lambda data, version: list(epochs_said(data, version)),
    ),
    "metadata": (Key.METADATA, MetadataResponse, lambda data, v: addresses.nodes(Key.METADATA, data, v)),
    "arriving metadata": (Key.METADATA, MetadataResponse, read_brokers),
    "coordinators": (
        Key.FIND_COORDINATOR,
        FindCoordinatorResponse,
        lambda data, version: addresses.nodes(Key.FIND_COORDINATOR, data, version),
    ),
    "cluster": (
        Key.DESCRIBE_CLUSTER,
        DescribeClusterResponse,
        lambda data, version: addresses.nodes(Key.DESCRIBE_CLUSTER, data, version),
    ),
    "versions": (Key.API_VERSIONS, ApiVersionsResponse, lambda data, version: offered(data, version, read_only=False)),
}


REQUESTS = ("fetch request", "offsets asked", "epochs asked")
ANSWERS = {
    "fetch answer": FetchRequest,
    "offsets said": ListOffsetsRequest,
    "epochs said": OffsetForLeaderEpochRequest,
    "arriving metadata": MetadataRequest,
    "coordinators": FindCoordinatorRequest,
    "cluster": DescribeClusterRequest,
    "versions": ApiVersionsRequest,
}
"""And the request that each of them answers."""


@st.composite
def broken(draw: st.DrawFn, names: Sequence[str] = tuple(READERS)) -> tuple[str, int, bytes]:
    """A reader, a version, and a message of it that was cut, extended, or has wrong bytes."""
    name = draw(st.sampled_from(sorted(names)))
    key, kind, _ = READERS[name]
    version = draw(st.sampled_from(list(versions(kind, APIS[key].oldest, APIS[key].newest))))
    data = bytearray(encoded(message(kind, version, draw(st.integers(0, 30))), version))
    how = draw(st.sampled_from(["cut", "extend", "flip", "length", "random"]))
    if how == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif how == "extend":
        data += draw(st.binary(min_size=1, max_size=20))
    elif how == "random":
        data = bytearray(draw(st.binary(max_size=60)))
    else:
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, max(0, len(data) - 4)))
            wrong = draw(st.binary(min_size=1, max_size=1)) if how == "flip" else b"\x7f\xff\xff\xff"
            data[at : at + len(wrong)] = wrong
    return name, version, bytes(data)


@given(broken())
@settings(max_examples=600, deadline=None)
@example(("fetch answer", 12, b"\x00" * 10 + b"\xff\xff\xff\xff\x0f"))
@example(("offsets said", 6, b"\x00" * 4 + b"\xff\xff\xff\xff\x0f"))
def test_a_message_is_read_or_refused_and_nothing_else(case: tuple[str, int, bytes]) -> None:
    name, version, data = case
    with suppress(Malformed):
        READERS[name][2](data, version)


class FakeBroker(socketserver.ThreadingTCPServer):
    """Answers every request by ``answer`` of it; None closes."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.answer: Callable[[bytes], bytes | None] = lambda request: request[4:8] + b"\0\0"
        self.got: list[bytes] = []
        self.leaves = False
        super().__init__(("127.0.0.1", 0), Requests)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Requests(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        broker = self.server
        assert isinstance(broker, FakeBroker)
        with suppress(OSError, struct.error):
            while True:
                (size,) = struct.unpack(">i", self.rfile.read(4))
                request = self.rfile.read(size)
                broker.got.append(request)
                if _acks_none(request):
                    continue
                if (answer := broker.answer(request)) is None:
                    return
                self.wfile.write(answer)
                if broker.leaves:
                    return


def _acks_none(request: bytes) -> bool:
    return request[:2] == b"\0\0" and request[12:14] == b"\0\0"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(params=["plain", "tls"])
def proxy(broker: FakeBroker, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProxyServer]:
    """It has no reader: nothing here reaches one."""
    where = f"127.0.0.1:{broker.port}"
    reader: Any = None
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    identity = self_signed(tmp_path)[1] if request.param == "tls" else None
    settings = Proxy(memory=2 << 20, tls=ProxyTls(certificate=identity, key=identity))
    with serving(reader, cluster, {"bootstrap.servers": where}, settings) as server:
        yield server


def connected(proxy: ProxyServer, port: int | None = None) -> socket.socket:
    """To the bootstrap listener, or another."""
    plain = socket.create_connection(("127.0.0.1", port or proxy.address.port), 20)
    if proxy._tls is None:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def request(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    """Framed, with an empty client id where the version is not flexible."""
    head = struct.pack(">hhih", key, version, correlation, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answer_of(connection: socket.socket) -> bytes:
    """The next frame; empty when the connection is closed."""
    with suppress(ConnectionError):
        file = connection.makefile("rb")
        head = file.read(4)
        return file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    return b""


def healthy(proxy: ProxyServer, broker: FakeBroker) -> None:
    """Somebody else is served."""
    broker.answer = lambda request: framed(request[4:8] + b"fine")
    with closing(connected(proxy)) as other:
        other.sendall(request(12, 0, 99))
        assert answer_of(other) == struct.pack(">i", 99) + b"fine"


HEARTBEAT, FETCH, PRODUCE = 12, 1, 0


@given(sent=st.binary(min_size=4, max_size=300), fetch=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_of_a_client_ends_its_connection_and_no_other(
    proxy: ProxyServer, broker: FakeBroker, sent: bytes, fetch: bool
) -> None:
    with closing(connected(proxy)) as client, suppress(ConnectionError):
        client.sendall(request(FETCH, 11, 1, sent) if fetch else sent)
        client.shutdown(socket.SHUT_WR)
        answer_of(client)
    healthy(proxy, broker)
    assert proxy.budget.used == 0


@given(said=st.binary(max_size=300), whole=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_of_a_broker_ends_its_connection_and_no_other(
    proxy: ProxyServer, broker: FakeBroker, said: bytes, whole: bool
) -> None:
    broker.answer = lambda request: framed(request[4:8] + said) if whole else said
    asked = message(FetchRequest, 11, 1)
    with closing(connected(proxy)) as client, suppress(ConnectionError):
        client.sendall(request(FETCH, 11, 1, encoded(asked, 11)))
        client.shutdown(socket.SHUT_WR)
        answer_of(client)
    healthy(proxy, broker)
    assert proxy.budget.used == 0


def is_read(name: str, version: int, data: bytes) -> bool:
    try:
        READERS[name][2](data, version)
    except Malformed:
        return False
    return True


def with_header(key: int, version: int, body: bytes) -> bytes:
    """A request without a client id."""
    return request(key, version, 1, (b"\0" if APIS[key].is_flexible(version) else b"") + body)


def ends(connection: socket.socket) -> None:
    """Fails by time when it stays open."""
    with suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass


@given(case=broken(REQUESTS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_request_that_was_cut_extended_or_has_wrong_bytes_ends_its_connection_alone(
    proxy: ProxyServer, broker: FakeBroker, case: tuple[str, int, bytes]
) -> None:
    name, version, data = case
    if is_read(name, version, data):
        return
    before = len(broker.got)
    with closing(connected(proxy)) as client:
        client.sendall(with_header(READERS[name][0], version, data))
        ends(client)
    assert len(broker.got) == before
    healthy(proxy, broker)
    assert proxy.budget.used == 0


@given(case=broken(tuple(ANSWERS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_answer_that_was_cut_extended_or_has_wrong_bytes_ends_its_connection_alone(
    proxy: ProxyServer, broker: FakeBroker, case: tuple[str, int, bytes]
) -> None:
    name, version, data = case
    if is_read(name, version, data):
        return
    key, asked = READERS[name][0], encoded(message(ANSWERS[name], version, 1), version)
    header = b"\0" if APIS[key].is_flexible(version) and key != Key.API_VERSIONS else b""
    broker.answer = lambda request: framed(request[4:8] + header + data)
    with closing(connected(proxy)) as client:
        client.sendall(with_header(key, version, asked))
        ends(client)
    healthy(proxy, broker)
    assert proxy.budget.used == 0


def test_a_frame_that_comes_byte_by_byte_is_served(proxy: ProxyServer, broker: FakeBroker) -> None:
    broker.answer = lambda request: framed(request[4:8] + b"fine")
    with closing(connected(proxy)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(HEARTBEAT, 0, 5, b"x" * 30):
            client.sendall(bytes([byte]))
        assert answer_of(client) == struct.pack(">i", 5) + b"fine"
    assert broker.got[-1].endswith(b"x" * 30)


def test_requests_that_are_not_waited_for_are_answered_in_their_order(proxy: ProxyServer, broker: FakeBroker) -> None:
    """Among them those that have no answer."""
    broker.answer = lambda request: framed(request[4:8])
    quiet = struct.pack(">hhii", -1, 0, 30_000, 0)  # no transactional id, acks 0, time-out, no topics
    with closing(connected(proxy)) as client:
        for number in range(50):
            client.sendall(request(HEARTBEAT, 0, number) + request(PRODUCE, 8, 1_000 + number, quiet))
        file = client.makefile("rb")
        assert [struct.unpack(">ii", file.read(8)) for _ in range(50)] == [(4, number) for number in range(50)]


def test_what_the_proxy_refuses_itself_is_answered_in_its_turn(broker: FakeBroker) -> None:
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    reader: Any = None
    broker.answer = lambda request: framed(request[4:8])
    waited_for = struct.pack(">hhii", -1, 1, 30_000, 0)
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    with serving(reader, cluster, where, Proxy(read_only=True)) as proxy, closing(connected(proxy)) as client:
        for number in range(0, 60, 3):
            client.sendall(request(PRODUCE, 8, number, waited_for) + request(PRODUCE, 8, number + 1, waited_for))
            client.sendall(request(HEARTBEAT, 0, number + 2))
        file, found = client.makefile("rb"), list[int]()
        for _ in range(60):
            size = struct.unpack(">i", file.read(4))[0]
            found.append(struct.unpack(">i", file.read(size)[:4])[0])
        assert found == list(range(60))
    assert {request[:2] for request in broker.got} == {struct.pack(">h", HEARTBEAT)}


@pytest.mark.parametrize(("key", "version"), [(78, 1), (FETCH, 13), (17, 0), (200, 0), (PRODUCE, 10)])
def test_a_request_that_is_not_offered_ends_the_connection_and_never_reaches_the_broker(
    proxy: ProxyServer, broker: FakeBroker, key: int, version: int
) -> None:
    with closing(connected(proxy)) as client:
        client.sendall(request(key, version, 1, b"\0" * 20))
        assert answer_of(client) == b""
    assert broker.got == []
    assert sum(proxy.counts.refused.values()) == 1


def test_a_frame_that_is_too_large_to_be_looked_into_is_refused_before_it_is_read(
    proxy: ProxyServer, broker: FakeBroker
) -> None:
    with closing(connected(proxy)) as client:
        client.sendall(struct.pack(">i", 1 << 30) + request(FETCH, 11, 1)[4:])
        assert answer_of(client) == b""
    assert broker.got == []


def test_a_large_frame_that_nobody_looks_into_is_streamed(proxy: ProxyServer, broker: FakeBroker) -> None:
    """Far more than the proxy may hold, both ways."""
    body = bytes(range(256)) * (64 * 1024)
    broker.answer = lambda request: framed(request[4:8] + request[10:])
    with closing(connected(proxy)) as client:
        # By one thread: two at once break a TLS connection before Python 3.13. The broker reads all of it first.
        client.sendall(request(HEARTBEAT, 0, 7, body))
        answer = answer_of(client)
        assert (len(answer), answer == struct.pack(">i", 7) + body) == (4 + len(body), True)  # 16 MiB, not to be shown
    assert proxy.budget.used == 0


def metadata(brokers: list[tuple[int, int]], topics: int = 0, host: str = "127.1") -> bytes:
    """The body of a Metadata answer of version 1: node and port of each broker.

    ``host``: as a broker would name itself; the proxy's own name has another length.
    """
    made = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node, host, port, None) for node, port in brokers],
        controller_id=1,
        topics=[
            MetadataResponse.MetadataResponseTopic(0, f"{number}".rjust(200, "t"), False, [])
            for number in range(topics)
        ],
    )
    return encoded(made, 1)


def naming(brokers: list[tuple[int, int]], request: bytes) -> bytes:
    return framed(request[4:8] + metadata(brokers))


def test_the_metadata_of_a_cluster_larger_than_the_memory_passes(proxy: ProxyServer, broker: FakeBroker) -> None:
    body = metadata([(1, broker.port)], 20_000)
    assert len(body) > proxy.budget.size
    broker.answer = lambda request: framed(request[4:8] + body)
    with closing(connected(proxy)) as client:
        client.sendall(request(Key.METADATA, 1, 7))
        answer = answer_of(client)
    (named,) = addresses.nodes(Key.METADATA, answer[4:], 1)
    assert named.port != broker.port
    assert answer[4:] == metadata([(1, named.port)], 20_000, host=proxy.address.host)


def test_a_beginning_that_is_larger_than_what_is_read_at_once_is_read_when_all_of_it_came(
    proxy: ProxyServer, broker: FakeBroker
) -> None:
    """Brokers without a host, for which no listener is made."""
    body = metadata([(number, 9092) for number in range(4_000)], host="")
    assert SMALL < len(body) < HELD
    broker.answer = lambda request: framed(request[4:8] + body)
    with closing(connected(proxy)) as client:
        client.sendall(request(Key.METADATA, 1, 7))
        assert answer_of(client) == struct.pack(">i", 7) + body


def test_a_broker_that_a_metadata_answer_names_first_can_be_reached_when_the_answer_comes(
    proxy: ProxyServer, broker: FakeBroker
) -> None:
    broker.answer = partial(naming, [(1, broker.port), (77, broker.port)])
    with closing(connected(proxy)) as client:
        client.sendall(request(Key.METADATA, 1, 7))
        named = addresses.nodes(Key.METADATA, answer_of(client)[4:], 1)
    assert [each.node for each in named] == [1, 77]
    broker.answer = lambda request: framed(request[4:8] + b"fine")
    for each in named:
        with closing(connected(proxy, each.port)) as other:
            other.sendall(request(HEARTBEAT, 0, 9))
            assert answer_of(other) == struct.pack(">i", 9) + b"fine"


def test_a_node_that_vanished_refuses_at_once_and_serves_again_where_it_comes_back(
    proxy: ProxyServer, broker: FakeBroker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = nobody.getsockname()[1]
    with closing(connected(proxy)) as client:
        ports: dict[str, int] = {}
        for where, port in (("before", broker.port), ("gone", gone), ("back", broker.port)):
            broker.answer = partial(naming, [(77, port)])
            client.sendall(request(Key.METADATA, 1, 7))
            (named,) = addresses.nodes(Key.METADATA, answer_of(client)[4:], 1)
            ports[where] = named.port
            broker.answer = lambda request: framed(request[4:8] + b"fine")
            with closing(connected(proxy, named.port)) as other:
                other.sendall(request(HEARTBEAT, 0, 9))
                assert answer_of(other) == (b"" if where == "gone" else struct.pack(">i", 9) + b"fine")
    assert len({*ports.values()}) == 1, "a client that kept the address finds the node there again"


@pytest.mark.parametrize(("length", "said"), [(3 << 20, "larger than proxy.memory"), (1 << 20, "no memory now")])
def test_a_request_that_there_is_no_memory_for_is_refused_and_the_log_says_what_to_do(
    broker: FakeBroker, length: int, said: str
) -> None:
    reasons: list[str] = []
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    reader: Any = None

    def warn(event: str, **facts: object) -> None:
        reasons.append(str(facts["reason"]))

    with serving(reader, cluster, where, Proxy(memory=2 << 20), warn) as proxy:
        share = proxy.budget.for_a_frame((2 << 20) - (512 << 10))
        assert share is not None
        with share, closing(connected(proxy)) as client:
            client.sendall(struct.pack(">i", length) + request(FETCH, 11, 1)[4:])
            assert answer_of(client) == b""
        until(lambda: reasons, lambda: None)
    assert said in reasons[0]


def test_a_client_that_never_reads_is_held_within_its_bound_and_stops_nobody(
    proxy: ProxyServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers: list[Peer] = []
    before = Relay.__init__

    def remembered(relay: Relay, client: Peer, towards: Peer, house: Any) -> None:
        peers.extend((client, towards))
        before(relay, client, towards, house)

    monkeypatch.setattr(Relay, "__init__", remembered)
    broker.answer = lambda request: framed(request[4:8] + bytes(64 << 20))
    with closing(connected(proxy)) as client:
        client.sendall(request(HEARTBEAT, 0, 1))

        def held() -> int:
            return sum(each.held + each.transport.get_write_buffer_size() for each in peers)

        def stuck() -> bool:
            return bool(peers) and (
                peers[0]._full or (peers[0]._direct is not None and bool(peers[0]._direct._waiting))
            )

        until(stuck, lambda: None)
        assert held() <= HELD + WRITE_HIGH + 2 * PIPED
        healthy(proxy, broker)


def test_requests_beyond_those_that_wait_for_an_answer_wait_in_the_socket(
    proxy: ProxyServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    relays: list[Relay] = []
    before = Relay.__init__

    def remembered(relay: Relay, client: Peer, towards: Peer, house: Any) -> None:
        relays.append(relay)
        before(relay, client, towards, house)

    monkeypatch.setattr(Relay, "__init__", remembered)
    monkeypatch.setattr("tierstate.proxy.relay.MOST_PENDING", 3)
    goes_on, others = threading.Event(), struct.pack(">i", 99)

    def answered(request: bytes) -> bytes:
        assert request[4:8] == others or goes_on.wait(30)
        return framed(request[4:8])

    broker.answer = answered
    with closing(connected(proxy)) as client, closing(connected(proxy)) as other:
        client.sendall(b"".join(request(HEARTBEAT, 0, number) for number in range(10)))
        until(lambda: any(len(each._pending) >= 3 for each in relays), lambda: None)
        other.sendall(request(HEARTBEAT, 0, 99))
        assert answer_of(other) == others  # so the loop had its turn
        assert max(len(each._pending) for each in relays) == 3
        goes_on.set()
        file = client.makefile("rb")
        assert [struct.unpack(">ii", file.read(8))[1] for _ in range(10)] == list(range(10))


@pytest.mark.parametrize("who", ["client", "broker"])
def test_an_end_that_leaves_in_the_middle_of_a_large_answer_takes_the_other_with_it_and_leaves_nothing_open(
    proxy: ProxyServer, broker: FakeBroker, who: str
) -> None:
    whole = framed(struct.pack(">i", 1) + bytes(32 << 20))
    healthy(proxy, broker)
    before = _descriptors()
    for _ in range(5):
        broker.answer = lambda request: whole if who == "client" else whole[: 20 << 20]
        if who == "broker":
            broker.leaves = True
        with closing(connected(proxy)) as client, suppress(ConnectionError):
            client.sendall(request(HEARTBEAT, 0, 1))
            if who == "client":
                assert client.recv(100_000)
                continue
            found = 0
            while came := client.recv(1 << 20):
                found += len(came)
            assert 1 << 20 < found <= 20 << 20
    broker.leaves = False
    healthy(proxy, broker)
    until(lambda: _descriptors() <= before, lambda: None)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_broker_that_is_gone_is_no_connection_that_hangs(broker: FakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", port)})
    reader: Any = None
    said: list[str] = []
    where = {"bootstrap.servers": f"127.0.0.1:{port}"}
    with serving(reader, cluster, where, warn=lambda event, **facts: said.append(event)) as proxy:
        with closing(connected(proxy)) as client:
            assert answer_of(client) == b""
        until(lambda: said, lambda: None)
    assert said == ["no connection to the broker"]


def test_more_connections_than_are_allowed_are_turned_away(broker: FakeBroker) -> None:
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    reader: Any = None
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    with serving(reader, cluster, where, Proxy(connections=2)) as proxy:
        broker.answer = lambda request: framed(request[4:8])
        kept = [connected(proxy) for _ in range(2)]
        for one in kept:
            one.sendall(request(HEARTBEAT, 0, 1))
            assert answer_of(one)
        with closing(connected(proxy)) as third:
            assert answer_of(third) == b""
        assert proxy.counts.turned_away == 1
        for one in kept:
            one.close()


def test_a_peer_gives_no_more_than_its_frame() -> None:
    async def read() -> None:
        peer = Peer()
        came = framed(b"abcdef") + framed(b"ghij")
        peer.get_buffer(-1)[: len(came)] = came
        peer.buffer_updated(len(came))
        assert await peer.frame() == 6
        with pytest.raises(Malformed):
            await peer.exactly(7)
        assert await peer.exactly(6) == b"abcdef"
        assert await peer.frame() == 4

    asyncio.run(read())

"""Requests and answers through a running proxy: in their order, whole, within its memory; and those that it refuses."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from tests.consumer.tiered_cluster import until
from tests.proxy.fake_broker import (
    FETCH,
    HEARTBEAT,
    PRODUCE,
    FakeBroker,
    answer_of,
    connected,
    framed,
    healthy,
    request,
)
from tests.proxy.messages import encoded
from tests.proxy.serving import serving
from tierstate.broker.control import ClusterDescription
from tierstate.proxy import addresses
from tierstate.proxy.apis import Key
from tierstate.proxy.peer import HELD, PIPED, SMALL, WRITE_HIGH, Peer
from tierstate.proxy.relay import Relay
from tierstate.proxy.server import RESERVED_FILES, ProxyServer
from tierstate.runtime.proxy_settings import Proxy
from tierstate.state.ids import BrokerId


def test_a_frame_that_comes_byte_by_byte_is_served(proxy: ProxyServer, broker: FakeBroker) -> None:
    broker.answer = lambda request: framed(request[4:8] + b"fine")
    with closing(connected(proxy)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(HEARTBEAT, 0, 5, b"x" * 30):
            client.sendall(bytes([byte]))
        assert answer_of(client) == struct.pack(">i", 5) + b"fine"
    assert broker.got[-1].endswith(b"x" * 30)


def test_requests_that_are_not_waited_for_are_answered_in_their_order(proxy: ProxyServer, broker: FakeBroker) -> None:
    """Some of these requests have no answer."""
    broker.answer = lambda request: framed(request[4:8])
    quiet = struct.pack(">hhii", -1, 0, 30_000, 0)  # no transactional id, acks 0, time-out, no topics
    with closing(connected(proxy)) as client:
        for number in range(50):
            client.sendall(request(HEARTBEAT, 0, number) + request(PRODUCE, 8, 1_000 + number, quiet))
        file = client.makefile("rb")
        assert [struct.unpack(">ii", file.read(8)) for _ in range(50)] == [(4, number) for number in range(50)]


def test_a_refusal_by_the_proxy_is_answered_in_its_turn(broker: FakeBroker) -> None:
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    reader: Any = None
    broker.answer = lambda request: framed(request[4:8])
    waited_for = struct.pack(">hhii", -1, 1, 30_000, 0)
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    with serving(reader, cluster, where, Proxy(read_only=True)) as proxy, closing(connected(proxy)) as client:
        for number in range(0, 60, 3):
            client.sendall(request(PRODUCE, 8, number, waited_for) + request(PRODUCE, 8, number + 1, waited_for))
            client.sendall(request(HEARTBEAT, 0, number + 2))
        file, correlations = client.makefile("rb"), list[int]()
        for _ in range(60):
            size = struct.unpack(">i", file.read(4))[0]
            correlations.append(struct.unpack(">i", file.read(size)[:4])[0])
        assert correlations == list(range(60))
    assert {request[:2] for request in broker.got} == {struct.pack(">h", HEARTBEAT)}


@pytest.mark.parametrize(("key", "version"), [(78, 0), (FETCH, 19), (17, 0), (200, 0), (PRODUCE, 14)])
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


def test_a_large_frame_that_needs_no_parsing_is_streamed(proxy: ProxyServer, broker: FakeBroker) -> None:
    """The frame has far more bytes than the proxy may hold, both ways."""
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


def test_a_client_that_never_reads_is_bounded_and_stops_no_other(
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
            count = 0
            while came := client.recv(1 << 20):
                count += len(came)
            assert 1 << 20 < count <= 20 << 20
    broker.leaves = False
    healthy(proxy, broker)
    until(lambda: _descriptors() <= before, lambda: None)


def test_a_connection_takes_two_descriptors_of_the_proxy_when_no_large_answer_passes(
    proxy: ProxyServer, broker: FakeBroker
) -> None:
    """This process also has the client's end and the broker's end."""
    broker.answer = lambda request: framed(struct.pack(">i", 1) + bytes(4 << 20))
    counts = list[int]()
    with ExitStack() as opened:
        for _ in range(11):
            client = opened.enter_context(closing(connected(proxy)))
            client.sendall(request(HEARTBEAT, 0, 1))
            assert len(answer_of(client)) == 4 + (4 << 20)
            counts.append(_descriptors())
        until(lambda: _descriptors() - counts[0] <= 10 * (2 + 2), lambda: None)


@pytest.mark.parametrize("call", ["dup", "pipe2"])
def test_large_answers_pass_through_the_process_where_no_descriptor_is_left(
    proxy: ProxyServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    body = bytes(range(256)) * (16 << 12)
    broker.answer = lambda request: framed(struct.pack(">i", 1) + body)

    def none_left(*given: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with closing(connected(proxy)) as client:
        monkeypatch.setattr(os, call, none_left)
        client.sendall(request(HEARTBEAT, 0, 1))
        answer = answer_of(client)
        monkeypatch.undo()
        assert (len(answer), answer[4:] == body) == (4 + len(body), True)  # 16 MiB, not to be shown


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_broker_that_is_gone_is_no_connection_that_hangs(broker: FakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", port)})
    reader: Any = None
    events: list[str] = []
    where = {"bootstrap.servers": f"127.0.0.1:{port}"}
    with serving(reader, cluster, where, warn=lambda event, **facts: events.append(event)) as proxy:
        with closing(connected(proxy)) as client:
            assert answer_of(client) == b""
        until(lambda: events, lambda: None)
    assert events == ["no connection to the broker"]


@pytest.mark.parametrize("limit", ["proxy.connections", "open files"])
def test_more_connections_than_are_allowed_are_turned_away_and_the_log_names_the_limit(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    files = RESERVED_FILES + (5 if limit == "open files" else 100)
    monkeypatch.setattr("resource.getrlimit", lambda of: (files, files))
    connections, events = 2 if limit == "proxy.connections" else 40, list[Any]()
    cluster = ClusterDescription("x", (BrokerId(1),), {BrokerId(1): ("127.0.0.1", broker.port)})
    reader: Any = None
    where = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    with serving(
        reader, cluster, where, Proxy(connections=connections), lambda event, **facts: events.append((event, facts))
    ) as proxy:
        broker.answer = lambda request: framed(request[4:8])
        kept = [connected(proxy) for _ in range(2)]
        for one in kept:
            one.sendall(request(HEARTBEAT, 0, 1))
            assert answer_of(one)
        for _ in range(2):
            with closing(connected(proxy)) as third:
                assert answer_of(third) == b""
        assert proxy.counts.turned_away == 2
        [(event, facts)] = events
        assert (event, facts["connections"]) == ("clients are turned away", 2)
        assert limit in facts["limit"]
        for one in kept:
            one.close()

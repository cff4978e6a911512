"""Rubbish from either side ends its own connection, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
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
from kafka.protocol.producer import ProduceResponse

from tests.proxy.fake_broker import FETCH, FakeBroker, answer_of, connected, framed, healthy, request
from tests.proxy.frames import (
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    read_brokers,
    streamed,
)
from tests.proxy.messages import encoded, message, versions
from tierstate.broker.wire import Malformed
from tierstate.proxy import addresses
from tierstate.proxy.apis import APIS, Key, offered
from tierstate.proxy.fetch_request import read_fetch
from tierstate.proxy.older_offsets import epochs_said, offsets_said, read_epochs, read_list_offsets
from tierstate.proxy.peer import Peer
from tierstate.proxy.produce import without_addresses
from tierstate.proxy.server import ProxyServer
from tierstate.proxy.share_fetch import lower_share_fetch

Read = Callable[[bytes, int], object]
READERS: dict[str, tuple[Key, Any, Read]] = {
    "fetch request": (Key.FETCH, FetchRequest, lambda data, version: read_fetch(bytearray(data), 0, version, {})),
    "fetch answer": (Key.FETCH, FetchResponse, lambda data, version: streamed(data, version, {})),
    "produce answer": (Key.PRODUCE, ProduceResponse, lambda data, v: v < 10 or without_addresses(data, v)),
    "share fetch request": (
        Key.SHARE_FETCH,
        ShareFetchRequest,
        lambda data, version: lower_share_fetch(bytearray(data), 0),
    ),
    "share fetch answer": (
        Key.SHARE_FETCH,
        ShareFetchResponse,
        lambda data, version: addresses.nodes(Key.SHARE_FETCH, data, version),
    ),
    "share acknowledge answer": (
        Key.SHARE_ACKNOWLEDGE,
        ShareAcknowledgeResponse,
        lambda data, version: addresses.nodes(Key.SHARE_ACKNOWLEDGE, data, version),
    ),
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
    "share fetch answer": ShareFetchRequest,
    "offsets said": ListOffsetsRequest,
    "epochs said": OffsetForLeaderEpochRequest,
    "arriving metadata": MetadataRequest,
    "coordinators": FindCoordinatorRequest,
    "cluster": DescribeClusterRequest,
    "versions": ApiVersionsRequest,
}
"""Readers of answers, each with the request that it answers."""


@st.composite
def broken(draw: st.DrawFn, names: Sequence[str] = tuple(READERS)) -> tuple[str, int, bytes]:
    """Draw a reader, a version, and a message of it that was cut, extended, or has wrong bytes."""
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
@settings(max_examples=600)
@example(("fetch answer", 12, b"\x00" * 10 + b"\xff\xff\xff\xff\x0f"))
@example(("offsets said", 6, b"\x00" * 4 + b"\xff\xff\xff\xff\x0f"))
def test_a_message_is_read_or_refused_and_nothing_else(case: tuple[str, int, bytes]) -> None:
    name, version, data = case
    with suppress(Malformed):
        READERS[name][2](data, version)


@given(sent=st.binary(min_size=4, max_size=300), fetch=st.booleans())
@settings(max_examples=60)
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
@settings(max_examples=60)
def test_rubbish_of_a_broker_ends_its_connection_and_no_other(
    proxy: ProxyServer, broker: FakeBroker, said: bytes, whole: bool
) -> None:
    broker.answer = lambda request: framed(request[4:8] + said) if whole else said
    question = message(FetchRequest, 11, 1)
    with closing(connected(proxy)) as client, suppress(ConnectionError):
        client.sendall(request(FETCH, 11, 1, encoded(question, 11)))
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
    """Return a request without a client id."""
    return request(key, version, 1, (b"\0" if APIS[key].is_flexible(version) else b"") + body)


def ends(connection: socket.socket) -> None:
    """Require that the connection ends; fail by time when it stays open."""
    with suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass


@given(case=broken(REQUESTS))
@settings(max_examples=60)
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
@settings(max_examples=60)
def test_an_answer_that_was_cut_extended_or_has_wrong_bytes_ends_its_connection_alone(
    proxy: ProxyServer, broker: FakeBroker, case: tuple[str, int, bytes]
) -> None:
    name, version, data = case
    if is_read(name, version, data):
        return
    key, body = READERS[name][0], encoded(message(ANSWERS[name], version, 1), version)
    header = b"\0" if APIS[key].is_flexible(version) and key != Key.API_VERSIONS else b""
    broker.answer = lambda request: framed(request[4:8] + header + data)
    with closing(connected(proxy)) as client:
        client.sendall(with_header(key, version, body))
        ends(client)
    healthy(proxy, broker)
    assert proxy.budget.used == 0


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

"""A DeleteRecords that the agent gave up never reaches the broker: the connection dies with its deadline."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from tests.broker.test_lost_answers import Relay
from tierstate.broker.framed_socket import FramedSocket
from tierstate.broker.open import open_broker
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.sandbox.ports import PortLease
from tierstate.state.errors import TimedOut

FRAME = bytes(128 << 10)
"""More than the receiver takes, so that the rest waits in the buffer of the sender's kernel."""
HELD_S, LATE_S = 5.0, 20.0
"""A kernel keeps a packet for three seconds for a neighbour that does not answer. It sends again what was not
acknowledged, each time after twice as many seconds."""
HERE, THERE = "10.213.78.1", "10.213.78.2"


@pytest.mark.parametrize("dies", [True, False], ids=["with its deadline", "not"])
def test_what_the_peer_did_not_take_before_the_deadline_never_arrives_if_the_connection_dies_with_it(
    dies: bool,
) -> None:
    clock = SystemClock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        frames = FramedSocket(listener.getsockname(), None, clock, clock.monotonic() + 10)
        with closing(frames), listener.accept()[0] as peer:
            frames._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(FRAME))
            deadline = clock.monotonic() + 0.5
            if dies:
                frames.dies_at(deadline)
            frames.send(FRAME, clock.monotonic() + 10)
            with pytest.raises(TimedOut):
                frames.receive(deadline)
            frames.close()
            arrived = 0
            with suppress(ConnectionResetError):
                while data := peer.recv(1 << 20):
                    arrived += len(data)
    assert (arrived < len(FRAME)) == dies


class Network:
    """A network namespace with one cable to this one."""

    def __init__(self) -> None:
        self.name, self._cable = f"tierstate-{os.getpid()}", f"ts{os.getpid()}"[:14]

    def __enter__(self) -> Network:
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self._cable, "type", "veth", "peer", "name", "cable", "netns", self.name)
        self._ip("address", "add", f"{HERE}/30", "dev", self._cable)
        self._ip("-n", self.name, "address", "add", f"{THERE}/30", "dev", "cable")
        self._ip("-n", self.name, "link", "set", "cable", "up")
        self.cut(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._ip("link", "delete", self._cable)
        self._ip("netns", "delete", self.name)

    def cut(self, cut: bool) -> None:
        self._ip("link", "set", self._cable, "down" if cut else "up")

    def start(self, *command: str) -> subprocess.Popen[str]:
        line = ["ip", "netns", "exec", self.name, *command]
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


CLIENT = f"""
import sys
from tierstate.broker import raw_connection
from tierstate.broker.open import open_broker
from tierstate.state.errors import TimedOut
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset

port, topic, dies = sys.argv[1:]
dies_at = raw_connection.RawConnection.dies_at

def before_the_request(connection, deadline):
    print("connected", flush=True)
    sys.stdin.readline()
    if dies == "True":
        dies_at(connection, deadline)

raw_connection.RawConnection.dies_at = before_the_request
with open_broker({{"bootstrap.servers": f"{HERE}:{{port}}"}}) as broker:
    broker.control.bounds(topic, 0)
    try:
        broker.control.delete_records_on(BrokerId(1), topic, 0, Offset(10), 4.0)
    except TimedOut:
        print("gave up", flush=True)
"""


@pytest.fixture(scope="module")
def relayed() -> Iterator[tuple[KafkaSandbox, Network, int]]:
    """Run a broker that names a relay, which another network reaches, as its address."""
    ports = PortLease()
    port = ports.take()
    sandbox = KafkaSandbox(properties={"advertised.listeners": f"PLAINTEXT://{HERE}:{port}"})
    relay = Relay(port, lambda: sandbox.brokers[0].address.port, host="0.0.0.0")
    with Network() as network, sandbox:
        yield sandbox, network, port
    relay.close()
    ports.release()


def can_make_networks() -> bool:
    return shutil.which("ip") is not None and os.geteuid() == 0


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.skipif(not can_make_networks(), reason="a network of its own needs root and iproute2")
@pytest.mark.parametrize("dies", [True, False], ids=["with its deadline", "not"])
def test_a_delete_that_the_network_holds_back_past_its_deadline_is_never_carried_out(
    dies: bool, relayed: tuple[KafkaSandbox, Network, int], topic_name: str, make_topics: Callable[[KafkaSandbox], Any]
) -> None:
    """A kernel goes on sending what was not acknowledged, also after a close, unless the connection dies."""
    kafka, network, port = relayed
    topics = make_topics(kafka)
    topics.append(topics.create(topic_name), 0, 30)
    client = network.start(sys.executable, "-c", CLIENT, str(port), topic_name, str(dies))
    with client, open_broker(kafka.client_config) as broker:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        network.cut(True)
        client.stdin.write("go on\n")
        client.stdin.flush()
        assert client.stdout.readline() == "gave up\n"
        time.sleep(HELD_S)
        network.cut(False)
        deadline = time.monotonic() + LATE_S
        while (start := broker.control.bounds(topic_name, 0).local_start) == 0 and time.monotonic() < deadline:
            time.sleep(0.5)
    assert start == (0 if dies else 10)

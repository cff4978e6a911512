"""A port that does not speak Kafka is named as what it is, and no memory is taken for its answer."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from tierstate.broker.framed_socket import FIRST_FRAME, FramedSocket
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import BrokerUnavailable, CorruptData

ALERT = b"\x15\x03\x03\x00\x02\x02\x0a"
PAGE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
Answers = Callable[[bytes], FramedSocket]


@pytest.fixture
def answers() -> Iterator[Answers]:
    """Yield a function that connects to a server which sends these bytes at once, and then nothing."""
    opened: list[socket.socket] = []

    def serve(said: bytes) -> FramedSocket:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def accept() -> None:
            client, _ = server.accept()
            opened.append(client)
            client.sendall(said)

        threading.Thread(target=accept, daemon=True).start()
        clock = SystemClock()
        return FramedSocket(server.getsockname(), None, clock, clock.monotonic() + 10)

    yield serve
    for connection in opened:
        connection.close()


def received(frames: FramedSocket) -> bytearray:
    return frames.receive(SystemClock().monotonic() + 10)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (ALERT, r"TLS is spoken here: set security\.protocol"),
        (PAGE, "HTTP is spoken here, not Kafka"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no Kafka broker"),
        (struct.pack(">i", -1), "no Kafka broker"),
        (struct.pack(">i", FIRST_FRAME + 1), "no Kafka broker"),
    ],
)
def test_a_stranger_is_named_before_memory_is_taken(answers: Answers, said: bytes, why: str) -> None:
    frames = answers(said)
    tracemalloc.start()
    try:
        with pytest.raises(BrokerUnavailable, match=why):
            received(frames)
        assert tracemalloc.get_traced_memory()[1] < FIRST_FRAME
    finally:
        tracemalloc.stop()


def test_a_broker_may_send_more_once_it_is_known(answers: Answers) -> None:
    small, large = b"x" * 100, b"y" * (FIRST_FRAME + 1)
    frames = answers(b"".join(struct.pack(">i", len(frame)) + frame for frame in (small, large)))
    assert [received(frames), received(frames)] == [small, large]


def test_a_length_that_no_broker_sends_is_corrupt_data_even_then(answers: Answers) -> None:
    frames = answers(struct.pack(">i", 0) + struct.pack(">i", -1))
    received(frames)
    with pytest.raises(CorruptData, match="impossible length"):
        received(frames)

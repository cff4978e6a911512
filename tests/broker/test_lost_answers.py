"""A connection that breaks between a request and its answer: reads are repeated, DeleteRecords never is."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tierstate.broker.open import open_broker
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.sandbox.ports import PortLease
from tierstate.state.errors import TimedOut
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset

pytestmark = pytest.mark.kafka
LIST_OFFSETS, DELETE_RECORDS = 2, 21
ME = BrokerId(1)


class Relay:
    """Passes Kafka's frames on, counts requests by API key, and hangs up before an answer on demand."""

    def __init__(self, port: int, target: Callable[[], int], host: str = "127.0.0.1") -> None:
        self._target = target
        self.requests: Counter[int] = Counter()
        self.swallow: Counter[int] = Counter()
        self._listener = socket.create_server((host, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target())) as broker:
            while (request := self._frame(client)) is not None:
                (key,) = struct.unpack_from(">h", request, 4)
                self.requests[key] += 1
                broker.sendall(request)
                answer = self._frame(broker)
                if answer is None or self.swallow[key] > 0:
                    self.swallow[key] -= 1
                    return
                client.sendall(answer)

    def _frame(self, connection: socket.socket) -> bytes | None:
        with connection.makefile("rb", buffering=0) as stream:
            head = stream.read(4)
            if not head:
                return None
            frame = head
            while len(frame) < 4 + struct.unpack(">i", head)[0]:
                frame += stream.read(4 + struct.unpack(">i", head)[0] - len(frame)) or b""
            return frame


@pytest.fixture(scope="module")
def relayed() -> Iterator[tuple[KafkaSandbox, Relay]]:
    """Run a broker that tells its clients to connect through a relay."""
    ports = PortLease()
    port = ports.take()
    sandbox = KafkaSandbox(properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    relay = Relay(port, lambda: sandbox.brokers[0].address.port)  # asked while the sandbox opens, too
    with sandbox:
        yield sandbox, relay
    relay.close()
    ports.release()


@pytest.fixture
def topic(relayed: tuple[KafkaSandbox, Relay], topic_name: str, make_topics: Callable[[KafkaSandbox], Any]) -> str:
    """Create a topic with thirty records, and return its name."""
    topics = make_topics(relayed[0])
    topics.append(topics.create(topic_name), 0, 30)
    return topic_name


def test_a_delete_whose_answer_is_lost_was_sent_once_and_its_outcome_is_unknown(
    relayed: tuple[KafkaSandbox, Relay], topic: str
) -> None:
    sandbox, relay = relayed
    with open_broker(sandbox.client_config) as broker:
        broker.control.bounds(topic, 0, broker=ME)  # leaves a pooled connection, on which a read would be repeated
        before = relay.requests[DELETE_RECORDS]
        relay.swallow[DELETE_RECORDS] = 1
        with pytest.raises(TimedOut, match="outcome is unknown"):
            broker.control.delete_records_on(ME, topic, 0, Offset(10))
        assert relay.requests[DELETE_RECORDS] == before + 1
        assert broker.control.bounds(topic, 0).local_start == 10


def test_a_read_on_a_connection_that_died_is_asked_again(relayed: tuple[KafkaSandbox, Relay], topic: str) -> None:
    sandbox, relay = relayed
    with open_broker(sandbox.client_config) as broker:
        assert broker.control.bounds(topic, 0, broker=ME).high_watermark == 30
        before = relay.requests[LIST_OFFSETS]
        relay.swallow[LIST_OFFSETS] = 1
        assert broker.control.bounds(topic, 0, broker=ME).high_watermark == 30
        assert relay.requests[LIST_OFFSETS] == before + 4

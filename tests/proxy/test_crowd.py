"""A thousand connections to a `tierstate proxy` of little memory: a third never reads, a third dribbles."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.proxy.bare_fetch import fetch_of, records_of
from tests.scenarios.house import PATIENCE_S, House, Running, eventually, get, opened_house
from tierstate.proxy.budget import FREE
from tierstate.proxy.peer import HELD
from tierstate.proxy.remote_reads import KEPT_S
from tierstate.runtime.clock import SystemClock
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(280)]
MIB = 1 << 20
SIZE = 1_000
MEMORY = 64 * MIB
OWN = SIZE * (HELD + 50 * 1024)
"""The connections' own memory: one end's buffer for large frames, and that of a quiet connection (docs/proxy.md)."""
CROWDS = 5
OFFSETS = 60
"""The offsets at which clients that never read begin. Reads of the same offset are shared, and take memory once."""
ASKED = 8
"""MiB that each client that never reads asks for: more than the kernel takes of it."""


@pytest.fixture(scope="module", autouse=True)
def descriptors() -> Iterator[None]:
    """Allow eight descriptors of the proxy for each connection."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 8 * SIZE), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def house(kafka: KafkaSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened_house(kafka, tmp_path_factory.mktemp("crowd") / "house", "crowd") as made:
        yield made


@pytest.fixture(scope="module")
def remote(house: House) -> str:
    """Return a topic whose first 4 MiB are in the remote tier alone."""
    topic = house.create("remote", internal_segment_bytes=str(MIB))
    producer = Producer({**house.kafka.client_config, "batch.num.messages": 1})
    for _ in range(5 * 16):
        producer.produce(topic, os.urandom(MIB // 16), partition=0)
    assert producer.flush(60) == 0
    with house.agent():
        eventually(lambda: len(house.logs(topic)) == 1)
    return topic


@pytest.fixture(scope="module")
def local(house: House) -> str:
    topic = house.create("local")
    house.append(topic, 100)
    return topic


class Proxy:
    """A proxy process: its clients, and the memory that it takes."""

    def __init__(self, running: Running, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address, self._pid = (host, int(port)), running.process.pid
        self._management = running.said()["management"]

    @contextmanager
    def clients(self, count: int) -> Iterator[list[socket.socket]]:
        with ExitStack() as opened:
            yield [opened.enter_context(socket.create_connection(self._address, timeout=60)) for _ in range(count)]

    def reads_all_there_is(self, topic: str, seconds: float = PATIENCE_S) -> None:
        with self.clients(1) as (client,):

            def asked() -> int:
                client.sendall(fetch_of((topic, 0, 0), max_wait_ms=100))
                return records_of(client)[topic, 0]

            eventually(asked, seconds)

    def settles(self) -> None:
        """Wait until its memory has not changed for a second."""

        def same() -> bool:
            before = self.counts("memory_bytes")
            SystemClock().sleep(1.0)
            return before == self.counts("memory_bytes")

        eventually(same)

    def resident(self, line: str = "VmRSS") -> int:
        """Return its memory in bytes. ``VmHWM`` is its peak."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(each.split()[1]) * 1024 for each in lines if each.startswith(line))

    def counts(self, name: str) -> float:
        page = get(f"http://{self._management}/metrics")[1].decode()
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"tierstate_proxy_{name} "))


@pytest.fixture
def proxy(house: House) -> Iterator[Proxy]:
    running, bootstrap = house.proxy("--set", f"proxy.memory={MEMORY}", "--set", "cache.memory=8MiB")
    yield Proxy(running, bootstrap)
    running.stop()


def test_it_keeps_to_its_memory_and_answers_clients_that_read(proxy: Proxy, remote: str, local: str) -> None:
    """Crowds follow each other: memory of one is used again by the next."""
    proxy.reads_all_there_is(remote)
    before = proxy.resident()
    for _ in range(CROWDS):
        with proxy.clients(SIZE) as clients:
            deaf, dribbling, reading = (clients[at::3] for at in range(3))
            for number, each in enumerate(deaf):
                each.sendall(ASKED * fetch_of((remote, 0, number % OFFSETS), max_wait_ms=100))
            eventually(lambda: proxy.counts("memory_bytes") > MEMORY // 2)
            request = FREE.to_bytes(4, "big") + fetch_of((remote, 0, 0), max_wait_ms=100)[4:]
            for at in range(20):
                for each in dribbling:
                    each.sendall(request[at : at + 1])
            for each in reading:
                each.sendall(fetch_of((local, 0, 0), (remote, 0, 0), max_wait_ms=100))
            assert all(records_of(each)[local, 0] for each in reading)
            assert proxy.counts("connections") == SIZE
        eventually(lambda: proxy.counts("connections") == 0)
        assert proxy.counts("memory_bytes") == 0
        most = proxy.resident("VmHWM") - before
        assert MEMORY // 2 < most < MEMORY + OWN
    proxy.reads_all_there_is(remote)


def test_clients_that_never_read_do_not_block_remote_reads_of_others(proxy: Proxy, remote: str) -> None:
    """They are closed while others need their memory; the records read ahead for them are kept longer."""
    with ExitStack() as crowds:
        while MEMORY * 3 // 4 - proxy.counts("memory_bytes") >= MIB:
            for number, each in enumerate(crowds.enter_context(proxy.clients(SIZE // 10))):
                each.sendall(10 * ASKED * fetch_of((remote, 0, number % OFFSETS), max_wait_ms=100))
            proxy.settles()
        proxy.reads_all_there_is(remote, seconds=KEPT_S * 2 / 3)
        assert proxy.counts("turned_away_total") > 0

"""A proxy in this process, before a real cluster; the test controls its reader of the remote tier."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.consumer.tiered_cluster import TieredCluster
from tests.proxy.serving import serving
from tierstate.app.opening.connection import Connection
from tierstate.fetch.piece import Fetched
from tierstate.fetch.reader import LogReader
from tierstate.proxy.server import ProxyServer
from tierstate.runtime.settings_load import load_settings


class HeldReader:
    """The real reader; the pool's thread calls ``before`` prior to each remote fetch, and it may wait or raise."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.before: Callable[[str, int, int], None] = lambda topic, partition, offset: None
        self.fetches: list[tuple[int, int, int]] = []
        """Partition, offset, and the bytes asked for."""

    def fetch(self, topic: str, partition: int, offset: int, *, max_bytes: int, **options: Any) -> Fetched:
        self.fetches.append((partition, offset, max_bytes))
        self.before(topic, partition, offset)
        return self._reader.fetch(topic, partition, offset, max_bytes=max_bytes, **options)

    def let_go(self) -> None:
        self.before = lambda topic, partition, offset: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@dataclass
class RunningProxy:
    server: ProxyServer
    reader: HeldReader
    said: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return str(self.server.address)

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Yield a bare connection to the bootstrap listener."""
        host, _, port = self.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            yield client

    @contextmanager
    def consumer(self, *places: tuple[str, int, int], **more: Any) -> Iterator[Any]:
        """Yield Kafka's own consumer, assigned to (topic, partition, offset)."""
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "through-the-proxy",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        made = Consumer(config)
        try:
            made.assign([TopicPartition(*place) for place in places])
            yield made
        finally:
            made.close()


@contextmanager
def running(cluster: TieredCluster, *sets: str) -> Iterator[RunningProxy]:
    """``sets`` are settings as for the command line's ``--set``."""
    settings = load_settings(cluster.settings_file, sets, {}, searched=())
    with ExitStack() as opened:
        connection = opened.enter_context(Connection(settings))
        reader = HeldReader(opened.enter_context(_closing(connection.reader(connection.view()))))
        log_lines: list[tuple[str, dict[str, object]]] = []
        server = opened.enter_context(
            serving(
                reader,
                connection.control.cluster(),
                settings.kafka,
                settings.proxy,
                lambda event, **facts: log_lines.append((event, facts)),
            )
        )
        try:
            yield RunningProxy(server, reader, log_lines)
        finally:
            reader.let_go()


@contextmanager
def _closing(reader: LogReader) -> Iterator[LogReader]:
    try:
        yield reader
    finally:
        reader.close()


class Held(threading.Event):
    """An event: once it is set, all that wait go on."""

    def __call__(self, topic: str, partition: int, offset: int) -> None:
        assert self.wait(60), "nobody let it go on"


def received(consumer: Any, into: dict[int, list[int]], errors: list[KafkaError] | None = None) -> None:
    """Poll once; add the offsets by partition."""
    for message in consumer.consume(500, 0.2):
        if (error := message.error()) is not None:
            assert errors is not None, error
            errors.append(error)
        else:
            into.setdefault(message.partition(), []).append(message.offset())

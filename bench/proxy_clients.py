"""The clients of `proxy.py`, each a process of its own: ``python -m bench.proxy_clients '["tail", …]'``."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from .agent_site import cpu_s
from .consuming import WARM

FETCH_BYTES = 4 << 20
UNMEASURED = 20
"""The number of records of the tail before those that count."""


@dataclass(frozen=True, slots=True)
class Read:
    """One run: records a second, CPU seconds of the client and of the proxy."""

    rate: float
    client_cpu: float
    proxy_cpu: float = 0.0


def read(bootstrap: str, topic: str, count: int, proxy: int | None = None, beside: Sequence[str] | None = None) -> Read:
    """Read ``count`` records of the topic, from its beginning.

    ``beside``: other topics of the consumer; if it is given, even without topics, each record is asked for its topic.
    """
    before = 0.0 if proxy is None else cpu_s(proxy)
    rate, client = _by_a_process("read", bootstrap, topic, count, None if beside is None else list(beside))
    after = 0.0 if proxy is None else cpu_s(proxy)
    return Read(rate, client, after - before)


def fetched(bootstrap: str, topic: str, count: int) -> tuple[int, float]:
    """Return bytes of bare Fetch answers, nothing decoded, up to record ``count``; and bytes a second."""
    size, rate = _by_a_process("fetch", bootstrap, topic, count)
    return int(size), float(rate)


def tail(bootstrap: str, topic: str, count: int) -> list[float]:
    """Return the seconds from `produce` to the record's `poll`, one record at a time, sorted."""
    return sorted(_by_a_process("tail", bootstrap, topic, count))


def first(bootstrap: str, topic: str) -> float:
    """Return the seconds from `assign` at offset 0 to the first record."""
    return float(_by_a_process("first", bootstrap, topic))


@contextmanager
def crowd(bootstrap: str, topic: str, size: int) -> Iterator[None]:
    """Open ``size`` connections: a third asked for the topic and never reads, a third sends a byte each second."""
    command = [sys.executable, "-m", "bench.proxy_clients", json.dumps(["crowd", bootstrap, topic, size])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _by_a_process(*said: Any) -> Any:
    command = [sys.executable, "-m", "bench.proxy_clients", json.dumps(said)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


def _read(bootstrap: str, topic: str, count: int, beside: list[str] | None) -> tuple[float, float]:
    total, began, cpu = 0, 0.0, time.process_time()
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    with closing(Consumer({**config, "auto.offset.reset": "error"})) as consumer:
        consumer.assign([TopicPartition(name, 0, 0) for name in (topic, *(beside or ()))])
        while total < count:
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    raise SystemExit(message.error().str())
                message.value()
                total += beside is None or message.topic() == topic
            if not began and total >= WARM:
                began, at = time.monotonic(), total
        rate = (total - at) / (time.monotonic() - began)
    return rate, time.process_time() - cpu


def _fetch(bootstrap: str, topic: str, count: int) -> tuple[int, float]:
    buffer = memoryview(bytearray(FETCH_BYTES + (1 << 20)))
    offset = fetched_bytes = 0
    with _connected(bootstrap) as server:
        began = time.monotonic()
        while offset < count:
            server.sendall(_fetch_request(topic, offset, FETCH_BYTES))
            server.recv_into(buffer, 4, socket.MSG_WAITALL)
            (size,) = struct.unpack_from(">i", buffer)
            server.recv_into(buffer, size, socket.MSG_WAITALL)
            # correlation, throttle, one topic by name, one partition: number, error, two offsets, aborted
            at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
            error, _, _, aborted = struct.unpack_from(">hqqi", buffer, at)
            if error:
                raise SystemExit(f"Fetch was answered with error {error}")
            at += 22 + 16 * max(0, aborted)
            (stored,) = struct.unpack_from(">i", buffer, at)
            at, end = at + 4, at + 4 + stored
            while at + 61 <= end:
                base, length = struct.unpack_from(">qi", buffer, at)
                if at + 12 + length > end:
                    break
                offset = base + int(struct.unpack_from(">i", buffer, at + 23)[0]) + 1
                at += 12 + length
            fetched_bytes += stored
        return fetched_bytes, fetched_bytes / (time.monotonic() - began)


def _first(bootstrap: str, topic: str) -> float:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})) as consumer:
        consumer.list_topics(topic, 20)
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(5.0)) is None or message.error() is not None:
            pass
        return time.monotonic() - began


def _tail(bootstrap: str, topic: str, count: int) -> list[float]:
    waited: list[float] = []
    config = {"bootstrap.servers": bootstrap, "group.id": "tail", "auto.offset.reset": "latest"}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    with closing(Consumer({**config, "fetch.queue.backoff.ms": 1})) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)[1]
        consumer.assign([TopicPartition(topic, 0, end)])
        for number in range(UNMEASURED + count):
            began = time.monotonic()
            producer.produce(topic, b"x" * 100, partition=0)
            producer.poll(0)
            while (message := consumer.poll(5.0)) is None or message.error() is not None:
                pass
            if number >= UNMEASURED:
                waited.append(time.monotonic() - began)
    producer.flush(10)
    return waited


def _crowd(bootstrap: str, topic: str, size: int) -> None:
    """Hold the connections until the standard input is closed."""
    connections = [_connected(bootstrap) for _ in range(size)]
    for connection in connections[::3]:
        connection.sendall(_fetch_request(topic, 0, 1 << 26))
    print("there", flush=True)
    at = 0
    dribbling = struct.pack(">ihhih", 1 << 20, 18, 0, 1, 30_000)
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        for connection in connections[1::3]:
            connection.sendall(dribbling[at : at + 1] or b"x")
        at += 1


def _connected(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)))


def _fetch_request(topic: str, offset: int, most: int) -> bytes:
    """Return a request of version 4, as Kafka's FetchRequest.json has it, for the topic's partition 0."""
    name = topic.encode()
    fetch = struct.pack(">hhih", 1, 4, 1, -1) + struct.pack(">iiiib", -1, 500, 1, most, 0)
    fetch += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, offset, most)
    return struct.pack(">i", len(fetch)) + fetch


PROGRAMS: dict[str, Callable[..., Any]] = {"read": _read, "fetch": _fetch, "first": _first, "tail": _tail}

if __name__ == "__main__":
    which, *arguments = json.loads(sys.argv[1])
    if which == "crowd":
        _crowd(*arguments)
    else:
        print(json.dumps(PROGRAMS[which](*arguments)))

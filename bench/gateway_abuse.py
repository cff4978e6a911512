"""A reader of the gateway's local tier beside those who abuse it: its 99th percentile, and alone.

The reader has one connection and asks for 64 KiB of one local topic as stored batches, one call after the other, for
five seconds; beside each abuse it does so too, alone first and then beside, three times in turns. Who abuses is a
process of its own, at another address of this machine (127.0.0.2), so that what one address may open is not the
reader's. The gateway is as it comes, its store is S3 and answers 1.5 s late; all share two cores.

    dribblers   500 connections that send one byte of a request's head a second
    deaf        48 connections that ask for a MiB of JSON again and again, and read nothing
    silent      1,000 connections that never say anything
    wrong       8 connections that ask, one call after the other, for what is refused
    cold        64 connections that read the remote tier, each another place
    bombs       4 connections that ask for one record of a batch that unpacks to 150 MB, as JSON
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.store_server import toxiproxy
from tierstate.sandbox.kafka import KafkaSandbox

from .bucket import bucket
from .consumer import SIZES, TieredPlace
from .gateway import FORMS, gateway_of
from .http_clients import Taken, taken
from .proxy import EAGER, TRIMMED, by_way_of
from .ranged_reads import far
from .rows import Row

LATE_MS, RUNS, SECONDS, SETTLED_S = 1_500, 3, 5.0, 1.0
ELSEWHERE = "127.0.0.2"
BATCHES, JSON = FORMS["batches"][0], FORMS["ndjson"][0]
LOCAL, COLD, BOMBS = "bench-local", "bench-cold", "bench-bombs"


def measure(quick: bool = False) -> list[Row]:
    """About 3 minutes."""
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name:
        folder = Path(name)
        with KafkaSandbox() as kafka, bucket(folder) as s3, toxiproxy(folder) as slow:
            place = TieredPlace(kafka, folder / "s3", EAGER, s3.section)
            value_bytes, codec, count = SIZES["1 KB lz4"]
            place.fill(LOCAL, value_bytes, codec, count // 10)
            place.fill(COLD, value_bytes, codec, count, **TRIMMED)
            _fill_with_bombs(kafka)
            place.copy()
            away = far(slow.url, s3.server.address, LATE_MS, None)
            with gateway_of(by_way_of(place.settings, s3, away)) as address:
                return [_beside(address, each, 1 if quick else RUNS, quick) for each in ABUSES]


def _fill_with_bombs(kafka: KafkaSandbox) -> None:
    admin = AdminClient({**kafka.client_config})
    admin.create_topics([NewTopic(BOMBS, 1, 1)])[BOMBS].result(30)
    largest = {"message.max.bytes": 200_000_000, "batch.size": 200_000_000, "compression.type": "zstd"}
    producer = Producer({**kafka.client_config, **largest, "linger.ms": 2_000})
    for _ in range(150):
        producer.produce(BOMBS, bytes(1_000_000))
    producer.flush(60)


def _beside(address: str, abuse: str, runs: int, quick: bool) -> Row:
    calls = [
        f"/v1/topics/{LOCAL}/partitions/0/records?tier=local&max_bytes=65536&offset={at}" for at in range(0, 6400, 64)
    ]
    alone, beside = list[Taken](), list[Taken]()
    for _ in range(runs):
        alone.append(asyncio.run(taken(address, calls, BATCHES, 1, 1.0 if quick else SECONDS)))
        with _abused(address, abuse):
            beside.append(asyncio.run(taken(address, calls, BATCHES, 1, 1.0 if quick else SECONDS)))
    p99, quiet = (statistics.median(each.p99 for each in found) * 1e3 for found in (beside, alone))
    return Row(f"p99 beside {abuse}", p99, "ms, less is better", quiet, "alone", "≤ 2x")


@contextmanager
def _abused(address: str, abuse: str) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gateway_abuse", address, abuse], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield
        finally:
            process.kill()


# --- who abuses ------------------------------------------------------------------------------------------------------

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


async def _forever(count: int, connect: Connect, act: Callable[[Streams, int], Awaitable[None]]) -> None:
    """``count`` at a time; one that is thrown out comes again."""

    async def one(number: int) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, ConnectionError):
                streams = await connect()
                await act(streams, number)
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _dribble(streams: Streams, number: int) -> None:
    for byte in itertools.cycle(b"GET /v1/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Padding: " + b"a" * 4000):
        streams[1].write(bytes([byte]))
        await streams[1].drain()
        await asyncio.sleep(1.0)


async def _ask_and_read_nothing(streams: Streams, number: int) -> None:
    streams[1].transport.pause_reading()  # type: ignore[attr-defined]
    for offset in itertools.count(0, 64):
        streams[1].write(_request(f"{LOCAL}/partitions/0/records?max_bytes=1048576&offset={offset % 6400}", JSON))
        await streams[1].drain()
        await asyncio.sleep(0.1)


async def _say_nothing(streams: Streams, number: int) -> None:
    await streams[0].read()


async def _ask_for_what_is_refused(streams: Streams, number: int) -> None:
    for query in itertools.cycle(("offset=x", "max_recrods=1", "offset=-7", "offset=0&max_bytes=none")):
        streams[1].write(_request(f"{LOCAL}/partitions/0/records?{query}", JSON))
        await _answer(streams[0])


async def _read_cold(streams: Streams, number: int) -> None:
    for at in itertools.count(number * 3_000, 1_000):
        streams[1].write(
            _request(f"{COLD}/partitions/0/records?tier=remote&max_bytes=65536&offset={at % 200_000}", BATCHES)
        )
        await _answer(streams[0])


async def _ask_for_bombs(streams: Streams, number: int) -> None:
    while True:
        streams[1].write(_request(f"{BOMBS}/partitions/0/records?max_records=1&max_bytes=1&offset=0", JSON))
        await _answer(streams[0])


ABUSES = {
    "dribblers": (500, _dribble),
    "deaf": (48, _ask_and_read_nothing),
    "silent": (1_000, _say_nothing),
    "wrong": (8, _ask_for_what_is_refused),
    "cold": (64, _read_cold),
    "bombs": (4, _ask_for_bombs),
}


def _request(path: str, media_type: str) -> bytes:
    return f"GET /v1/topics/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {media_type}\r\n\r\n".encode()


async def _answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


async def _abuse(address: str, name: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    count, act = ABUSES[name]

    async def connect() -> Streams:
        return await asyncio.open_connection(host, int(port), local_addr=(ELSEWHERE, 0))

    working = asyncio.ensure_future(_forever(count, connect, act))
    await asyncio.sleep(SETTLED_S)
    os.write(1, b"begun\n")
    await working


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    asyncio.run(_abuse(*sys.argv[1:]))

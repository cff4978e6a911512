"""The 99th percentile of one reader of the gateway while other clients abuse it; the peer is the reader alone.

The reader asks for 64 KiB of a local topic as stored batches, one call after the other. The store is S3 and answers
1.5 s late. Abusers, from another address:

    dribblers   500 connections that send one byte of a request's head a second
    stalled     48 connections that ask for 1 MiB of JSON again and again, and read nothing
    silent      1,000 connections that send nothing
    wrong       8 connections whose requests are refused
    cold        64 connections that read the remote tier, each at a new place
    bombs       4 connections that ask for one record of a batch that unpacks to 150 MB, as JSON
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.store_server import toxiproxy
from tierstate.api.media import BATCHES
from tierstate.sandbox.kafka import KafkaSandbox

from .abusers import ABUSES, BOMBS, COLD, LOCAL
from .bucket import bucket
from .consumer import SIZES, TieredPlace
from .gateway import gateway_of
from .http_clients import Taken, taken
from .proxy import EAGER, TRIMMED, by_way_of
from .ranged_reads import far
from .rows import Row

LATE_MS, RUNS, SECONDS = 1_500, 5, 5.0


def measure(quick: bool = False) -> list[Row]:
    """The run takes about 6 minutes."""
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
    query = "tier=local&max_bytes=65536&offset="
    calls = cycle([f"/v1/topics/{LOCAL}/partitions/0/records?{query}{at}" for at in range(0, 6400, 64)])
    alone, beside = list[Taken](), list[Taken]()
    for _ in range(runs):
        alone.append(asyncio.run(taken(address, calls, BATCHES, 1, 1.0 if quick else SECONDS)))
        with _abused(address, abuse):
            beside.append(asyncio.run(taken(address, calls, BATCHES, 1, 1.0 if quick else SECONDS)))
    p99, quiet = (statistics.median(each.p99 for each in found) * 1e3 for found in (beside, alone))
    return Row(f"p99 with {abuse}", p99, "ms, less is better", quiet, "alone", "≤ 2x")


@contextmanager
def _abused(address: str, abuse: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-m", "bench.abusers", address, abuse], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield
        finally:
            process.kill()

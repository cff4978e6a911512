"""Read a copied segment from S3: whole, and 64 KiB at random; chunks of 4 MiB, none of them in the cache.

The store is a versitygw on this machine; "far" adds 30 ms of delay and carries 50 MB/s a connection. MB/s count the
plain log. GETs of the peer are boto3's, without a check or decryption. "4 at a time" are requests.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from Crypto.PublicKey import RSA

from tests.servers.store_server import toxiproxy
from tierstate.state.segment import Compression
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.encryption import SegmentCipher
from tierstate.storage.segment.keyring import KeyPair, KeyRing
from tierstate.storage.segment.log_chunks import windows
from tierstate.storage.segment.manifest import SegmentManifest
from tierstate.storage.segment.reader import PARALLEL, SegmentReader
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log

from .bucket import BUCKET, KEYS, REGION, bucket, client_of
from .rows import RUNS, Row

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LOG_BYTES = 256 * MIB
QUICK_BYTES = 32 * MIB
READ_BYTES = 64 * 1024
RANDOM_READS = 200
CACHE_BYTES = 64 * MIB

Range = tuple[int, int]
"""A range of an object: its first byte, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Written:
    """One log object, and its reader."""

    store: S3Store
    base_key: str
    manifest: SegmentManifest
    keys: KeyRing

    def reader(self, parallel: int = PARALLEL, cache: ChunkCache | None = None) -> SegmentReader:
        cache = cache or ChunkCache(CACHE_BYTES)
        return SegmentReader(self.store, self.base_key, self.manifest, keys=self.keys, cache=cache, parallel=parallel)

    @property
    def ranges(self) -> list[Range]:
        """Return the ranges that a whole read asks of the store."""
        chunks = list(self.manifest.chunks)
        return [(window[0].stored_start, window[-1].stored_stop) for window in windows(chunks)]


def measure(quick: bool = False) -> list[Row]:
    """Plain, zstd, AES-GCM: one request at a time, four, random reads. Then from afar."""
    with (
        tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name,
        bucket(Path(name)) as s3,
        toxiproxy(Path(name)) as proxy,
    ):
        client = client_of(s3.server.url)
        store = _store(s3.server.url)
        runs = 1 if quick else RUNS
        rows = []
        for what, compression, encrypted in FORMS:
            log = write(store, what.replace(" ", "-"), QUICK_BYTES if quick else LOG_BYTES, compression, encrypted)
            rows += _whole(what, log, client, runs)
            rows.append(_random(what, log, client, RANDOM_READS // 20 if quick else RANDOM_READS))
        log = write(store, "small", QUICK_BYTES, Compression.ZSTD, False, MIB)
        rows.append(_random("zstd, chunks of 1 MiB", log, client, RANDOM_READS // 20 if quick else RANDOM_READS))
        away = far(proxy.url, s3.server.address)
        log = write(store, "far", QUICK_BYTES if quick else LOG_BYTES // 2, Compression.NONE, False)
        with closing(_store(away)) as slow:
            rows += _whole("plain, far", replace(log, store=slow), client_of(away), runs)
        store.close()
    return rows


def far(proxy: str, server: str, late_ms: int = 30, kb_a_second: int | None = 50_000) -> str:
    """Return the address of a store that answers later, with limited bandwidth for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    _post(f"{proxy}/proxies", {"name": "far", "listen": address, "upstream": server})
    toxics = [("latency", {"latency": late_ms})]
    if kb_a_second is not None:
        toxics.append(("bandwidth", {"rate": kb_a_second}))
    for kind, attributes in toxics:
        _post(f"{proxy}/proxies/far/toxics", {"type": kind, "stream": "downstream", "attributes": attributes})
    return f"http://{address}"


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


FORMS = (
    ("plain", Compression.NONE, False),
    ("zstd", Compression.ZSTD, False),
    ("plain and AES-GCM", Compression.NONE, True),
    ("zstd and AES-GCM", Compression.ZSTD, True),
)


def write(
    store: S3Store, key: str, log_bytes: int, compression: Compression, encrypted: bool, chunk_bytes: int = 4 * MIB
) -> Written:
    """Write a segment whose log is no log, but compresses about as well as records do."""
    pair = RSA.generate(2048)
    keys = KeyRing("bench", {"bench": KeyPair(pair.public_key(), pair)})
    cipher, encryption = SegmentCipher.new(keys, os.urandom) if encrypted else (None, None)
    source = SegmentSource(_log(log_bytes), log_bytes, b"", b"", b"", b"0\n1\n0 0\n", None)
    log = put_log(store, key, source, compression, cipher=cipher, chunk_bytes=chunk_bytes)
    indexes = put_indexes(store, key, source, cipher=cipher)
    manifest = SegmentManifest(log.chunks, indexes.spans, compression is Compression.ZSTD, encryption, None)
    return Written(store, key, manifest, keys)


def _log(size: int) -> Iterator[bytes]:
    chance = random.Random(7)
    words = [chance.randbytes(chance.randint(3, 9)) for _ in range(2000)]
    block = b"".join(chance.choices(words, k=8 * MIB // 5))[: 8 * MIB]
    for at in range(0, size, len(block)):
        yield block[: size - at]


def _whole(what: str, log: Written, client: S3Client, runs: int) -> list[Row]:
    size = log.manifest.chunks.file_bytes
    cache = ChunkCache(CACHE_BYTES)
    sides: dict[str, Callable[[], int]] = {
        "bare": lambda: sum(len(_get(client, log.base_key, each)) for each in log.ranges),
        "one": lambda: sum(map(len, log.reader(1, cache).read_log())),
        "four": lambda: sum(map(len, log.reader(cache=cache).read_log())),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(runs + 1):
        for side, read in sides.items():
            began = time.perf_counter()
            data = read()
            if side != "bare" and data != size:
                raise SystemExit(f"{what}: read {data} of {size} bytes")
            if turn or runs == 1:  # the first turn warms up
                rates[side].append(size / 1e6 / (time.perf_counter() - began))
    if size > 2 * CACHE_BYTES and cache.counts.hits:
        raise SystemExit(f"{what}: {cache.counts.hits} chunks came from the cache")
    bare, one, four = (statistics.median(rates[side]) for side in sides)
    goal = ">= 0.9x" if what == "plain" else ""
    return [
        Row(f"read {what}, whole", one, "MB/s", bare, "bare GETs of the same ranges", goal),
        Row(f"read {what}, whole, {PARALLEL} at a time", four, "MB/s"),
    ]


def _random(what: str, log: Written, client: S3Client, reads: int) -> Row:
    chance = random.Random(7)
    ours, bare = [], []
    for _ in range(reads):
        start = chance.randrange(log.manifest.chunks.file_bytes - READ_BYTES)
        chunk = log.manifest.chunks.chunk(start // log.manifest.chunks.chunk_bytes)
        if chunk.plain_stop < start + READ_BYTES:
            continue
        reader = log.reader()
        began = time.perf_counter()
        _get(client, log.base_key, (chunk.stored_start, chunk.stored_stop))
        between = time.perf_counter()
        if len(b"".join(reader.plain_range(start, start + READ_BYTES, alone=True))) != READ_BYTES:
            raise SystemExit(f"{what}: a short read")
        ours.append(time.perf_counter() - between)
        bare.append(between - began)
    return Row(
        f"read {what}, 64 KiB at random, median",
        statistics.median(ours) * 1e3,
        "ms, less is better",
        statistics.median(bare) * 1e3,
        "one bare GET of the chunk",
        "<= + 2 ms",
    )


def _get(client: S3Client, base_key: str, range: Range) -> bytes:
    answer = client.get_object(Bucket=BUCKET, Key=f"{base_key}.log", Range=f"bytes={range[0]}-{range[1] - 1}")
    return answer["Body"].read()


def _store(endpoint: str) -> S3Store:
    return S3Store(BUCKET, "", StoreOptions(endpoint, REGION, credentials=KEYS))

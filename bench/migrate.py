"""Mirror 1 GiB of objects of segments in another bucket, as `tierstate migrate` does, and a bare copy by boto3.

Both copy as many objects at a time. A move also lists both buckets, and proves each copy by its CRC-32C.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

from tests.servers.store_server import StoreServer, versitygw
from tierstate.state.offsets import TimestampMs
from tierstate.storage.mirror import AT_ONCE, Mirror
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.open import open_store
from tierstate.storage.options import StoreOptions

from .bucket import KEYS, REGION, client_of
from .rows import RUNS, Row

LARGE, SMALL, SMALL_BYTES = 32, 64, 20_000
SOURCE = "source"


def measure(quick: bool = False) -> list[Row]:
    """About 4 minutes, 8 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="tierstate-bench-") as name, ExitStack() as opened:
        one, other = (opened.enter_context(versitygw(Path(name) / each, *KEYS)) for each in ("one", "other"))
        client_of(one.url).create_bucket(Bucket=SOURCE)
        sizes = [(MIB if quick else 32 * MIB, LARGE), (SMALL_BYTES, SMALL)]
        with closing(_store(one, SOURCE)) as source:
            for size, objects in sizes:
                for number in range(objects):
                    source.put_stream(f"topic-{size}/0/{number:020d}.log", (os.urandom(size),))
        megabytes = sum(size * objects for size, objects in sizes) / 1e6
        rows = []
        for what, server in (("by the store", one), ("streamed", other)):
            rows.append(_compared(what, one, server, megabytes, 1 if quick else RUNS))
        return rows


def _compared(what: str, source: StoreServer, target: StoreServer, megabytes: float, runs: int) -> Row:
    numbers = count()
    spent: dict[Callable[..., None], list[float]] = {_moved: [], _bare: []}
    for turn in range(runs + 1):
        for side, seconds in spent.items():
            bucket = f"{what.replace(' ', '-')}-{next(numbers)}"
            client_of(target.url).create_bucket(Bucket=bucket)
            began = time.perf_counter()
            side(source, target, bucket)
            if turn:
                seconds.append(time.perf_counter() - began)
    ours, bare = (megabytes / statistics.median(seconds) for seconds in spent.values())
    return Row(what, ours, "MB a second", bare, "boto3", ">= 0.9x")


def _moved(source: StoreServer, target: StoreServer, bucket: str) -> None:
    with closing(_store(source, SOURCE)) as before, closing(_store(target, bucket)) as after:
        for _ in Mirror(before, after, lambda key: True).steps(TimestampMs(0)):
            pass


def _store(server: StoreServer, bucket: str) -> ObjectStore:
    options = StoreOptions(endpoint=server.url, region=REGION, credentials=KEYS)
    return open_store(f"s3://{bucket}", options)


def _bare(source: StoreServer, target: StoreServer, bucket: str) -> None:
    before, after = client_of(source.url), client_of(target.url)
    keys = [each["Key"] for each in before.list_objects_v2(Bucket=SOURCE)["Contents"]]

    def by_store(key: str) -> None:
        after.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": SOURCE, "Key": key})

    def streamed(key: str) -> None:
        after.upload_fileobj(before.get_object(Bucket=SOURCE, Key=key)["Body"], bucket, key)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(by_store if source is target else streamed, keys))

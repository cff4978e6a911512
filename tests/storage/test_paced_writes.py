"""The byte rate of copies as a real S3 server sees it: parts that are sent again count, too."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.storage.faulty_proxy import FaultyProxy
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import Event, WriteRepeated
from tierstate.runtime.quota import ByteQuota, repeats_taken_from
from tierstate.state.segment import Compression
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log

RATE = 16 * MIB
LOG_BYTES = 28 * MIB
INDEX_BYTES = 9 * MIB


@pytest.mark.parametrize("failure", ["500", "503"])
def test_a_store_never_gets_more_than_the_rate_and_one_seconds_worth(
    failure: str, faulty_proxy: FaultyProxy, s3_bucket: str
) -> None:
    quota, events = ByteQuota(SystemClock(), RATE), list[Event]()
    took, failed, arrived = repeats_taken_from(quota), set[str](), list[tuple[float, int]]()

    def listen(event: Event) -> None:
        events.append(event)
        took(event)

    def fault(method: str, path: str) -> str | None:
        if method != "PUT":
            return None
        arrived.append((time.monotonic(), int(faulty_proxy.seen[-1][1].get("content-length", 0))))
        again = path in failed
        failed.add(path)
        return None if again else failure

    options = StoreOptions(faulty_proxy.endpoint, "us-east-1", credentials=("test", "test"), concurrency=1)
    store = S3Store(s3_bucket, "", options, listener=listen)
    faulty_proxy.fault, began = fault, time.monotonic()
    source = SegmentSource(pieces(), LOG_BYTES, bytes(INDEX_BYTES), b"", b"", b"", None)
    put_log(store, "copied", source, Compression.NONE, part_bytes=8 * MIB, pace=quota.take)
    put_indexes(store, "copied", source, pace=quota.take)
    store.close()

    assert sum(event.bytes for event in events if isinstance(event, WriteRepeated)) == LOG_BYTES + INDEX_BYTES
    assert sum(size for _, size in arrived) == 2 * (LOG_BYTES + INDEX_BYTES)
    total = 0
    for when, size in arrived:
        total += size
        assert total <= RATE * (when - began) + RATE


def pieces() -> Iterator[bytes]:
    for _ in range(LOG_BYTES // MIB):
        yield bytes(MIB)

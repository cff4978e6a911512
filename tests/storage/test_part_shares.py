"""Uploads share few parts, so memory is bounded however many there are; none is ever kept from sending."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import TimedOut, Unavailable
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.parts import MORE_PARTS, PartShares, UploadShare, parts_of
from tierstate.storage.s3 import S3Store

from .faulty_proxy import FaultyProxy

EACH = 4
MOST = EACH + MORE_PARTS
PART = 5 * MIB
LONG_S = 30.0
ONE = bytes(MIB)


def blocked(act: Callable[[], object]) -> threading.Thread:
    """Return a thread that has begun ``act``."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def can_take(share: UploadShare) -> bool:
    """Return whether it gets one part more while none is given back; otherwise it is left waiting."""
    thread = blocked(share.take)
    thread.join(0.2)
    return not thread.is_alive()


@pytest.mark.parametrize(("uploads", "own"), [(1, 4), (2, 3), (3, 2), (4, 1), (6, 1)], ids=str)
def test_an_upload_has_its_share_of_the_parts_and_no_more(uploads: int, own: int) -> None:
    shares = PartShares(EACH)
    with ExitStack() as opened:
        first, *_ = [opened.enter_context(shares.upload()) for _ in range(uploads)]
        for _ in range(own):
            first.take()
        assert not can_take(first)
        first.give_back()


def test_all_uploads_together_never_have_more_parts_than_are_stated() -> None:
    shares = PartShares(EACH)
    alive, most, lock = 0, 0, threading.Lock()

    def upload(number: int) -> int:
        nonlocal alive, most
        sent = 0
        with shares.upload() as share:
            for part in parts_of((b"x" * 700 for _ in range(30)), 1000, share):
                with lock:
                    alive += 1
                    most = max(most, alive)
                sent += len(part.data)
                with lock:
                    alive -= 1
                share.give_back()
        return sent

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(upload, range(40))) == [21_000] * 40
    assert most <= MOST


def test_the_first_to_wait_has_the_next_part() -> None:
    shares, order = PartShares(1), list[int]()
    with ExitStack() as opened:
        holders = [opened.enter_context(shares.upload()) for _ in range(1 + MORE_PARTS)]
        for holder in holders:
            holder.take()
        threads = []
        for number in range(4):
            share = opened.enter_context(shares.upload())

            def wait(number: int = number, share: UploadShare = share) -> None:
                share.take()
                order.append(number)
                share.give_back()

            threads.append(blocked(wait))
            for _ in range(30_000):
                if len(shares._line) > number:
                    break
                threads[-1].join(0.001)
        holders[0].give_back()
        for thread in threads:
            thread.join(LONG_S)
    assert order == [0, 1, 2, 3]


def test_an_upload_that_ends_gives_back_what_it_holds() -> None:
    shares = PartShares(1)

    def fail() -> None:
        with shares.upload() as share:
            assert can_take(share)
            raise TimedOut("the copy took too long")

    for _ in range(10):
        with pytest.raises(TimedOut):
            fail()


def test_an_upload_that_holds_its_share_for_ever_does_not_stop_the_others() -> None:
    shares = PartShares(EACH)
    with shares.upload() as stalled:
        for _ in range(EACH):
            stalled.take()
        with shares.upload() as share:
            for _ in range(50):
                share.take()
                share.give_back()


def test_a_part_is_the_last_one_exactly_when_nothing_follows() -> None:
    def cut(*pieces: bytes) -> list[tuple[bytes, bool]]:
        parts = []
        with PartShares(1).upload() as share:
            for part in parts_of(pieces, 4, share):
                parts.append((bytes(part.data), part.last))
                share.give_back()
        return parts

    assert cut() == [(b"", True)]
    assert cut(b"", b"") == [(b"", True)]
    assert cut(b"abcd") == [(b"abcd", True)]
    assert cut(b"abcd", b"") == [(b"abcd", True)]
    assert cut(b"abc", b"de") == [(b"abcd", False), (b"e", True)]
    assert cut(b"abcdefgh", b"", b"i") == [(b"abcd", False), (b"efgh", False), (b"i", True)]


def pieces(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield ONE


def peak_of(store: ObjectStore, uploads: int) -> int:
    """Return the peak of bytes that so many uploads of 20 MiB at once allocate; garbage in cycles counts, too."""
    store.put_stream("before", pieces(11), part_bytes=PART)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        with ThreadPoolExecutor(uploads) as pool:
            for size in pool.map(lambda n: store.put_stream(f"key-{n}", pieces(20), part_bytes=PART), range(uploads)):
                assert size == 20 * MIB
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def test_twelve_uploads_to_s3_hold_no_more_than_the_stated_parts(versitygw_store: S3Store) -> None:
    # a first part grows, and has an eighth more than it needs
    assert peak_of(versitygw_store, 12) <= MOST * PART * 9 / 8 + 4 * MIB


def test_an_upload_whose_parts_are_refused_frees_its_share_for_the_others(
    faulty_proxy: FaultyProxy, s3_bucket: str
) -> None:
    options = StoreOptions(
        faulty_proxy.endpoint, "us-east-1", credentials=("test", "test"), max_attempts=2, concurrency=1
    )
    store = S3Store(s3_bucket, "", options, ManualClock())
    faulty_proxy.fault = lambda method, path: "503" if method == "PUT" and "refused" in path else None

    def put(key: str) -> int:
        try:
            return store.put_stream(key, pieces(11), part_bytes=PART)
        except Unavailable:
            return -1

    keys = [f"{kind}-{number}" for number in range(3) for kind in ("refused", "taken")]
    with ThreadPoolExecutor(len(keys)) as pool:
        outcomes = dict(zip(keys, pool.map(put, keys), strict=True))
    store.close()
    assert {size for key, size in outcomes.items() if key.startswith("taken")} == {11 * MIB}
    assert {size for key, size in outcomes.items() if key.startswith("refused")} == {-1}

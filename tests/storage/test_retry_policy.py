"""Waiting for a store that asks to slow down: a write for minutes, a reader not, and an abort hardly at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event as Signal

import pytest

from tests.twins.counting_ids import CountingIds
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.listener import Event, RequestRepeated, StoreThrottled
from tierstate.state.errors import StorageUnavailable, Throttled
from tierstate.state.objects import UnfinishedUpload
from tierstate.state.offsets import ByteRange, TimestampMs
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.retry_policy import ABORT_SECONDS, Limits, RetryPolicy, delay_s
from tierstate.storage.s3 import S3Store

from .faulty_proxy import FaultyProxy

KEY = "folder/object"
LIMITS = Limits(max_attempts=5, request_timeout=120, throttle_timeout=600)


class Waits:
    """A retry policy, and the waits that it made."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.clock, self.seconds = ManualClock(), list[float]()
        self.began = self.clock.monotonic()
        self.retries = RetryPolicy(limits, self.clock, CountingIds(), self._told, "memory:")

    def _told(self, event: Event) -> None:
        assert isinstance(event, RequestRepeated | StoreThrottled)
        self.seconds.append(event.seconds)

    @property
    def took(self) -> float:
        return self.clock.monotonic() - self.began


def throttled() -> None:
    raise Throttled("the store asks to slow down")


def test_delays_grow_and_jitter_takes_up_to_half_of_them_away() -> None:
    assert [delay_s(0.1, 1, failures, 0) for failures in (1, 2, 3, 4, 5, 100_000)] == [0.1, 0.2, 0.4, 0.8, 1, 1]
    assert delay_s(0.1, 1, 5, 0.5) == 0.75


def test_a_write_waits_for_the_store_as_long_as_was_set() -> None:
    waits = Waits()
    with pytest.raises(Throttled):
        waits.retries.write(KEY, throttled)
    assert 580 < waits.took <= 600
    assert sum(waits.seconds) == pytest.approx(waits.took)


def test_a_write_that_was_throttled_has_all_its_time_for_failures_left() -> None:
    waits = Waits()
    answers: Iterator[Exception] = iter(
        [*(Throttled("the store asks to slow down") for _ in range(30)), *(StorageUnavailable("no") for _ in range(4))]
    )

    def act() -> str:
        error = next(answers, None)
        if error is not None:
            raise error
        return "done"

    assert waits.retries.write(KEY, act) == "done"
    assert waits.took > LIMITS.request_timeout


def test_a_reader_waits_no_longer_than_for_any_request() -> None:
    waits = Waits()
    with pytest.raises(Throttled):
        waits.retries.read(KEY, throttled)
    assert 100 < waits.took <= 120


def test_a_reader_waits_no_longer_for_a_store_that_also_fails() -> None:
    waits = Waits(Limits(max_attempts=1000))
    answers = iter([Throttled("the store asks to slow down"), StorageUnavailable("no")] * 1000)

    def act() -> None:
        raise next(answers)

    with pytest.raises((Throttled, StorageUnavailable)):
        waits.retries.read(KEY, act)
    assert 100 < waits.took <= 120


def test_a_reader_waits_less_when_throttling_is_given_less() -> None:
    waits = Waits(Limits(throttle_timeout=5))
    with pytest.raises(Throttled):
        waits.retries.read(KEY, throttled)
    assert waits.took <= 5


def test_a_long_read_that_goes_on_gets_its_time_again() -> None:
    waits = Waits()
    attempts = waits.retries.reading(KEY)
    for _ in range(20):
        for _ in range(5):
            attempts.failed(Throttled("the store asks to slow down"))
        attempts.progressed()
    assert waits.took > LIMITS.request_timeout


def test_an_abort_is_given_up_soon() -> None:
    for limits in (LIMITS, Limits(max_attempts=1000)):
        for error in (Throttled("the store asks to slow down"), StorageUnavailable("no")):

            def act(error: Exception = error) -> None:
                raise error

            waits = Waits(limits)
            with pytest.raises(type(error)):
                waits.retries.abort(KEY, act)
            assert 0 < waits.took <= ABORT_SECONDS


def test_a_cancelled_write_is_not_waited_for() -> None:
    waits = Waits()
    with pytest.raises(Throttled):
        waits.retries.write(KEY, throttled, lambda: waits.took > 100)
    assert 100 < waits.took <= 102


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def s3(faulty_proxy: FaultyProxy, s3_bucket: str, clock: ManualClock, events: list[Event]) -> Iterator[S3Store]:
    options = StoreOptions(faulty_proxy.endpoint, "us-east-1", credentials=("test", "test"), part_bytes=5 * MIB)
    store = S3Store(s3_bucket, "", options, clock, listener=events.append)
    yield store
    store.close()


READS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, ByteRange(0, 1)),
    "stream_range": lambda store: list(store.stream_range(KEY, ByteRange(0, 1))),
    "head": lambda store: store.head(KEY),
    "list": lambda store: list(store.list()),
}
WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put_if_absent": lambda store: store.put_if_absent(f"{KEY}2", b"x"),
    "put_stream": lambda store: store.put_stream(f"{KEY}2", [bytes(MIB)] * 11, part_bytes=5 * MIB),
    "delete": lambda store: store.delete(KEY),
    "delete_many": lambda store: store.delete_many([KEY]),
}


def storm(store: ObjectStore, proxy: FaultyProxy, clock: ManualClock, act: Callable[[ObjectStore], object]) -> float:
    """Return the seconds until ``act`` gives up, by a clock that only waiting moves."""
    store.put_if_absent(KEY, b"x")
    proxy.fault = lambda method, path: "503"
    began = clock.monotonic()
    with pytest.raises(Throttled):
        act(store)
    return clock.monotonic() - began


@pytest.mark.parametrize("name", READS)
def test_a_read_of_s3_has_a_readers_patience(
    s3: S3Store, faulty_proxy: FaultyProxy, clock: ManualClock, name: str
) -> None:
    assert 90 < storm(s3, faulty_proxy, clock, READS[name]) <= 120


@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_s3_has_a_writers_patience(
    s3: S3Store, faulty_proxy: FaultyProxy, clock: ManualClock, name: str
) -> None:
    assert 570 < storm(s3, faulty_proxy, clock, WRITES[name]) <= 600


def test_the_write_of_a_replacement_has_a_writers_patience(
    s3: S3Store, faulty_proxy: FaultyProxy, clock: ManualClock
) -> None:
    s3.put_if_absent(KEY, b"old")
    faulty_proxy.fault = lambda method, path: "503" if method == "PUT" else None
    began = clock.monotonic()
    with pytest.raises(Throttled):
        s3.replace_if_same(KEY, b"new", b"old")
    assert 570 < clock.monotonic() - began <= 600


def test_an_abort_at_s3_has_hardly_any_patience(s3: S3Store, faulty_proxy: FaultyProxy, clock: ManualClock) -> None:
    upload = UnfinishedUpload(KEY, "an-upload", TimestampMs(0))
    assert storm(s3, faulty_proxy, clock, lambda store: store.abort_upload(upload)) <= ABORT_SECONDS


def test_an_upload_that_fails_does_not_wait_for_its_own_throttled_parts(
    faulty_proxy: FaultyProxy, s3_bucket: str, clock: ManualClock
) -> None:
    """Parts in flight are waited for before the abort: one that lands later would keep the upload alive."""
    options = StoreOptions(faulty_proxy.endpoint, "us-east-1", credentials=("test", "test"), throttle_timeout=20_000)
    store, storming = S3Store(s3_bucket, "", options, clock), Signal()

    def fault(method: str, path: str) -> str | None:
        if "partNumber=" not in path:
            return None
        storming.set()
        return "503"

    def pieces() -> Iterator[bytes]:
        yield from [bytes(MIB)] * 11
        assert storming.wait(30)
        raise KeyboardInterrupt

    faulty_proxy.fault, began = fault, clock.monotonic()
    with pytest.raises(KeyboardInterrupt):
        store.put_stream(KEY, pieces(), part_bytes=5 * MIB)
    assert clock.monotonic() - began < 10_000
    assert list(store.unfinished_uploads()) == []
    store.close()

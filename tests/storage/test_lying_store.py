"""S3 over a network that lies: no torn object is ever visible, and no upload stays once the store can be reached.

A real versitygw behind two proxies: toxiproxy, whose faults hit connections, and `faulty_proxy.py`, whose faults hit
chosen requests, so that each request of an upload is tried in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.store_server import StoreServer, toxiproxy
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.runtime.listener import ConditionalPutIgnored, Event, StoreThrottled
from tierstate.state.errors import ObjectExists, ObjectNotFound, StorageUnavailable, Throttled, TierstateError
from tierstate.state.offsets import ByteRange
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.probe import probe_at_start, probe_store
from tierstate.storage.s3 import S3Store

from .faulty_proxy import FaultyProxy
from .toxics import Toxics

KEY = "folder/object"
PIECES = [bytes([number]) * MIB for number in range(11)]
WHOLE = b"".join(PIECES)
SMALL = WHOLE[: 100 * 1024]
REQUESTS_OF_AN_UPLOAD = 5
"""Create, three parts of at most 5 MiB, complete."""
HASTY = {"connect_timeout": 0.5, "read_timeout": 0.5, "request_timeout": 2, "max_attempts": 2}
"""Short limits for requests that must fail."""
_names = itertools.count(1)


@pytest.fixture(scope="session")
def toxiproxy_server(versitygw_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as server:
        yield server


@pytest.fixture
def toxics(toxiproxy_server: StoreServer, versitygw_endpoint: str) -> Iterator[Toxics]:
    with Toxics(toxiproxy_server, versitygw_endpoint, f"store-{next(_names)}") as proxy:
        yield proxy


@pytest.fixture
def proxy(versitygw_endpoint: str) -> Iterator[FaultyProxy]:
    new_proxy = FaultyProxy(versitygw_endpoint)
    yield new_proxy
    new_proxy.close()


Connect = Callable[..., S3Store]


@pytest.fixture
def connect(versitygw_bucket: str) -> Iterator[Connect]:
    """Yield ``connect(endpoint)``: a store that sends one part at a time, so that its requests have an order."""
    stores: list[S3Store] = []

    def connect(endpoint: str, clock: Clock | None = None, events: list[Event] | None = None, **more: Any) -> S3Store:
        limits: dict[str, Any] = {
            "read_timeout": 20,
            "max_attempts": 3,
            "concurrency": 1,
            "part_bytes": 5 * MIB,
            **more,
        }
        options = StoreOptions(endpoint, "us-east-1", credentials=("test", "test"), **limits)
        heard_events = events if events is not None else []
        stores.append(S3Store(versitygw_bucket, "", options, clock or SystemClock(), listener=heard_events.append))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


@pytest.fixture
def honest(connect: Connect, versitygw_endpoint: str) -> S3Store:
    """Return the store itself, without any proxy."""
    return connect(versitygw_endpoint)


def outcome_of(write: Callable[[], object]) -> TierstateError | None:
    try:
        write()
    except TierstateError as error:
        return error
    return None


def assert_whole_or_absent(honest: S3Store, data: bytes, outcome: TierstateError | None) -> None:
    """Success means whole; after an error the outcome is unknown, and the object is whole or absent."""
    assert outcome is None or isinstance(outcome, (StorageUnavailable, Throttled))
    try:
        assert honest.get(KEY) == data
    except ObjectNotFound:
        assert outcome is not None


def sweep(store: S3Store) -> int:
    """Abort all unfinished uploads; return how many there were."""
    left = list(store.unfinished_uploads())
    for upload in left:
        store.abort_upload(upload)
    assert list(store.unfinished_uploads()) == []
    return len(left)


HARMLESS = [
    ("latency", "downstream", {"latency": 100, "jitter": 50}),
    ("slicer", "upstream", {"average_size": 20_000, "size_variation": 10_000, "delay": 10}),
    ("slicer", "downstream", {"average_size": 50, "size_variation": 20, "delay": 10}),
    ("limit_data", "upstream", {"bytes": 6 * MIB}),
]
HARMFUL = [
    ("reset_peer", "upstream", {"timeout": 0}),
    ("reset_peer", "downstream", {"timeout": 0}),
    ("timeout", "upstream", {"timeout": 0}),
    ("timeout", "downstream", {"timeout": 0}),
    ("limit_data", "upstream", {"bytes": 50 * 1024}),
    ("limit_data", "downstream", {"bytes": 10}),
]


def _name(fault: tuple[str, str, dict[str, int]]) -> str:
    return f"{fault[0]} {fault[1]}"


@pytest.mark.parametrize("fault", HARMLESS, ids=_name)
def test_a_fault_that_only_slows_or_cuts_once_fails_no_write(
    fault: tuple[str, str, dict[str, int]], toxics: Toxics, connect: Connect, honest: S3Store
) -> None:
    store = connect(toxics.endpoint)
    toxics.add(fault[0], fault[1], **fault[2])
    assert store.put_stream(KEY, PIECES) == len(WHOLE)
    assert honest.get(KEY) == WHOLE
    assert list(honest.unfinished_uploads()) == []


@pytest.mark.parametrize("fault", HARMFUL, ids=_name)
def test_a_write_over_a_broken_network_is_whole_or_absent(
    fault: tuple[str, str, dict[str, int]], toxics: Toxics, connect: Connect, honest: S3Store
) -> None:
    store = connect(toxics.endpoint, **HASTY)
    toxics.add(fault[0], fault[1], **fault[2])
    streamed = outcome_of(lambda: store.put_stream(KEY, PIECES))
    assert streamed is not None
    assert_whole_or_absent(honest, WHOLE, streamed)
    sweep(honest)
    honest.delete(KEY)
    assert_whole_or_absent(honest, SMALL, outcome_of(lambda: store.put_if_absent(KEY, SMALL)))


@pytest.mark.parametrize("fault", HARMFUL, ids=_name)
def test_a_network_that_breaks_within_an_upload_leaves_it_whole_or_absent(
    fault: tuple[str, str, dict[str, int]], toxics: Toxics, connect: Connect, honest: S3Store
) -> None:
    store = connect(toxics.endpoint, **HASTY)

    def pieces() -> Iterator[bytes]:
        for number, piece in enumerate(PIECES):
            if number == 10:
                toxics.add(fault[0], fault[1], **fault[2])
            yield piece

    assert_whole_or_absent(honest, WHOLE, outcome_of(lambda: store.put_stream(KEY, pieces())))
    sweep(honest)


def test_a_slow_uplink_is_not_a_dead_one(toxics: Toxics, connect: Connect, honest: S3Store) -> None:
    store = connect(toxics.endpoint, connect_timeout=0.5, max_attempts=1, part_bytes=16 * MIB)
    toxics.add(
        "bandwidth", "upstream", rate=8000
    )  # sending a part takes seconds, and a socket's timeout is half of one
    assert store.put_stream(KEY, [bytes(17 * MIB)]) == 17 * MIB
    assert honest.head(KEY).size == 17 * MIB


@pytest.mark.parametrize(
    "fault",
    [
        ("bandwidth", "downstream", {"rate": 20}),
        ("timeout", "downstream", {"timeout": 0}),
        ("reset_peer", "downstream", {"timeout": 0}),
        ("limit_data", "downstream", {"bytes": 100 * 1024}),
    ],
    ids=_name,
)
def test_a_read_that_cannot_be_finished_is_an_error_never_short(
    fault: tuple[str, str, dict[str, int]], toxics: Toxics, connect: Connect, honest: S3Store
) -> None:
    honest.put_if_absent(KEY, WHOLE)
    store = connect(toxics.endpoint, **HASTY)
    toxics.add(fault[0], fault[1], **fault[2])
    with pytest.raises(StorageUnavailable):
        store.get(KEY)
    with pytest.raises(StorageUnavailable):
        store.get_range(KEY, ByteRange(MIB, 5 * MIB))


def test_a_body_that_ends_early_again_and_again_is_continued_while_it_moves(
    toxics: Toxics, connect: Connect, honest: S3Store
) -> None:
    honest.put_if_absent(KEY, WHOLE)
    store = connect(toxics.endpoint)
    toxics.add("limit_data", "downstream", bytes=2 * MIB)  # six times, with three attempts each
    assert store.get(KEY) == WHOLE
    assert store.get_range(KEY, ByteRange(7, len(WHOLE))) == WHOLE[7:]


def _nth(fault: str, number: int, times: int = 1) -> Callable[[str, str], str | None]:
    """Return the fault for ``times`` requests, from this number on."""
    count = itertools.count()
    return lambda method, path: fault if number <= next(count) < number + times else None


@pytest.mark.parametrize("number", range(REQUESTS_OF_AN_UPLOAD))
@pytest.mark.parametrize(
    ("fault", "times"), [("lose the answer", 1), ("lose the answer", 2), ("500", 2), ("503", 7), ("409", 2)]
)
def test_an_upload_survives_a_fault_at_each_of_its_requests(
    number: int, fault: str, times: int, proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    proxy.fault = _nth(fault, number, times)
    assert store.put_stream(KEY, PIECES) == len(WHOLE)
    assert len(proxy.seen) > REQUESTS_OF_AN_UPLOAD
    assert honest.get(KEY) == WHOLE
    assert list(honest.unfinished_uploads()) == []


@pytest.mark.parametrize("number", range(REQUESTS_OF_AN_UPLOAD))
def test_a_request_that_arrives_twice_harms_no_upload(
    number: int, proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    proxy.fault = _nth("deliver twice", number)
    assert store.put_stream(KEY, PIECES) == len(WHOLE)
    assert honest.get(KEY) == WHOLE
    # The upload that a second "create" began is unknown to its writer: a listing finds it.
    assert sweep(honest) == (1 if number == 0 else 0)


@pytest.mark.parametrize("fault", ["lose the answer", "500", "503", "409"])
def test_a_small_put_survives_a_fault(fault: str, proxy: FaultyProxy, connect: Connect, honest: S3Store) -> None:
    store = connect(proxy.endpoint, ManualClock())
    proxy.fault = _nth(fault, 0)
    store.put_if_absent(KEY, SMALL)
    assert honest.get(KEY) == SMALL


def test_a_conflict_that_another_writer_won_is_an_object_that_exists(
    proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    honest.put_if_absent(KEY, SMALL)  # the very same bytes: they are still another writer's
    proxy.fault = _nth("409", 0)
    with pytest.raises(ObjectExists):
        store.put_if_absent(KEY, SMALL)


def test_an_object_that_is_replaced_while_it_is_read_is_never_mixed(
    proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    old, new = b"o" * MIB, b"n" * MIB
    honest.put_if_absent(KEY, old)
    store = connect(proxy.endpoint, ManualClock())
    first = _nth("cut the body", 0)

    def fault(method: str, path: str) -> str | None:
        if proxy.requests["GET"] == 2:
            assert honest.replace_if_same(KEY, new, old)
        return first(method, path)

    proxy.fault = fault
    with pytest.raises(StorageUnavailable, match="replaced"):
        store.get(KEY)
    assert store.get(KEY) == new


def test_a_small_put_that_arrives_twice_is_done_not_refused(
    proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    proxy.fault = _nth("deliver twice", 0)
    store.put_if_absent(KEY, SMALL)
    assert honest.get(KEY) == SMALL


@pytest.mark.parametrize("number", range(REQUESTS_OF_AN_UPLOAD))
def test_an_upload_that_fails_for_good_is_absent_and_aborted(
    number: int, proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    proxy.fault = _nth("500", number, 3)
    with pytest.raises(StorageUnavailable):
        store.put_stream(KEY, PIECES)
    with pytest.raises(ObjectNotFound):
        honest.head(KEY)
    assert list(honest.unfinished_uploads()) == []


def test_a_writer_that_loses_the_race_is_refused_and_leaves_nothing(
    proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    store = connect(proxy.endpoint, ManualClock())
    loses = _nth("lose the answer", REQUESTS_OF_AN_UPLOAD - 1)

    def pieces() -> Iterator[bytes]:
        yield from PIECES
        honest.put_if_absent(KEY, b"theirs")

    proxy.fault = loses  # and even then the object is not taken for ours
    with pytest.raises(ObjectExists):
        store.put_stream(KEY, pieces())
    assert honest.get(KEY) == b"theirs"
    assert list(honest.unfinished_uploads()) == []


def test_a_503_storm_slows_a_copy_and_is_seen(proxy: FaultyProxy, connect: Connect, honest: S3Store) -> None:
    clock, events = ManualClock(), list[Event]()
    began = clock.monotonic()
    store = connect(proxy.endpoint, clock, events)
    count = itertools.count()
    proxy.fault = lambda method, path: "503" if next(count) % 4 else None  # three of four, of every kind
    assert store.put_stream(KEY, PIECES) == len(WHOLE)
    assert store.get(KEY) == WHOLE
    assert honest.get(KEY) == WHOLE
    waits = [event.seconds for event in events if isinstance(event, StoreThrottled)]
    assert len(waits) >= 3 * REQUESTS_OF_AN_UPLOAD
    assert clock.monotonic() - began == pytest.approx(sum(waits))


def test_a_storm_that_does_not_end_fails_after_the_time_that_was_set(
    proxy: FaultyProxy, connect: Connect, honest: S3Store
) -> None:
    clock, events = ManualClock(), list[Event]()
    store = connect(proxy.endpoint, clock, events, throttle_timeout=60)
    proxy.fault = lambda method, path: "503"
    with pytest.raises(Throttled):
        store.put_if_absent(KEY, SMALL)
    assert 30 < sum(event.seconds for event in events if isinstance(event, StoreThrottled)) <= 60
    with pytest.raises(ObjectNotFound):
        honest.head(KEY)


def test_a_store_that_ignores_the_condition_is_reported(
    s3_store: S3Store, s3_bucket: str, faulty_proxy: FaultyProxy
) -> None:
    options = StoreOptions(faulty_proxy.endpoint, "us-east-1", credentials=("test", "test"))
    events: list[Event] = []
    store = S3Store(s3_bucket, "", options)
    probe = probe_at_start(store, events.append)
    assert probe is not None
    assert probe.refuses
    assert events == []
    faulty_proxy.fault = lambda method, path: "drop the condition"
    assert not probe_store(store).refuses
    assert probe_at_start(store, events.append) is not None
    assert events == [ConditionalPutIgnored(f"s3://{s3_bucket}")]
    assert list(store.list()) == []
    store.close()


def test_a_killed_writers_upload_is_found_and_aborted(connect: Connect, honest: S3Store, proxy: FaultyProxy) -> None:
    store = connect(proxy.endpoint, ManualClock())
    broken = False

    def pieces() -> Iterator[bytes]:
        nonlocal broken
        yield from PIECES
        broken = True
        raise KeyboardInterrupt

    proxy.fault = lambda method, path: "500" if broken else None  # the abort does not get through, as after a kill
    for key in ("topic/0/x.log", "topic/1/y.log", "other/0/z.log"):
        broken = False
        with pytest.raises(KeyboardInterrupt):
            store.put_stream(key, pieces())
    uploads = list(honest.unfinished_uploads("topic/"))
    assert sorted(each.key for each in uploads) == ["topic/0/x.log", "topic/1/y.log"]
    assert all(abs(each.started_at - SystemClock().now_ms()) < 60_000 for each in uploads)
    for upload in uploads:
        honest.abort_upload(upload)
        honest.abort_upload(upload)
    assert [each.key for each in honest.unfinished_uploads()] == ["other/0/z.log"]

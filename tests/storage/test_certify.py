"""A certificate is true: it names the one promise that is broken, and leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.verdicts import ADAPTER_PROMISES, PROMISES, certify
from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import (
    AccessDenied,
    InvalidRequest,
    StorageUnavailable,
    TierstateError,
)
from tierstate.state.objects import ObjectInfo, UnfinishedUpload
from tierstate.state.offsets import TimestampMs
from tierstate.storage.contract import STORE_PROMISES
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.contract_trial import Trial
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

from .breakers import BREAKERS, forbids_what_is_missing, refuses_conditions
from .breaking_proxy import Answer, Breaker, BreakingProxy, Request, Server, error

PREFIX = "tierstate-certify-0f/"
BY_NAME = {promise.name: promise for promise in PROMISES}
CASES = [
    pytest.param(name, make, id=f"{name}-{number}")
    for name, makers in BREAKERS.items()
    for number, make in enumerate(makers)
]


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[BreakingProxy]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line for each of thousands of requests
    proxy = BreakingProxy(s3_endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(proxy: BreakingProxy, s3_bucket: str) -> Iterator[S3Store]:
    """A store that repeats: moto at times answers 500 to a read that meets a replacement (its buffer is closed)."""
    options = StoreOptions(proxy.endpoint, "us-east-1", credentials=("test", "test"), max_attempts=3)
    store = S3Store(s3_bucket, "some/prefix", options, ManualClock())
    yield store
    store.close()


def first_broken(store: S3Store | MemoryStore, promises: tuple[Promise, ...] = STORE_PROMISES) -> Promise | None:
    return next((promise for promise, broken in certify(store, PREFIX, promises) if broken is not None), None)


def test_every_promise_has_a_breaker() -> None:
    assert {promise.name for promise in PROMISES} - BREAKERS.keys() == {promise.name for promise in ADAPTER_PROMISES}
    assert BREAKERS.keys() <= BY_NAME.keys()


@pytest.mark.slow
def test_a_proxy_that_breaks_nothing_breaks_no_promise(proxied: S3Store) -> None:
    trial = Trial(proxied, PREFIX)
    trial.reach()
    assert [(promise.name, broken) for promise, broken in trial.verdicts(STORE_PROMISES) if broken] == []
    assert trial.clear() == []
    assert list(proxied.list()) == []
    assert list(proxied.unfinished_uploads()) == []


@pytest.mark.extended
@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_promise_that_a_proxy_breaks_is_found_broken(
    proxied: S3Store, proxy: BreakingProxy, name: str, make: Callable[[], Breaker]
) -> None:
    proxy.breaker = make()
    assert first_broken(proxied, (BY_NAME[name],)) is BY_NAME[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), CASES)
def test_it_is_the_first_one_that_a_whole_run_names(
    proxied: S3Store, proxy: BreakingProxy, name: str, make: Callable[[], Breaker]
) -> None:
    proxy.breaker = make()
    assert first_broken(proxied) is BY_NAME[name]


class Normalising(MemoryStore):
    """A store that takes keys that others would refuse or change."""

    def head(self, key: str) -> ObjectInfo:
        return super().head(key.replace("//", "/"))


def test_an_adapter_that_takes_bad_keys_is_found_out() -> None:
    store = Normalising()
    store.put_if_absent("a/b", b"x")
    assert first_broken(store, ADAPTER_PROMISES) is BY_NAME["bad keys are refused"]


def test_other_objects_are_not_touched_and_nothing_is_left(memory_store: MemoryStore) -> None:
    others = ["a", "tierstate-certify-0", "tierstate-certify-0f-/x", "tierstate-certify-0g/x", "z"]
    for key in others:
        memory_store.put_if_absent(key, key.encode())
    assert first_broken(memory_store) is None
    assert [(info.key, memory_store.get(info.key)) for info in memory_store.list()] == [
        (key, key.encode()) for key in others
    ]


def test_objects_of_an_interrupted_check_are_removed() -> None:
    for at in range(0, 60, 7):

        def interrupt(operation: str, key: str, writes: int, at: int = at) -> None:
            if operation == "part" or (operation == "put" and writes == at):
                raise KeyboardInterrupt

        store = MemoryStore(faults=interrupt)
        with pytest.raises(KeyboardInterrupt):
            first_broken(store)
        assert list(store.list()) == []


class Ghosts(MemoryStore):
    """A store that lists nothing of what it has, and deletes nothing in batches."""

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(())

    def delete_many(self, keys: object) -> None:
        """Report success, but delete nothing."""


def test_a_store_that_hides_and_keeps_objects_is_cleaned_all_the_same() -> None:
    store = Ghosts()
    broken_promise = first_broken(store)
    assert broken_promise is not None
    assert broken_promise.name == "a new object is listed at once"
    assert list(MemoryStore.list(store)) == []


class PrefixBlind(MemoryStore):
    """A store that lists everything, whatever the prefix: objects and unfinished uploads of others, too."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted: list[str] = []

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        return super().list("", start_after)

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return iter([UnfinishedUpload(key, "1", TimestampMs(0)) for key in ("theirs", f"{PREFIX}00/ours")])

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.aborted.append(upload.key)


def test_a_store_that_ignores_prefixes_loses_nothing_of_others() -> None:
    store = PrefixBlind()
    store.put_if_absent("theirs", b"theirs")
    for _ in certify(store, PREFIX):
        pass
    assert [info.key for info in store.list()] == ["theirs"]
    assert set(store.aborted) == {f"{PREFIX}00/ours"}


def test_objects_that_cannot_be_removed_are_named() -> None:
    def refuse(operation: str, key: str, writes: int) -> None:
        if operation == "delete":
            raise AccessDenied("the store refuses", key=key)

    trial = Trial(MemoryStore(faults=refuse), PREFIX)
    next(trial.verdicts(STORE_PROMISES))
    assert trial.clear() == [f"{PREFIX}00/object"]


def test_removed_objects_are_not_called_left_when_missing_ones_are_denied(
    proxied: S3Store, proxy: BreakingProxy
) -> None:
    proxy.breaker = forbids_what_is_missing
    trial = Trial(proxied, PREFIX)
    next(trial.verdicts(STORE_PROMISES))
    assert trial.clear() == []


@pytest.mark.parametrize("kind", [StorageUnavailable, AccessDenied])
def test_a_store_that_is_silent_or_denies_breaks_no_promise(kind: type[TierstateError]) -> None:
    def fail(operation: str, key: str, writes: int) -> None:
        if operation == "get" and "/01/" in key:
            raise kind("the store does not let us", key=key)

    verdicts = certify(MemoryStore(faults=fail), PREFIX)
    assert next(verdicts)[1] is None
    with pytest.raises(kind, match="promise=an object reads back at once"):
        next(verdicts)


def test_a_store_that_has_no_conditions_breaks_the_promise_of_conditions(
    proxied: S3Store, proxy: BreakingProxy
) -> None:
    proxy.breaker = refuses_conditions
    trial = Trial(proxied, PREFIX)
    trial.reach()  # "not implemented" is no outage
    promise, broken = next(trial.verdicts(STORE_PROMISES))
    assert promise.name == "a put never overwrites"
    assert broken is not None
    assert broken.facts["status"] == 501


@pytest.mark.parametrize("kind", [StorageUnavailable, AccessDenied, InvalidRequest])
def test_a_store_that_cannot_be_reached_is_not_judged(kind: type[TierstateError]) -> None:
    def fail(operation: str, key: str, writes: int) -> None:
        raise kind("not now")

    with pytest.raises(kind):
        Trial(MemoryStore(faults=fail), PREFIX).reach()


def test_a_long_prefix_of_the_stores_url_is_not_the_stores_fault(s3_endpoint: str, s3_bucket: str) -> None:
    options = StoreOptions(s3_endpoint, "us-east-1", credentials=("test", "test"), max_attempts=1)
    store = S3Store(s3_bucket, "p" * 150, options)
    assert first_broken(store, (BY_NAME["long keys are kept"],)) is None
    store.close()


def test_a_key_of_a_thousand_bytes_is_really_tried(memory_store: MemoryStore) -> None:
    trial = Trial(memory_store, PREFIX)
    BY_NAME["long keys are kept"].check(trial.recorded, PREFIX)
    assert [len(key.encode()) for key in trial.recorded.written] == [1000]


def test_every_promise_says_why_what_it_costs_and_what_to_do() -> None:
    for promise in PROMISES:
        assert all((promise.why, promise.cost, promise.remedy)), promise.name
    assert len({promise.name for promise in PROMISES}) == len(PROMISES)


def test_the_page_has_every_promise_in_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "certify.md").read_text()
    rows = [f"- {each.name}" for each in STORE_PROMISES]
    assert "\n".join(rows) in page


@pytest.mark.parametrize("status", [400, 501])
def test_a_store_that_knows_no_checksum_of_a_whole_object_takes_large_ones(
    status: int, proxied: S3Store, proxy: BreakingProxy
) -> None:
    refused = 0

    def refuses(request: Request, server: Server) -> Answer:
        nonlocal refused
        if "x-amz-checksum-type" not in request.headers:
            return server(request)
        refused += 1
        return error(status, "NotImplemented")

    proxy.breaker = refuses
    for name in ("first", "second"):
        proxied.put_stream(name, [bytes(MIB)] * 6, part_bytes=5 * MIB)
        assert proxied.get(name) == bytes(6 * MIB)
    assert refused == 1, "it is asked once"
    assert list(proxied.unfinished_uploads()) == []

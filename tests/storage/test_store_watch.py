"""A store that does not answer is reported without waiting for it."""

from __future__ import annotations

import threading

from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import AccessDenied, StorageUnavailable, TierstateError
from tierstate.storage.memory import MemoryStore
from tierstate.storage.probe import TIMEOUT_S, StoreWatch


def test_any_answer_is_enough_and_a_refusal_is_reported_until_it_ends() -> None:
    error: list[TierstateError] = []

    def faults(operation: str, key: str, writes: int) -> None:
        for each in error:
            raise each

    watch, returns = StoreWatch(MemoryStore(faults=faults), ManualClock()), list[str | None]()
    watch.returned = lambda: returns.append(watch.trouble)
    watch.look()
    assert watch.trouble is None
    for each in (StorageUnavailable("no answer"), AccessDenied("these credentials are refused")):
        error[:] = [each]
        watch.look()
        assert watch.trouble == str(each)
    assert returns == []
    error.clear()
    watch.look()
    assert watch.trouble is None
    watch.look()
    assert returns == [None], "told once"


def test_a_store_that_never_answers_is_reported_during_the_wait() -> None:
    request_seen, over, clock = threading.Event(), threading.Event(), ManualClock()

    def faults(operation: str, key: str, writes: int) -> None:
        request_seen.set()
        over.wait(30)

    watch = StoreWatch(MemoryStore(faults=faults), clock)
    returned = threading.Event()
    watch.returned = returned.set
    thread = threading.Thread(target=watch.look)
    thread.start()
    assert request_seen.wait(30)
    assert watch.trouble is None, "too early to say"
    clock.advance(TIMEOUT_S)
    assert "does not answer" in str(watch.trouble)
    over.set()
    thread.join()
    assert watch.trouble is None
    assert returned.is_set()

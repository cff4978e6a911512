"""A store behind signs of life keeps every promise, and every answer and piece is such a sign."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from tests.storage.verdicts import PROMISES
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.watchdog import Supervisor, Watchdog, loop
from tierstate.state.errors import ObjectNotFound
from tierstate.state.offsets import ByteRange
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.wrapped_stores import living


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_it_keeps_the_promise_of_its_store(promise: Promise) -> None:
    promise.check(living(MemoryStore()), "contract/")


class Beats(ManualClock):
    """A clock that counts the signs of life of the test's thread."""

    signs = 0

    def monotonic(self) -> float:
        self.signs += threading.current_thread() is threading.main_thread()
        return super().monotonic()


def uploads(store: ObjectStore, keys: Iterable[str]) -> None:
    store.put_stream("new", (key.encode() for key in keys))


CALLS: dict[str, tuple[Callable[[ObjectStore], object], int]] = {
    "put": (lambda store: store.put_if_absent("new", b"1"), 1),
    "stream": (lambda store: store.put_stream("new", [b"1", b"2", b"3"]), 4),
    "stream that is made": (lambda store: uploads(store, ["1", "2", "3"]), 4),
    "get": (lambda store: store.get("a"), 1),
    "range": (lambda store: store.get_range("a", ByteRange(0, 1)), 1),
    "pieces": (lambda store: list(store.stream_range("a", ByteRange(0, 6), 2)), 4),
    "head": (lambda store: store.head("a"), 1),
    "missing": (lambda store: store.head("missing"), 1),
    "list": (lambda store: list(store.list("")), 3),
    "delete": (lambda store: store.delete("a"), 1),
    "delete many": (lambda store: store.delete_many(["a", "b"]), 3),
    "replace": (lambda store: store.replace_if_same("a", b"654321", b"123456"), 1),
}


@pytest.fixture
def beats() -> Iterator[Beats]:
    """Yield the signs of life of a thread that is in a loop."""
    clock = Beats()
    with Watchdog(clock, {"operations": 60}, Supervisor({}), lambda event, **facts: None), loop("operations"):
        yield clock


@pytest.mark.parametrize("name", CALLS)
def test_every_answer_and_every_piece_is_a_sign_of_life(name: str, beats: Beats) -> None:
    call, signs = CALLS[name]
    plain = MemoryStore()
    plain.put_if_absent("a", b"123456")
    plain.put_if_absent("b", b"1")
    store = living(plain)
    beats.signs = 0
    with suppress(ObjectNotFound):
        call(store)
    assert beats.signs == signs

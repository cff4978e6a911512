"""A store seen through signs of life keeps every promise, and every answer and piece is such a sign."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tierstate.state.errors import ObjectNotFound
from tierstate.state.offsets import ByteRange
from tierstate.storage.contract import PROMISES
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.living_store import LivingStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.object_store import ObjectStore


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_it_keeps_the_promise_of_its_store(promise: Promise) -> None:
    promise.check(LivingStore(MemoryStore(), lambda: None), "contract/")


CALLS: dict[str, tuple[Callable[[ObjectStore], object], int]] = {
    "put": (lambda store: store.put_if_absent("new", b"1"), 1),
    "stream": (lambda store: store.put_stream("new", [b"1", b"2", b"3"]), 4),
    "get": (lambda store: store.get("a"), 1),
    "range": (lambda store: store.get_range("a", ByteRange(0, 1)), 1),
    "pieces": (lambda store: list(store.stream_range("a", ByteRange(0, 6), 2)), 3),
    "head": (lambda store: store.head("a"), 1),
    "missing": (lambda store: store.head("missing"), 1),
    "list": (lambda store: list(store.list("")), 2),
    "delete": (lambda store: store.delete("a"), 1),
    "delete many": (lambda store: store.delete_many(["a", "b"]), 3),
    "replace": (lambda store: store.replace_if_same("a", b"654321", b"123456"), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_answer_and_every_piece_is_a_sign_of_life(name: str) -> None:
    call, signs = CALLS[name]
    found = list[None]()
    store = LivingStore(MemoryStore(), lambda: found.append(None))
    store.put_if_absent("a", b"123456")
    store.put_if_absent("b", b"1")
    found.clear()
    with suppress(ObjectNotFound):
        call(store)
    assert len(found) == signs

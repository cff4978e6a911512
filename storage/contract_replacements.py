"""The check of `contract.py` on overwriting: an object is replaced only if its content is still as it was read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..state.errors import ObjectNotFound
from .contract_evidence import keys_below, must_equal, must_hold, must_raise
from .object_store import ObjectStore

ROUNDS = 5
WRITERS = 8


def a_replacement_is_refused_when_the_object_changed(store: ObjectStore, prefix: str) -> None:
    _one_after_the_other(store, prefix)
    for number in range(ROUNDS):
        _one_of_many_replaces(store, f"{prefix}raced{number}")
    for number in range(ROUNDS):
        _what_is_deleted_does_not_come_back(store, f"{prefix}deleted{number}")
    must_equal("what is left", keys_below(store, f"{prefix}deleted"), [])


def _one_after_the_other(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}object"
    store.put_if_absent(key, b"first")
    must_equal("a replacement of what the object never was", store.replace_if_same(key, b"none", b"other"), False)
    must_equal("the object after a refused replacement", store.get(key), b"first")
    must_equal("a replacement", store.replace_if_same(key, memoryview(b"the second"), b"first"), True)
    must_equal("the object after a replacement", store.get(key), b"the second")
    must_equal("its size", store.head(key).size, len(b"the second"))
    must_equal("a replacement of what it was before", store.replace_if_same(key, b"third", b"first"), False)
    must_equal("the object after the refused one", store.get(key), b"the second")
    store.delete(key)
    must_raise(ObjectNotFound, partial(store.replace_if_same, key, b"third", b"the second"))
    must_raise(ObjectNotFound, partial(store.get, key))


def _one_of_many_replaces(store: ObjectStore, key: str) -> None:
    store.put_if_absent(key, b"old")
    outcomes = _together(partial(_replaced, store, key, writer) for writer in range(WRITERS))
    winners = [writer for writer, replaced in enumerate(outcomes) if replaced]
    must_equal("how many replaced one old content", len(winners), 1)
    must_equal("the object", store.get(key), _content(winners[0]))


def _what_is_deleted_does_not_come_back(store: ObjectStore, key: str) -> None:
    """Check that no object remains after a deletion and simultaneous replacements, whatever their order."""
    store.put_if_absent(key, b"old")

    def delete() -> bool:
        store.delete(key)
        return False

    outcomes = _together([delete, *(partial(_replaced, store, key, writer) for writer in range(WRITERS - 1))])
    must_hold("one at most replaced what was deleted at the same time", sum(outcomes) <= 1)
    must_raise(ObjectNotFound, partial(store.get, key))


def _replaced(store: ObjectStore, key: str, writer: int) -> bool:
    try:
        return store.replace_if_same(key, _content(writer), b"old")
    except ObjectNotFound:
        return False


def _content(writer: int) -> bytes:
    return f"writer {writer}".encode()


def _together(acts: Iterable[Callable[[], bool]]) -> list[bool]:
    calls = list(acts)
    barrier = threading.Barrier(len(calls))

    def run(act: Callable[[], bool]) -> bool:
        barrier.wait()
        return act()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))

"""Checks of `contract.py` on single objects: they are written once, read exactly, keep their keys, stay deleted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..runtime.clock import SystemClock
from ..state.errors import Difference, InvalidRequest, ObjectExists, ObjectNotFound
from ..state.offsets import ByteRange
from .contract_evidence import keys_below, must_equal, must_hold, must_raise
from .object_store import ObjectStore, RangeNotSatisfiable

CLOCK_SKEW_MS = 5 * 60 * 1000
"""Largest allowed difference between the store's clock and this machine's."""
LONG_KEY_BYTES = 1000


def a_put_never_overwrites(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}object"
    store.put_if_absent(key, b"first")
    must_raise(ObjectExists, lambda: store.put_if_absent(key, b"second"))
    must_raise(ObjectExists, lambda: store.put_stream(key, [b"thi", b"rd"]))


def an_object_reads_back_at_once(store: ObjectStore, prefix: str) -> None:
    for name, data in (("one", b"\x00"), ("bytes", bytes(range(256)) * 9)):
        store.put_if_absent(prefix + name, memoryview(data))
        must_equal("the object", store.get(prefix + name), data)
        must_raise(ObjectExists, partial(store.put_if_absent, prefix + name, b"another"))
        must_equal("the object after a refused put", store.get(prefix + name), data)
    must_equal("a limit that is met", store.get(f"{prefix}one", limit=1), b"\x00")
    must_raise(InvalidRequest, lambda: store.get(f"{prefix}bytes", limit=10))


def a_head_is_of_what_is_read(store: ObjectStore, prefix: str) -> None:
    for name, data in (("one", b"x"), ("more", b"x" * 1234)):
        store.put_if_absent(prefix + name, data)
        info = store.head(prefix + name)
        must_equal("key and size", (info.key, info.size), (prefix + name, len(data)))
        store.drop_cached(prefix + name)
        must_equal("the object after its cache was dropped", store.get(prefix + name), data)


def an_empty_object_is_an_object(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}empty"
    store.put_if_absent(key, b"")
    must_equal("an empty object", store.get(key), b"")
    must_equal("its size", store.head(key).size, 0)
    must_raise(ObjectExists, lambda: store.put_if_absent(key, b"x"))
    must_equal("an empty stream", store.put_stream(f"{prefix}stream", []), 0)
    must_equal("the object of an empty stream", store.get(f"{prefix}stream"), b"")


def a_missing_object_is_an_answer(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}missing"
    store.put_if_absent(f"{prefix}folder/object", b"x")
    for missing in (key, f"{prefix}folder", f"{prefix}folder/object/below"):
        must_raise(ObjectNotFound, partial(store.get, missing))
        must_raise(ObjectNotFound, partial(store.head, missing))
    must_raise(ObjectNotFound, lambda: store.get_range(key, ByteRange(0, 1)))
    must_raise(ObjectNotFound, lambda: _streamed(store, key, ByteRange(0, 1)))


def a_deleted_object_is_gone_at_once(store: ObjectStore, prefix: str) -> None:
    for number in range(5):
        key = f"{prefix}{number}"
        store.put_if_absent(key, b"x")
        store.delete(key)
        must_hold("a listing lacks the deleted object", key not in keys_below(store, prefix))
        must_raise(ObjectNotFound, partial(store.get, key))
        must_raise(ObjectNotFound, partial(store.head, key))


def a_delete_is_idempotent(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b"):
        store.put_if_absent(prefix + name, b"x")
    store.delete(f"{prefix}a")
    store.delete(f"{prefix}a")
    store.delete(f"{prefix}never/was")
    must_equal("what is left", keys_below(store, prefix), [f"{prefix}b"])


def a_batch_delete_removes_all_it_names(store: ObjectStore, prefix: str) -> None:
    keys = [f"{prefix}{number:04d}" for number in range(1050)]
    keys += [f"{prefix}<a&b>/'quoted\"", f"{prefix}grüße +%25"]  # a batch request has its own escapes
    for key in [*keys[:1000:50], *keys[-3:], f"{prefix}kept"]:  # most keys are missing; the last are in a second batch
        store.put_if_absent(key, b"x")
    store.delete_many(keys)
    store.delete_many(keys[:2])
    store.delete_many([])
    must_equal("what is left", keys_below(store, prefix), [f"{prefix}kept"])


def one_of_many_writers_wins(store: ObjectStore, prefix: str) -> None:
    for round_number in range(5):
        key = f"{prefix}{round_number}"
        together = threading.Barrier(8)

        def put(writer: int, key: str = key, together: threading.Barrier = together) -> int | None:
            together.wait()
            try:
                store.put_if_absent(key, f"writer {writer}".encode())
            except ObjectExists:
                return None
            return writer

        with ThreadPoolExecutor(8) as pool:
            winners = [writer for writer in pool.map(put, range(8)) if writer is not None]
        must_equal("the number of winners", len(winners), 1)
        must_equal("the object", store.get(key), f"writer {winners[0]}".encode())


def ranges_are_exact(store: ObjectStore, prefix: str) -> None:
    key, data = f"{prefix}object", bytes(range(100))
    store.put_if_absent(key, data)
    for start, stop in ((0, 1), (0, 100), (10, 20), (99, 100)):
        byte_range = ByteRange(start, stop)
        must_equal("a range", store.get_range(key, byte_range), data[start:stop])
        must_equal("a streamed range", _streamed(store, key, byte_range), data[start:stop])
    must_hold("pieces are bounded", all(len(piece) <= 7 for piece in store.stream_range(key, ByteRange(3, 50), 7)))


def a_range_stops_at_the_end(store: ObjectStore, prefix: str) -> None:
    key, data = f"{prefix}object", bytes(range(100))
    store.put_if_absent(key, data)
    for start, stop in ((99, 101), (50, 1000), (0, 2**40)):
        byte_range = ByteRange(start, stop)
        must_equal("a range over the end", store.get_range(key, byte_range), data[start:])
        must_equal("a streamed range over the end", _streamed(store, key, byte_range), data[start:])


def a_range_past_the_end_is_an_error(store: ObjectStore, prefix: str) -> None:
    store.put_if_absent(f"{prefix}ten", b"0123456789")
    store.put_if_absent(f"{prefix}empty", b"")
    for name, start in (("ten", 10), ("ten", 11), ("empty", 0)):
        byte_range = ByteRange(start, start + 5)
        must_raise(RangeNotSatisfiable, partial(store.get_range, prefix + name, byte_range))
        must_raise(RangeNotSatisfiable, partial(_streamed, store, prefix + name, byte_range))


def keys_that_differ_in_case_are_two_objects(store: ObjectStore, prefix: str) -> None:
    for name in ("case/object", "CASE/object", "case/Object"):
        store.put_if_absent(prefix + name, name.encode())
    for name in ("case/object", "CASE/object", "case/Object"):
        must_equal("the object", store.get(prefix + name), name.encode())


def keys_are_taken_as_they_are(store: ObjectStore, prefix: str) -> None:
    names = [
        "topic-name_1.x-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-_qimKeZwStOEOwRzT3L5oQ.log",
        "with space/+plus/100%25/percent%2Fslash",
        "quotes'\"/angle<>&amp;/semi;colon/question?/hash#",
        "grüße/日本語/٠١٢٣",
        "UPPER/lower/.hidden/dots...",
    ]
    for name in names:
        store.put_if_absent(prefix + name, name.encode())
    for name in names:
        must_equal("the object", store.get(prefix + name), name.encode())
        must_equal("head", store.head(prefix + name).key, prefix + name)
    must_equal("the keys", keys_below(store, prefix), sorted(prefix + name for name in names))
    for name in names:
        store.delete(prefix + name)
    must_equal("what is left", keys_below(store, prefix), [])


def long_keys_are_kept(store: ObjectStore, prefix: str) -> None:
    key = _long_key(prefix, LONG_KEY_BYTES)
    try:
        store.put_if_absent(key, b"long")
    except InvalidRequest as error:
        limit, length = error.facts.get("limit"), error.facts.get("bytes")
        if not isinstance(limit, int) or not isinstance(length, int):
            raise
        key = _long_key(prefix, LONG_KEY_BYTES - (length - limit))  # the prefix in the store's URL counts too
        store.put_if_absent(key, b"long")
    must_equal("the object", store.get(key), b"long")
    must_equal("the keys", keys_below(store, prefix), [key])


def a_modification_time_is_the_time_of_writing(store: ObjectStore, prefix: str) -> None:
    clock, earlier = SystemClock(), 0
    for number in range(3):
        key, before = f"{prefix}{number}", clock.now_ms()
        store.put_if_absent(key, b"x")
        after, modified_at = clock.now_ms(), store.head(key).modified_at
        if not before - CLOCK_SKEW_MS <= modified_at <= after + CLOCK_SKEW_MS:
            raise Difference("the store's clock is not ours", seconds_ahead=(modified_at - after) // 1000)
        if modified_at < earlier:
            raise Difference("the store's clock goes back", milliseconds=earlier - modified_at)
        earlier = modified_at
        times = [each.modified_at for each in store.list(key)]
        if len(times) != 1 or abs(times[0] - modified_at) >= 1000:  # some stores report milliseconds only in listings
            raise Difference("a listing tells another time than a head", head=modified_at, listing=times)


def _streamed(store: ObjectStore, key: str, range: ByteRange) -> bytes:
    return b"".join(store.stream_range(key, range, 7))


def _long_key(prefix: str, length: int) -> str:
    """Return a key whose parts between slashes have at most 200 bytes: file systems accept at most 255."""
    key = prefix
    while len(key) < length:
        part = "k" * min(200, length - len(key))
        key += part if length - len(key) <= 201 else f"{part}/"
    return key[:length]

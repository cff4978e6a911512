"""What every object store must promise, each promise with the reason it is needed and the check that breaks it.

Run by the tests over every implementation, and by `tierstate certify` over a user's store. A check gets a store and a
key prefix of its own, writes only below it, and raises Difference when the promise is broken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from ..state.errors import Difference, InvalidRequest, ObjectExists, ObjectNotFound, TierstateError
from ..state.offsets import ByteRange
from .object_store import MIB, ObjectStore, RangeNotSatisfiable

Check = Callable[[ObjectStore, str], None]


@dataclass(frozen=True, slots=True)
class Promise:
    """``check(store, prefix)`` returns when the store keeps the promise."""

    name: str
    why: str
    check: Check


def certify(store: ObjectStore, prefix: str) -> Iterator[tuple[Promise, TierstateError | None]]:
    """Checks every promise in turn and removes what the check wrote; None is kept, an error is broken."""
    for number, promise in enumerate(PROMISES):
        below = f"{prefix}{number:02d}/"
        broken: TierstateError | None = None
        try:
            promise.check(store, below)
        except TierstateError as error:
            broken = error
        finally:
            store.delete_many([found.key for found in store.list(below)])
        yield promise, broken


def a_put_never_overwrites(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}object"
    store.put_if_absent(key, b"first")
    _raises(ObjectExists, lambda: store.put_if_absent(key, b"second"))
    _raises(ObjectExists, lambda: store.put_stream(key, [b"third"]))
    _same("the object", store.get(key), b"first")


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
        _same("the number of winners", len(winners), 1)
        _same("the object", store.get(key), f"writer {winners[0]}".encode())


def an_object_reads_back(store: ObjectStore, prefix: str) -> None:
    for name, data in (("empty", b""), ("one", b"\x00"), ("bytes", bytes(range(256)) * 9)):
        store.put_if_absent(prefix + name, memoryview(data))
        _same("the object", store.get(prefix + name), data)
        info = store.head(prefix + name)
        _same("head", (info.key, info.size), (prefix + name, len(data)))
    _same("a limit that is met", store.get(f"{prefix}one", limit=1), b"\x00")
    _raises(InvalidRequest, lambda: store.get(f"{prefix}bytes", limit=10))


def ranges_are_exact(store: ObjectStore, prefix: str) -> None:
    key, data = f"{prefix}object", bytes(range(100))
    store.put_if_absent(key, data)
    for start, stop in ((0, 1), (0, 100), (10, 20), (99, 100), (50, 1000), (0, 2**40)):
        asked = ByteRange(start, stop)
        _same("a range", store.get_range(key, asked), data[start:stop])
        _same("a streamed range", _streamed(store, key, asked), data[start:stop])
    _true("pieces are bounded", all(len(piece) <= 7 for piece in store.stream_range(key, ByteRange(3, 50), 7)))


def a_range_past_the_end_is_an_error(store: ObjectStore, prefix: str) -> None:
    store.put_if_absent(f"{prefix}ten", b"0123456789")
    store.put_if_absent(f"{prefix}empty", b"")
    for name, start in (("ten", 10), ("ten", 11), ("empty", 0)):
        asked = ByteRange(start, start + 5)
        _raises(RangeNotSatisfiable, partial(store.get_range, prefix + name, asked))
        _raises(RangeNotSatisfiable, partial(_streamed, store, prefix + name, asked))


def a_missing_object_is_an_answer(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}missing"
    _raises(ObjectNotFound, lambda: store.get(key))
    _raises(ObjectNotFound, lambda: store.head(key))
    _raises(ObjectNotFound, lambda: store.get_range(key, ByteRange(0, 1)))
    _raises(ObjectNotFound, lambda: _streamed(store, key, ByteRange(0, 1)))
    store.put_if_absent(f"{prefix}folder/object", b"x")
    _raises(ObjectNotFound, lambda: store.get(f"{prefix}folder"))
    _raises(ObjectNotFound, lambda: store.head(f"{prefix}folder"))
    _raises(ObjectNotFound, lambda: store.get(f"{prefix}folder/object/below"))


def a_listing_is_complete_and_in_order(store: ObjectStore, prefix: str) -> None:
    keys = [f"{prefix}many/{number:04d}" for number in range(1050)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_if_absent(key, b"x"), keys))
    _same("all keys", [found.key for found in store.list(f"{prefix}many/")], keys)
    after = [found.key for found in store.list(f"{prefix}many/", start_after=keys[1020])]
    _same("the keys after one", after, keys[1021:])
    store.delete_many(keys)
    _same("the keys after a batch delete", [found.key for found in store.list(f"{prefix}many/")], [])


def a_listing_prefix_is_text(store: ObjectStore, prefix: str) -> None:
    names = ["a", "a-b/c", "a.b", "a/z", "ab/c", "ab/d/e", "b"]
    for name in names:
        store.put_if_absent(f"{prefix}{name}.x", name.encode())
    keys = sorted(f"{prefix}{name}.x" for name in names)
    _same("the order of keys", [found.key for found in store.list(prefix)], keys)
    for text in ("a", "ab", "ab/", "ab/d", "a-", "b.x", "c"):
        expected = [key for key in keys if key.startswith(prefix + text)]
        _same("the keys of a prefix", [found.key for found in store.list(prefix + text)], expected)
    for position, key in enumerate(keys):
        _same("the keys after one", [found.key for found in store.list(prefix, key)], keys[position + 1 :])
    _same("sizes", [found.size for found in store.list(prefix)], [len(key) - len(prefix) - 2 for key in keys])


def a_write_is_seen_at_once(store: ObjectStore, prefix: str) -> None:
    for number in range(10):
        key = f"{prefix}{number}"
        store.put_if_absent(key, b"x")
        _true("a listing has the new object", key in [found.key for found in store.list(prefix)])
        store.delete(key)
        _true("a listing lacks the deleted object", key not in [found.key for found in store.list(prefix)])
        _raises(ObjectNotFound, partial(store.get, key))


def a_delete_is_idempotent(store: ObjectStore, prefix: str) -> None:
    for name in ("a", "b", "c"):
        store.put_if_absent(prefix + name, b"x")
    store.delete(f"{prefix}a")
    store.delete(f"{prefix}a")
    store.delete(f"{prefix}never/was")
    store.delete_many([f"{prefix}a", f"{prefix}b", f"{prefix}never"])
    store.delete_many([])
    _same("what is left", [found.key for found in store.list(prefix)], [f"{prefix}c"])


def a_large_stream_arrives_whole(store: ObjectStore, prefix: str) -> None:
    block = bytes(range(251)) * 4178  # about 1 MiB, no power of two
    for name, count, rest in (("parts", 12, b"the end"), ("exact", 5, bytes(10 * MIB - 5 * len(block)))):
        pieces = [block] * count + [rest]
        written = store.put_stream(f"{prefix}{name}", iter(pieces), part_bytes=5 * MIB)
        _same("the size written", written, sum(len(piece) for piece in pieces))
        _true("the object is what was sent", store.get(f"{prefix}{name}") == b"".join(pieces))
    _same("an empty stream", store.put_stream(f"{prefix}empty", []), 0)
    _same("an empty object", store.get(f"{prefix}empty"), b"")
    for last in (b"the end", b"THE END"):  # the same bytes once more are another writer's bytes, too
        again = [block] * 12 + [last]
        _raises(ObjectExists, partial(store.put_stream, f"{prefix}parts", again, part_bytes=5 * MIB))
    _same("the object after a refused put", store.head(f"{prefix}parts").size, 12 * len(block) + len(b"the end"))


class _SourceFailed(Exception):
    """Not an error of any store: it must come through unchanged."""


def a_failing_stream_is_never_visible(store: ObjectStore, prefix: str) -> None:
    def failing(count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield bytes(MIB)
            _same("objects during the upload", [found.key for found in store.list(prefix)], [])
        raise _SourceFailed

    for count in (0, 1, 11):
        try:
            store.put_stream(f"{prefix}object", failing(count), part_bytes=5 * MIB)
        except _SourceFailed:
            pass
        else:
            raise Difference("a failing source was taken for a whole object", pieces=count)
        _raises(ObjectNotFound, lambda: store.head(f"{prefix}object"))
    store.put_stream(f"{prefix}object", [b"whole"])
    _same("the object after a retry", store.get(f"{prefix}object"), b"whole")


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
        _same("the object", store.get(prefix + name), name.encode())
        _same("head", store.head(prefix + name).key, prefix + name)
    _same("the keys", [found.key for found in store.list(prefix)], sorted(prefix + name for name in names))
    store.delete_many([prefix + name for name in names])
    _same("what is left", list(store.list(prefix)), [])


def bad_keys_are_refused(store: ObjectStore, prefix: str) -> None:
    bad = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\x00b", "a\nb", "\ud800", "k" * 1025)
    for key in bad:
        _raises(InvalidRequest, partial(store.put_if_absent, key, b""))
        _raises(InvalidRequest, partial(store.put_stream, key, [b""]))
        _raises(InvalidRequest, partial(store.get, key))
        _raises(InvalidRequest, partial(store.get_range, key, ByteRange(0, 1)))
        _raises(InvalidRequest, partial(_streamed, store, key, ByteRange(0, 1)))
        _raises(InvalidRequest, partial(store.head, key))
        _raises(InvalidRequest, partial(store.delete, key))
        _raises(InvalidRequest, partial(store.delete_many, [key]))


def _streamed(store: ObjectStore, key: str, asked: ByteRange) -> bytes:
    return b"".join(store.stream_range(key, asked, 7))


def _raises(expected: type[TierstateError], call: Callable[[], object]) -> None:
    try:
        answer = call()
    except expected:
        return
    except TierstateError as error:
        raise Difference("another error than promised", expected=expected.__name__, raised=repr(error)) from error
    raise Difference("no error was raised", expected=expected.__name__, answer=_short(answer))


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Difference(f"{what} is not as promised", found=_short(found), expected=_short(expected))


def _true(what: str, holds: bool) -> None:
    if not holds:
        raise Difference(f"not so: {what}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _promise(check: Check, why: str) -> Promise:
    return Promise(check.__name__.replace("_", " "), why, check)


PROMISES: tuple[Promise, ...] = (
    _promise(a_put_never_overwrites, "a fenced agent must not replace what a newer one wrote"),
    _promise(one_of_many_writers_wins, "checkpoints and archives have exactly one writer"),
    _promise(an_object_reads_back, "a copied segment is read as it was written"),
    _promise(ranges_are_exact, "chunks and indexes are read by range"),
    _promise(a_range_past_the_end_is_an_error, "an empty success would read as the end of the log"),
    _promise(a_missing_object_is_an_answer, "a missing object and a failing store ask for different actions"),
    _promise(a_listing_is_complete_and_in_order, "recovery and sweeping see every object, page by page"),
    _promise(a_listing_prefix_is_text, "recovery lists by topic prefix and resumes after a key"),
    _promise(a_write_is_seen_at_once, "a sweep that misses a fresh object leaves an orphan"),
    _promise(a_delete_is_idempotent, "a deletion is repeated after every crash"),
    _promise(a_large_stream_arrives_whole, "segments are larger than memory and than one request"),
    _promise(a_failing_stream_is_never_visible, "half a segment must never pass for a segment"),
    _promise(keys_are_taken_as_they_are, "an object that is stored under another name is lost"),
    _promise(bad_keys_are_refused, "some stores normalise such keys in silence"),
)

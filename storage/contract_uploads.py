"""Checks of `contract.py` on uploads in several requests: they create a complete object, or leave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from ..state.errors import Difference, ObjectExists, ObjectNotFound
from ..state.offsets import ByteRange
from .contract_evidence import keys_below, must_equal, must_hold, must_raise
from .object_store import MIB, ObjectStore

PART_BYTES = 5 * MIB
"""The smallest part that S3 accepts."""
_BLOCK = bytes(range(251)) * 4178
"""Data of about 1 MiB, whose size is no power of two."""


class _SourceFailed(Exception):
    """The error of the source. `put_stream` must pass it on unchanged."""


def a_large_stream_arrives_whole(store: ObjectStore, prefix: str) -> None:
    for name, count, rest in (("parts", 12, b"the end"), ("exact", 5, bytes(2 * PART_BYTES - 5 * len(_BLOCK)))):
        pieces = [_BLOCK] * count + [rest]
        stored_bytes = store.put_stream(f"{prefix}{name}", iter(pieces), part_bytes=PART_BYTES)
        size = sum(len(piece) for piece in pieces)
        must_equal("the size written", stored_bytes, size)
        must_hold("the object is what was sent", store.get(f"{prefix}{name}") == b"".join(pieces))
        must_equal("its size", store.head(f"{prefix}{name}").size, size)


def a_failing_stream_is_never_visible(store: ObjectStore, prefix: str) -> None:
    key = f"{prefix}object"
    for count in (0, 1, 11):
        _fail(store, prefix, key, count)
        must_raise(ObjectNotFound, lambda: store.head(key))
    store.put_stream(key, [b"whole"])
    must_equal("the object after a retry", store.get(key), b"whole")


def nothing_unfinished_is_left(store: ObjectStore, prefix: str) -> None:
    _fail(store, prefix, f"{prefix}failing", 6)
    must_equal("uploads after a failed one", _unfinished(store, prefix), [])
    store.put_stream(f"{prefix}whole", [_BLOCK] * 6, part_bytes=PART_BYTES)
    with suppress(ObjectExists):  # another promise checks that this is refused
        store.put_stream(f"{prefix}whole", [_BLOCK] * 6, part_bytes=PART_BYTES)
    must_equal("uploads after a whole and a refused one", _unfinished(store, prefix), [])


def a_large_put_never_overwrites(store: ObjectStore, prefix: str) -> None:
    key, size = f"{prefix}object", 6 * len(_BLOCK) + len(b"the end")
    store.put_stream(key, [_BLOCK] * 6 + [b"the end"], part_bytes=PART_BYTES)
    for last in (b"the end", b"THE END, LATER"):  # the same bytes again count as another writer's too
        must_raise(ObjectExists, partial(store.put_stream, key, [_BLOCK] * 6 + [last], part_bytes=PART_BYTES))
        must_equal("the size of the first object", store.head(key).size, size)
    must_equal("its end", store.get_range(key, ByteRange(size - 7, size)), b"the end")


def _fail(store: ObjectStore, prefix: str, key: str, count: int) -> None:
    """Upload from a source that fails after ``count`` MiB, and check throughout that no object is visible."""

    def failing() -> Iterator[bytes]:
        for _ in range(count):
            yield bytes(MIB)
            must_equal("objects during the upload", keys_below(store, prefix), [])
        raise _SourceFailed

    try:
        store.put_stream(key, failing(), part_bytes=PART_BYTES)
    except _SourceFailed:
        return
    raise Difference("a failing source was taken for a whole object", pieces=count)


def _unfinished(store: ObjectStore, prefix: str) -> list[str]:
    return [upload.key for upload in store.unfinished_uploads(prefix)]

"""The verdict on each promise of a store, as ``tierstate certify`` finds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tierstate.state.errors import InvalidRequest, TierstateError
from tierstate.state.offsets import ByteRange
from tierstate.storage.contract import STORE_PROMISES
from tierstate.storage.contract_evidence import Promise, must_raise
from tierstate.storage.contract_trial import Trial
from tierstate.storage.object_store import ObjectStore


def certify(
    store: ObjectStore, prefix: str, promises: Sequence[Promise] = STORE_PROMISES
) -> Iterator[tuple[Promise, TierstateError | None]]:
    """Check every promise in turn, and yield it with None or the error. Raises as `Trial.verdicts`."""
    yield from Trial(store, prefix).verdicts(promises)


def bad_keys_are_refused(store: ObjectStore, prefix: str) -> None:
    bad = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\x00b", "a\nb", "\ud800", "k" * 1025)
    for key in bad:
        must_raise(InvalidRequest, partial(store.put_if_absent, key, b""))
        must_raise(InvalidRequest, partial(store.put_stream, key, [b""]))
        must_raise(InvalidRequest, partial(store.get, key))
        must_raise(InvalidRequest, partial(store.get_range, key, ByteRange(0, 1)))
        must_raise(InvalidRequest, partial(_streamed, store, key))
        must_raise(InvalidRequest, partial(store.head, key))
        must_raise(InvalidRequest, partial(store.delete, key))
        must_raise(InvalidRequest, partial(store.delete_many, [key]))


def _streamed(store: ObjectStore, key: str) -> bytes:
    return b"".join(store.stream_range(key, ByteRange(0, 1), 7))


ADAPTER_PROMISES = (
    Promise(
        "bad keys are refused",
        "some stores normalise such keys in silence",
        "two keys become one object, or a key leads out of the store's prefix",
        "this is a bug in tierstate: report it",
        bad_keys_are_refused,
    ),
)
"""Promises that tierstate's code keeps for any store: no store can break them."""
PROMISES = STORE_PROMISES + ADAPTER_PROMISES

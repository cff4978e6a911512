"""Another store, each of whose answers and pieces is a sign of life of the thread that asked (`heartbeat.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..state.objects import ObjectInfo, UnfinishedUpload
from ..state.offsets import ByteRange
from .object_store import DEFAULT_PART_BYTES, MIB, Data, ObjectStore

R = TypeVar("R")


class LivingStore:
    """``alive`` is called after every answer, also one that is an error, and before every piece of what is sent."""

    def __init__(self, store: ObjectStore, alive: Callable[[], object]) -> None:
        self._store, self._alive = store, alive

    @property
    def description(self) -> str:
        return self._store.description

    def put_if_absent(self, key: str, data: Data) -> None:
        self._answer(lambda: self._store.put_if_absent(key, data))

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        passed = map(self._passed, pieces)  # no name of ours holds a piece while the next one is made
        return self._answer(lambda: self._store.put_stream(key, passed, part_bytes=part_bytes))

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self._answer(lambda: self._store.get(key, limit))

    def get_range(self, key: str, range: ByteRange) -> bytes:
        return self._answer(lambda: self._store.get_range(key, range))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        yield from map(self._passed, self._store.stream_range(key, range, piece_bytes))

    def head(self, key: str) -> ObjectInfo:
        return self._answer(lambda: self._store.head(key))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        yield from map(self._passed, self._store.list(prefix, start_after))

    def delete(self, key: str) -> None:
        self._answer(lambda: self._store.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        self._answer(lambda: self._store.delete_many(map(self._passed, keys)))

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        return self._answer(lambda: self._store.replace_if_same(key, data, previous))

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        yield from map(self._passed, self._store.unfinished_uploads(prefix))

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self._answer(lambda: self._store.abort_upload(upload))

    def close(self) -> None:
        self._store.close()

    def _answer(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        finally:
            self._alive()

    def _passed(self, each: R) -> R:
        self._alive()
        return each

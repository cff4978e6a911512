"""An object store in memory. It keeps the promises of all stores, and fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import google_crc32c

from ..runtime.clock import Clock, SystemClock
from ..state.errors import ObjectExists, ObjectNotFound
from ..state.objects import ObjectInfo, UnfinishedUpload, checked_key
from ..state.offsets import ByteRange
from .object_store import DEFAULT_PART_BYTES, MIB, Data, beyond_end, over_limit

Faults = Callable[[str, str, int], None]
"""``faults(operation, key, writes so far)`` may raise. Operations: put, part, complete, delete, get, head, list.

The first four are writes and are counted. A test that raises at each number in turn has a failure at every write. The
function is called before the operation takes effect. To simulate a lost answer, raise at the next operation.
"""


def no_faults(operation: str, key: str, writes: int) -> None:
    """Raise nothing: the store always works."""


class MemoryStore:
    """Keeps objects in this process' memory only."""

    def __init__(self, clock: Clock | None = None, faults: Faults = no_faults) -> None:
        self._clock = clock or SystemClock()
        self._faults = faults
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._writes = 0

    @property
    def description(self) -> str:
        return "memory:"

    @property
    def writes(self) -> int:
        return self._writes

    def put_if_absent(self, key: str, data: Data) -> None:
        self._write("put", checked_key(key))
        self._publish(key, bytes(data))

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        checked_key(key)
        whole = bytearray()
        for piece in pieces:
            self._write("part", key)
            whole += piece
        self._write("complete", key)
        self._publish(key, bytes(whole))
        return len(whole)

    def get(self, key: str, limit: int | None = None) -> bytes:
        data = self._object("get", key)[0]
        if limit is not None and len(data) > limit:
            raise over_limit(key, len(data), limit)
        return data

    def get_range(self, key: str, range: ByteRange) -> bytes:
        data = self._object("get", key)[0]
        if range.start >= len(data):
            raise beyond_end(key, range, len(data))
        return data[range.start : range.stop]

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        data = memoryview(self.get_range(key, range))
        while data:
            yield bytes(data[:piece_bytes])
            data = data[piece_bytes:]

    def head(self, key: str) -> ObjectInfo:
        data, info = self._object("head", key)
        return replace(info, crc32c=google_crc32c.value(data))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._faults("list", prefix, self._writes)
        with self._lock:
            infos = [info for key, (_, info) in self._objects.items() if key.startswith(prefix)]
        yield from sorted((info for info in infos if info.key > (start_after or "")), key=lambda info: info.key)

    def drop_cached(self, key: str) -> None:
        """Do nothing: there is no cache."""

    def delete(self, key: str) -> None:
        self._write("delete", checked_key(key))
        with self._lock:
            self._objects.pop(key, None)

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        self._write("put", checked_key(key))
        with self._lock:
            if key not in self._objects:
                raise ObjectNotFound("no such object", key=key, store=self.description)
            if self._objects[key][0] != previous:
                return False
            self._objects[key] = (bytes(data), ObjectInfo(key, len(data), self._clock.now_ms()))
        return True

    def unfinished_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Do nothing: `unfinished_uploads` yields none."""

    def close(self) -> None:
        """Do nothing: a test can still read the objects of a closed store."""

    def _write(self, operation: str, key: str) -> None:
        with self._lock:
            index, self._writes = self._writes, self._writes + 1
        self._faults(operation, key, index)

    def _publish(self, key: str, data: bytes) -> None:
        with self._lock:
            if key in self._objects:
                raise ObjectExists("object exists", key=key, store=self.description)
            self._objects[key] = (data, ObjectInfo(key, len(data), self._clock.now_ms()))

    def _object(self, operation: str, key: str) -> tuple[bytes, ObjectInfo]:
        self._faults(operation, checked_key(key), self._writes)
        with self._lock:
            stored = self._objects.get(key)
        if stored is None:
            raise ObjectNotFound("no such object", key=key, store=self.description)
        return stored

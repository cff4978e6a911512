"""Wraps a store and records its use: keys that may exist now, and the number of requests and sent bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ..state.objects import ObjectInfo
from .object_store import DEFAULT_PART_BYTES, Data, ObjectStore

PAGE_KEYS = 1000
"""Keys per page of a listing and per batch delete, in S3 and most other stores."""
_ONE_REQUEST = ("get", "get_range", "stream_range", "head", "delete", "unfinished_uploads", "abort_upload")


class RecordingStore:
    """Forwards all calls. Thread-safe. ``written`` has the key of every attempted write. ``requests`` is about the
    number for S3."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.written: set[str] = set()
        self.objects = 0
        self.bytes_sent = 0
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        if name in _ONE_REQUEST:
            self._count(1)
        return getattr(self._store, name)

    def put_if_absent(self, key: str, data: Data) -> None:
        self._count(1, key, len(data))
        self._store.put_if_absent(key, data)

    def put_stream(self, key: str, pieces: Iterable[Data], *, part_bytes: int = DEFAULT_PART_BYTES) -> int:
        self._count(1, key)

        def counted() -> Iterator[Data]:
            total = 0
            for piece in pieces:
                total += len(piece)
                self._count(0, size=len(piece))
                yield piece
            if total > part_bytes:  # one per part, one to begin, one to complete; one is counted
                self._count(-(-total // part_bytes) + 1)

        return self._store.put_stream(key, counted(), part_bytes=part_bytes)

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._count(1)
        for number, info in enumerate(self._store.list(prefix, start_after)):
            if number and number % PAGE_KEYS == 0:
                self._count(1)
            yield info

    def delete_many(self, keys: Iterable[str]) -> None:
        batch = tuple(keys)
        self._count(-(-len(batch) // PAGE_KEYS))
        self._store.delete_many(batch)

    def replace_if_same(self, key: str, data: Data, previous: bytes) -> bool:
        self._count(2, key, len(data))
        return self._store.replace_if_same(key, data, previous)

    def _count(self, requests: int, key: str | None = None, size: int = 0) -> None:
        with self._lock:
            self.requests += requests
            self.bytes_sent += size
            if key is not None:
                self.written.add(key)
                self.objects += 1

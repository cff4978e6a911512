"""The store for readers, with an event for each read. The metrics for store traffic count exactly these events."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ..runtime.clock import Clock
from ..runtime.listener import Listener, RemoteFetched
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange
from ..storage.object_store import MIB
from ..storage.segment.log_chunks import ObjectReads


class MeteredReads:
    """Answers like the store. Each read, even if failed or unfinished, emits `RemoteFetched`. `head` emits nothing."""

    def __init__(self, store: ObjectReads, clock: Clock, listener: Listener) -> None:
        self._store, self._clock, self._listener = store, clock, listener

    def get(self, key: str, limit: int | None = None) -> bytes:
        began, size = self._clock.monotonic(), 0
        try:
            data = self._store.get(key, limit)
            size = len(data)
            return data
        finally:
            self._listener(RemoteFetched(key, size, self._clock.monotonic() - began))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        began, size = self._clock.monotonic(), 0
        pieces = self._store.stream_range(key, range, piece_bytes)
        try:
            for piece in pieces:
                size += len(piece)
                yield piece
        finally:
            if isinstance(pieces, Generator):
                pieces.close()
            self._listener(RemoteFetched(key, size, self._clock.monotonic() - began))

    def head(self, key: str) -> ObjectInfo:
        return self._store.head(key)

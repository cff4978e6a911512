"""Plain chunks in memory: least recently used out first, bounded by bytes, each chunk loaded once however many ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from cachetools import LRUCache


class ChunkCache:
    """At most ``max_bytes`` of chunks, beside those being loaded. Thread-safe. A failed load is not kept."""

    def __init__(self, max_bytes: int) -> None:
        self._chunks: LRUCache[tuple[str, int], bytes] = LRUCache(max_bytes, getsizeof=len)
        self._loading: dict[tuple[str, int], Future[bytes]] = {}
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def get(self, key: str, chunk_id: int, load: Callable[[], bytes]) -> bytes:
        """The chunk of this object. Everyone who waits for a load shares its result, or its error."""
        name = (key, chunk_id)
        while True:
            with self._lock:
                found = self._chunks.get(name)
                if found is not None:
                    self._hits += 1
                    return found
                loading = self._loading.get(name)
                mine = loading is None
                if loading is None:
                    self._misses += 1
                    loading = self._loading[name] = Future()
            if mine:
                return self._load(name, loading, load)
            try:
                return loading.result()
            except CancelledError:
                continue  # who loaded was interrupted, not answered: load it ourselves

    @property
    def bytes_held(self) -> int:
        return int(self._chunks.currsize)

    @property
    def hits(self) -> int:
        return self._hits

    @property
    def misses(self) -> int:
        return self._misses

    def _load(self, name: tuple[str, int], loading: Future[bytes], load: Callable[[], bytes]) -> bytes:
        try:
            data = load()
        except Exception as error:
            self._forget(name)
            loading.set_exception(error)
            raise
        except BaseException:
            self._forget(name)
            loading.cancel()
            raise
        with self._lock:
            if len(data) <= self._chunks.maxsize:
                self._chunks[name] = data
            del self._loading[name]
        loading.set_result(data)
        return data

    def _forget(self, name: tuple[str, int]) -> None:
        with self._lock:
            del self._loading[name]

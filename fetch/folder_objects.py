"""A read-only folder of objects: not even the mark of `storage.directory` is written into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..state.errors import ObjectNotFound, StorageUnavailable
from ..state.objects import ObjectInfo
from ..state.offsets import ByteRange, TimestampMs
from ..storage.object_store import MIB, beyond_end, over_limit


class FolderObjects:
    """An `ObjectReader` over files below ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str, limit: int | None = None) -> bytes:
        size = self.head(key).size
        if limit is not None and size > limit:
            raise over_limit(key, size, limit)
        return self._read(key, 0, size)

    def get_range(self, key: str, range: ByteRange) -> bytes:
        size = self.head(key).size
        if range.start >= size:
            raise beyond_end(key, range, size)
        return self._read(key, range.start, min(range.stop, size))

    def stream_range(self, key: str, range: ByteRange, piece_bytes: int = MIB) -> Iterator[bytes]:
        size = self.head(key).size
        if range.start >= size:
            raise beyond_end(key, range, size)
        at, stop = range.start, min(range.stop, size)
        while at < stop:
            yield self._read(key, at, min(at + piece_bytes, stop))
            at += piece_bytes

    def head(self, key: str) -> ObjectInfo:
        try:
            status = (self._root / key).stat()
        except OSError as error:
            raise ObjectNotFound("no such file", file=self._root / key) from error
        return ObjectInfo(key, status.st_size, TimestampMs(status.st_mtime_ns // 1_000_000))

    def drop_cached(self, key: str) -> None:
        """Do nothing: files are read once, so none is cached."""

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        below = self._root / prefix.rpartition("/")[0]
        for path in sorted(each for each in below.rglob("*") if each.is_file()):
            key = path.relative_to(self._root).as_posix()
            if key.startswith(prefix) and key > (start_after or ""):
                yield self.head(key)

    def _read(self, key: str, start: int, stop: int) -> bytes:
        try:
            with (self._root / key).open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except OSError as error:
            raise StorageUnavailable("file cannot be read", file=self._root / key, reason=error.strerror) from error
        return data

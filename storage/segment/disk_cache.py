"""Caches stored chunks in files. This second level of `cache.py` survives a restart.

    FOLDER/tierstate-chunk-cache-1   the mark: the cache made this folder, and may delete its content
    FOLDER/lock                      locked by the one process that uses the cache
    FOLDER/chunks/SHA-256            one chunk; the name hashes object key, chunk id and stored size
    FOLDER/unfinished/SHA-256        a file that is being written; opening the cache removes those of killed processes

A file consists of magic, CRC-32C, `_HEADER`, the object key, and the stored bytes. The CRC covers all bytes after it.
A file that is incomplete, or belongs to another chunk, is deleted and counted as damaged, never returned. A file is
written in ``unfinished`` and renamed. Nothing is synced: the checksum finds files that a power loss damaged.

The tier view may be on the same disk, and no read works without the view. So the cache keeps a part of the disk free
(`KEPT_FREE`). When other files fill the disk, the cache deletes its own files, also when it is opened.

All files together, each rounded up to `BLOCK_BYTES`, never exceed ``max_bytes``, because space is freed before a file
is written. (A file that is deleted while it is read uses space until the read ends.) The least recently used files are
deleted first. After a restart, their order is that of the modification times, which every hit renews.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from ...runtime.listener import ChunkCacheOff, Listener, ignore
from ...state.errors import InvalidRequest
from ..crc32c import extended
from .buffers import Bytes

MARK = "tierstate-chunk-cache-1"
BLOCK_BYTES = 4096
"""Unit in which a file system allocates space: a file of one byte takes one block."""
KEPT_FREE = 0.05
MOST_KEPT_FREE = 10 * 1024**3
"""Space of the file system that the cache leaves free: `KEPT_FREE` of it, but at most `MOST_KEPT_FREE` bytes."""
GIVES_WAY_EVERY_S = 5.0
_HEADER = struct.Struct(">QQI")
"""Chunk id, stored size, length of the object key. Magic and the CRC-32C of all later bytes are before it."""
_PROLOGUE = 8
_MAGIC = b"TSc1"
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """Counts since the cache was opened. ``bytes`` is the present size of all its files."""

    hits: int
    misses: int
    evictions: int
    damaged: int
    bytes: int


def lacking_bytes(folder: Path) -> int:
    """Return by how many bytes the free space is below the reserve (`KEPT_FREE`). Negative: so many are usable."""
    status = os.statvfs(folder)
    reserve = min(int(status.f_blocks * KEPT_FREE), MOST_KEPT_FREE // status.f_frsize)
    return (reserve - status.f_bavail) * status.f_frsize


class DiskCache:
    """A chunk cache on disk, made by `open_disk_cache`. Thread-safe. No method raises.

    An error of the file system (no room, not permitted, broken) turns the cache off until the process restarts, with a
    `ChunkCacheOff`. ``lock`` is the descriptor of the locked file. ``lacking`` is `lacking_bytes`, except in tests.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        lock: int,
        listener: Listener = ignore,
        lacking: Callable[[Path], int] = lacking_bytes,
    ) -> None:
        self._folder, self._max_bytes, self._listener, self._lacking = folder, max_bytes, listener, lacking
        self._chunks, self._unfinished = folder / "chunks", folder / "unfinished"
        self._held_lock: int | None = lock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, int] = OrderedDict()
        self._held = self._hits = self._misses = self._evictions = self._damaged = 0
        self._off = threading.Event()
        try:
            self._take_stock()
        except OSError as error:
            self._turn_off(error)
        threading.Thread(target=self._keep_giving_way, name="tierstate-chunk-cache", daemon=True).start()

    def get(self, key: str, chunk_id: int, stored_size: int) -> bytes | None:
        """Return the stored bytes of a chunk. Returns None if they are absent or damaged."""
        name = _name(key, chunk_id, stored_size)
        with self._lock:
            if self._off.is_set() or name not in self._entries:
                self._misses += 1
                return None
            self._entries.move_to_end(name)
        head = _head(key, chunk_id, stored_size)
        try:
            with open(self._chunks / name, "rb", buffering=0) as file:
                start, body = file.read(len(head) + _PROLOGUE), file.read(stored_size + 1)
                os.utime(file.fileno())
        except FileNotFoundError:  # evicted since then, or removed by hand
            self._drop(name)
        except OSError as error:
            self._turn_off(error)
        else:
            if start == _prologue(head, body) + head and len(body) == stored_size:
                with self._lock:
                    self._hits += 1
                return body
            self.drop_damaged(key, chunk_id, stored_size)
        with self._lock:
            self._misses += 1
        return None

    def put(self, key: str, chunk_id: int, stored: Bytes) -> None:
        """Write the chunk to disk, after evicting others if needed. Do nothing if it cannot fit. One thread a chunk."""
        name = _name(key, chunk_id, len(stored))
        head = _head(key, chunk_id, len(stored))
        size = _rounded(_PROLOGUE + len(head) + len(stored))
        temporary = self._unfinished / name
        try:
            with self._lock:
                if self._off.is_set() or name in self._entries or not self._room_for(size):
                    return
                self._held += size
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_prologue(head, stored) + head)
                file.write(stored)
            with self._lock:
                if self._off.is_set():
                    raise OSError("closed while a chunk was written")
                os.rename(temporary, self._chunks / name)
                self._entries[name] = size
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._turn_off(error)

    def drop_damaged(self, key: str, chunk_id: int, stored_size: int) -> None:
        self._drop(_name(key, chunk_id, stored_size), damaged=1)

    def drop(self, key: str, chunk_id: int, stored_size: int) -> None:
        self._drop(_name(key, chunk_id, stored_size))

    @property
    def counts(self) -> DiskCounts:
        with self._lock:
            return DiskCounts(self._hits, self._misses, self._evictions, self._damaged, self._held)

    def close(self) -> None:
        """Close the cache. Its files stay for the next process. Idempotent."""
        with self._lock:
            self._off.set()
            descriptor, self._held_lock = self._held_lock, None
        if descriptor is not None:
            os.close(descriptor)  # this releases the lock

    def _take_stock(self) -> None:
        """Register the files of an earlier process, oldest first. Remove its unfinished files. Ignore foreign files."""
        for folder in (self._chunks, self._unfinished):
            folder.mkdir(mode=0o700, exist_ok=True)
        for unfinished in os.scandir(self._unfinished):
            if _NAME.fullmatch(unfinished.name):
                os.unlink(unfinished.path)
        files = []
        for entry in os.scandir(self._chunks):
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, entry.name, _rounded(status.st_size)))
        for _, name, size in sorted(files):
            self._entries[name] = size
            self._held += size
        self._room_for(0)

    def _room_for(self, size: int) -> bool:
        """Evict files until ``size`` bytes fit. Return False if they cannot fit. The caller holds the lock."""
        if size > self._max_bytes:
            return False
        while self._held + size > self._max_bytes and self._entries:
            self._evict()
        if self._held + size > self._max_bytes:  # files that are being written take the rest
            return False
        lacking = self._lacking(self._folder) + size
        while lacking > 0 and self._entries:
            lacking -= self._evict()
        return lacking <= 0

    def _evict(self) -> int:
        """Delete the least recently used file and return its size in bytes. The caller holds the lock."""
        self._evictions += 1
        return self._remove(next(iter(self._entries)))

    def _remove(self, name: str) -> int:
        (self._chunks / name).unlink(missing_ok=True)
        size = self._entries.pop(name)
        self._held -= size
        return size

    def _keep_giving_way(self) -> None:
        """Make room regularly, because other files may fill the disk also while this cache is idle."""
        while not self._off.wait(GIVES_WAY_EVERY_S):
            try:
                with self._lock:
                    if not self._off.is_set():
                        self._room_for(0)
            except OSError as error:
                self._turn_off(error)

    def _drop(self, name: str, damaged: int = 0) -> None:
        try:
            with self._lock:
                self._damaged += damaged
                if not self._off.is_set() and name in self._entries:
                    self._remove(name)
        except OSError as error:
            self._turn_off(error)

    def _turn_off(self, error: OSError) -> None:
        with self._lock:
            was_off = self._off.is_set()
            self._off.set()
        if not was_off:
            self._listener(ChunkCacheOff(str(self._folder), error.strerror or str(error)))


def open_disk_cache(folder: Path, max_bytes: int, listener: Listener = ignore) -> DiskCache | None:
    """Return the cache. Returns None, with a `ChunkCacheOff`, if another process uses it or the file system fails.

    Raises InvalidRequest for a folder that has files but no mark. Such a folder is not changed.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / MARK).is_file():
            if any(folder.iterdir()):
                raise InvalidRequest(
                    "this folder is no chunk cache: it has no mark and is not empty", folder=folder, mark=MARK
                )
            (folder / MARK).touch(mode=0o600)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            reason = "another process uses it" if isinstance(error, BlockingIOError) else str(error.strerror)
            listener(ChunkCacheOff(str(folder), reason))
            return None
    except OSError as error:
        listener(ChunkCacheOff(str(folder), error.strerror or str(error)))
        return None
    return DiskCache(folder, max_bytes, descriptor, listener)


def _name(key: str, chunk_id: int, stored_size: int) -> str:
    return hashlib.sha256(f"{key}\0{chunk_id}\0{stored_size}".encode()).hexdigest()


def _head(key: str, chunk_id: int, stored_size: int) -> bytes:
    """Return the bytes that the checksum covers in addition to the stored bytes."""
    encoded_key = key.encode()
    return _HEADER.pack(chunk_id, stored_size, len(encoded_key)) + encoded_key


def _prologue(head: bytes, stored: Bytes) -> bytes:
    checksum = extended(google_crc32c.value(head), stored)
    return _MAGIC + checksum.to_bytes(4, "big")


def _rounded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES

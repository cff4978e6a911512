"""Stored chunks in files: a second level of `cache.py` that survives a restart.

    FOLDER/tierstate-chunk-cache-1   the mark: the cache made this folder, and may delete its content
    FOLDER/lock                      held by the one process that uses it
    FOLDER/chunks/SHA-256            one chunk; the name hashes object key, chunk id and stored size
    FOLDER/unfinished/SHA-256        a file that is being written; opening the cache removes those of killed processes

A file consists of magic, CRC-32C, `_HEADER`, the object key, and the stored bytes; the CRC covers all that follows it.
A file that is incomplete, or of another chunk than requested, is dropped and counted, never served. It is written in
another folder and renamed. Nothing is synced: the checksum finds files that a power loss has torn.

The disk is shared with the tier view, without which nothing can be read: a part of it stays free (`KEPT_FREE`). When
other files fill the disk, the cache deletes its own, also when it is opened.

Files in the cache and those being written never exceed ``max_bytes``, each rounded up to `BLOCK_BYTES`; space is freed
before a file is written. (A file that is dropped while it is read lives until the read ends.) Least recently used files
go first: exactly while the process lives, and over restarts by their modification times, which every hit renews.
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

from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import ChunkCacheOff, Listener, ignore
from ...state.errors import InvalidRequest
from ..crc32c import extended
from .buffers import Bytes

MARK = "tierstate-chunk-cache-1"
BLOCK_BYTES = 4096
"""Unit in which a file system allocates: a file of one byte takes a block."""
KEPT_FREE = 0.05
MOST_KEPT_FREE = 10 * 1024**3
"""Space of the file system that the cache leaves free: as a share, and in bytes at most."""
GIVES_WAY_EVERY_S = 5.0
SYSTEM = SystemClock()
_HEADER = struct.Struct(">QQI")
"""Chunk id, stored bytes, length of the object key; before it magic and the CRC-32C of all that follows."""
_PROLOGUE = 8
_MAGIC = b"TSc1"
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """Counts since the cache was opened; ``bytes`` are held now."""

    hits: int
    misses: int
    evictions: int
    damaged: int
    bytes: int


def lacking_bytes(folder: Path) -> int:
    """Return how many more bytes its file system should have free; negative: that many may be used."""
    status = os.statvfs(folder)
    reserve = min(int(status.f_blocks * KEPT_FREE), MOST_KEPT_FREE // status.f_frsize)
    return (reserve - status.f_bavail) * status.f_frsize


class DiskCache:
    """Made by `open_disk_cache`, which holds the lock. Thread-safe; no method raises.

    An error of the file system (no room, not permitted, broken) turns it off for good, with a `ChunkCacheOff`.
    ``lacking``: how many bytes too few the file system has free.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        lock: int,
        listener: Listener = ignore,
        lacking: Callable[[Path], int] = lacking_bytes,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock, self._used_ns = clock, 0
        self._folder, self._max_bytes, self._listener, self._lacking = folder, max_bytes, listener, lacking
        self._chunks, self._unfinished = folder / "chunks", folder / "unfinished"
        self._held_lock: int | None = lock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, int] = OrderedDict()
        self._writing: dict[str, int] = {}
        self._held = self._hits = self._misses = self._evictions = self._damaged = 0
        self._off = False
        self._closed = threading.Event()
        try:
            self._take_stock()
        except OSError as error:
            self._turn_off(error)
        threading.Thread(target=self._keep_giving_way, name="tierstate-chunk-cache", daemon=True).start()

    def get(self, key: str, chunk_id: int, stored_size: int) -> bytes | None:
        """Return the stored bytes; None when they are absent or damaged."""
        name = _name(key, chunk_id, stored_size)
        with self._lock:
            if self._off or name not in self._entries:
                self._misses += 1
                return None
            self._entries.move_to_end(name)
        head, body = _head(key, chunk_id, stored_size), b""
        start = b""
        try:
            with open(self._chunks / name, "rb", buffering=0) as file:
                start, body = file.read(len(head) + _PROLOGUE), file.read(stored_size + 1)
                self._used(file.fileno())
        except FileNotFoundError:  # dropped since, or removed by hand
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
        """Keep the chunk if there is room for it at all; drop others for it."""
        name = _name(key, chunk_id, len(stored))
        head = _head(key, chunk_id, len(stored))
        size = _rounded(_PROLOGUE + len(head) + len(stored))
        temporary = self._unfinished / name
        try:
            with self._lock:
                if self._off or name in self._entries or name in self._writing or not self._room_for(size):
                    return
                self._writing[name] = size
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(_prologue(head, stored) + head)
                    file.write(stored)
                    file.flush()
                    self._used(file.fileno())
                with self._lock:
                    if self._off:
                        raise OSError("closed while a chunk was written")
                    os.rename(temporary, self._chunks / name)
                    self._entries[name] = size
                    self._held += size
            finally:
                with self._lock:
                    del self._writing[name]
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
        except OSError as error:
            self._turn_off(error)

    def _used(self, descriptor: int) -> None:
        """Set the file's time: with the kernel's, two files of one clock tick would be equally old."""
        self._used_ns = max(self._used_ns + 1, self._clock.now_ms() * 1_000_000)
        os.utime(descriptor, ns=(self._used_ns, self._used_ns))

    def drop_damaged(self, key: str, chunk_id: int, stored_size: int) -> None:
        """Drop a file whose bytes are not the chunk's."""
        with self._lock:
            self._damaged += 1
        self._drop(_name(key, chunk_id, stored_size))

    @property
    def counts(self) -> DiskCounts:
        with self._lock:
            return DiskCounts(self._hits, self._misses, self._evictions, self._damaged, self._held)

    def close(self) -> None:
        """Close the cache; its files stay for the next process. Idempotent."""
        self._closed.set()
        with self._lock:
            self._off = True
            descriptor, self._held_lock = self._held_lock, None
        if descriptor is not None:
            os.close(descriptor)  # and with it the lock

    def _take_stock(self) -> None:
        """Count the files of an earlier process, oldest first. Remove unfinished ones; ignore files of others."""
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
        """Make room for ``size`` bytes, under the lock. Return False when they do not fit, whatever is dropped."""
        incoming = size + sum(self._writing.values())
        if incoming > self._max_bytes:
            return False
        while self._held + incoming > self._max_bytes:
            self._evict()
        lacking = self._lacking(self._folder) + size
        while lacking > 0 and self._entries:
            lacking -= self._evict()
        return lacking <= 0

    def _evict(self) -> int:
        """Drop the least recently used file, under the lock, and return its bytes."""
        name = next(iter(self._entries))
        (self._chunks / name).unlink(missing_ok=True)
        size = self._entries.pop(name)
        self._held -= size
        self._evictions += 1
        return size

    def _keep_giving_way(self) -> None:
        """Make room regularly: other files may fill the disk at any time, also while this cache is idle."""
        while not self._closed.wait(GIVES_WAY_EVERY_S):
            try:
                with self._lock:
                    if self._off:
                        return
                    self._room_for(0)
            except OSError as error:
                self._turn_off(error)

    def _drop(self, name: str) -> None:
        try:
            with self._lock:
                if not self._off and name in self._entries:
                    (self._chunks / name).unlink(missing_ok=True)
                    self._held -= self._entries.pop(name)
        except OSError as error:
            self._turn_off(error)

    def _turn_off(self, error: OSError) -> None:
        with self._lock:
            was_off, self._off = self._off, True
        if not was_off:
            self._listener(ChunkCacheOff(str(self._folder), error.strerror or str(error)))


def open_disk_cache(folder: Path, max_bytes: int, listener: Listener = ignore) -> DiskCache | None:
    """Return the cache; None, with a `ChunkCacheOff`, when another process has it or the file system refuses.

    Raises InvalidRequest for a folder that holds files and was not made here: it is never touched.
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

"""Transforms the plain log to its stored bytes in one pass: checksums, chunks, zstd, AES-GCM.

    the log's pieces → length, SHA-256, CRC-32C  ┊  → chunks → zstd → AES-GCM  ┊  → the store
    ─────────────── one thread ────────────────     ───── another thread ─────     the caller's

Each stage works ahead of the next one by a bounded number of bytes, so that a part is made while earlier parts are
sent. (Hashing, zstd and AES-GCM release the GIL.) The order is kept, an error of any stage ends all stages, and no
thread outlives `LogTransform.pieces`. A copy that begins while others run does everything in the caller's thread: the
other copies keep the processors and the store busy, so that more threads would cost more than they gain (`WorkAhead`).
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import google_crc32c
import zstandard

from ...state.errors import CorruptData, InvalidRequest
from ..crc32c import extended
from ..object_store import MIB, Data
from .chunks import ChunkIndex
from .encryption import OVERHEAD_BYTES, SegmentCipher

AHEAD_BYTES = 2 * MIB
"""Bytes by which a stage works ahead. More would use memory without gain, because uploads request whole parts."""

ZSTD_BYTES = 4 * MIB
"""Memory that zstd needs at most for a chunk of 4 MiB at its default level: tables, a window of 2 MiB, two blocks."""

Pieces = Generator[bytes, None, None]


@dataclass(frozen=True, slots=True)
class ChunkForm:
    """The form in which a log is stored: cut into chunks, each of which is first compressed, then encrypted.

    ``level`` is zstd's level, or None for no compression. ``iv`` returns 12 new random bytes at every call.
    Raises InvalidRequest for a cipher without ``iv``.
    """

    chunk_bytes: int
    level: int | None = None
    cipher: SegmentCipher | None = None
    iv: Callable[[], bytes] | None = None

    def __post_init__(self) -> None:
        if self.cipher is not None and self.iv is None:
            raise InvalidRequest("encryption needs a source of random IVs")

    @property
    def as_it_is(self) -> bool:
        """True if the stored log is identical to the plain log."""
        return self.level is None and self.cipher is None

    @property
    def whole_chunk_bytes(self) -> int:
        """Stored size in bytes of every chunk but the last. With compression it is not known: then the plain size."""
        return self.chunk_bytes + (OVERHEAD_BYTES if self.cipher is not None and self.level is None else 0)

    def encrypted(self, plain: Data) -> Data:
        """Return one whole chunk or index, encrypted. Returns ``plain`` itself without a cipher, or if it is empty."""
        if self.cipher is None or self.iv is None or not len(plain):
            return plain
        return self.cipher.encrypt(plain, self.iv())

    def encrypted_pieces(self, plain: Iterable[Data]) -> Iterable[Data]:
        """Do the same as `encrypted` for one chunk that arrives in pieces and is not empty."""
        return plain if self.cipher is None or self.iv is None else self.cipher.encrypt_pieces(plain, self.iv())

    def index(self, log_bytes: int, stored_sizes: list[int]) -> ChunkIndex:
        """Return Aiven's chunk index: all stored sizes if they vary, else the common and the last size."""
        if self.level is not None:
            return ChunkIndex.of_variable(self.chunk_bytes, log_bytes, stored_sizes)
        plain = ChunkIndex.of_plain(self.chunk_bytes, log_bytes)
        if self.cipher is None:
            return plain
        size, last = plain.stored_sizes
        return ChunkIndex.of_fixed(self.chunk_bytes, log_bytes, size + OVERHEAD_BYTES, last + OVERHEAD_BYTES)


class WorkAhead:
    """Decides for all copies of a process how far their stages work ahead. The stages of a copy that begins while no
    other copy runs work ahead by ``ahead_bytes``, those of other copies not at all. Thread-safe.
    """

    def __init__(self, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._ahead_bytes = ahead_bytes
        self._copies = 0
        self._lock = threading.Lock()

    @contextmanager
    def copy(self) -> Iterator[int]:
        """Enclose one copy. Yields the number of bytes by which each of its stages works ahead."""
        with self._lock:
            ahead_bytes = 0 if self._copies else self._ahead_bytes
            self._copies += 1
        try:
            yield ahead_bytes
        finally:
            with self._lock:
                self._copies -= 1


class LogTransform:
    """One pass over one log. After `pieces` was consumed to its end, once, the attributes describe the whole log.

    ``stored_crc32c`` and ``chunk_crc32c`` are the CRC-32C of all stored bytes and of each stored chunk.

    ``log`` yields pieces of any size, ``log_bytes`` in all. No piece is used after the next one was requested. ``key``
    names the log in errors. ``stored_limit`` is the largest allowed number of stored bytes.
    """

    def __init__(
        self, log: Iterable[Data], log_bytes: int, form: ChunkForm, key: str, stored_limit: int | None = None
    ) -> None:
        self.sha256 = hashlib.sha256()
        self.crc32c = self.stored_crc32c = 0
        self.chunk_crc32c: list[int] = []
        self._log, self._log_bytes, self._form = log, log_bytes, form
        self._key, self._stored_limit = key, stored_limit
        self._stored_sizes: list[int] = []

    def pieces(self, work_ahead: WorkAhead) -> Pieces:
        """Yield the stored bytes in order. The caller must close the generator to end its threads, also after an error.

        Memory: three pieces of the log and the bytes ahead. With zstd or AES-GCM this doubles, and zstd needs
        `ZSTD_BYTES`. A log that is no longer than the bytes ahead is transformed in the caller's thread.
        Raises the errors of ``log``, CorruptData if the log has another length, InvalidRequest above ``stored_limit``.
        """
        with work_ahead.copy() as ahead_bytes:
            threaded = 0 < ahead_bytes < self._log_bytes
            pieces = self._summed()
            if threaded:
                pieces = ahead(pieces, ahead_bytes)
            if self._form.as_it_is:
                pieces = self._as_it_is(pieces)
            else:
                pieces = self._stored(pieces)
                if threaded:
                    pieces = ahead(pieces, ahead_bytes)
            with closing(pieces):
                yield from pieces

    def chunk_index(self) -> ChunkIndex:
        return self._form.index(self._log_bytes, self._stored_sizes)

    def _summed(self) -> Pieces:
        size = 0
        for piece in self._log:
            data = bytes(piece)  # no copy if the piece is bytes; google-crc32c accepts only bytes
            size += len(data)
            if size > self._log_bytes:
                break
            self.sha256.update(data)
            self.crc32c = google_crc32c.extend(self.crc32c, data)
            yield data
        if size != self._log_bytes:
            raise CorruptData(
                "the log changed its length while it was copied",
                file=self._key,
                expected=self._log_bytes,
                seen=f"{size} or more" if size > self._log_bytes else size,
            )

    def _as_it_is(self, plain: Pieces) -> Pieces:
        """Yield the pieces unchanged, even if they cross chunks, and compute the checksums of the chunks."""
        chunk_bytes, position = self._form.chunk_bytes, 0
        with closing(plain):
            for piece in plain:
                at = 0
                while at < len(piece):
                    if position % chunk_bytes == 0:
                        self.chunk_crc32c.append(0)
                    part = memoryview(piece)[at : at + chunk_bytes - position % chunk_bytes]
                    self.chunk_crc32c[-1] = extended(self.chunk_crc32c[-1], part)
                    at, position = at + len(part), position + len(part)
                yield piece
        self.stored_crc32c = self.crc32c

    def _stored(self, plain: Pieces) -> Pieces:
        stored_bytes = 0
        with closing(plain):
            for chunk in self._chunks(plain):
                began = stored_bytes
                self.chunk_crc32c.append(0)
                for piece in self._form.encrypted_pieces(chunk):
                    stored_bytes += len(piece)
                    self.stored_crc32c = extended(self.stored_crc32c, piece)
                    self.chunk_crc32c[-1] = extended(self.chunk_crc32c[-1], piece)
                    if self._stored_limit is not None and stored_bytes > self._stored_limit:
                        raise InvalidRequest("Aiven's reader cannot read a log object this long", file=self._key)
                    yield bytes(piece)
                self._stored_sizes.append(stored_bytes - began)

    def _chunks(self, plain: Pieces) -> Generator[Iterable[Data], None, None]:
        """Yield the pieces of each chunk, ready to be encrypted."""
        chunks = _cut(plain, self._form.chunk_bytes, self._log_bytes)
        if self._form.level is None:
            yield from chunks
            return
        compressor = zstandard.ZstdCompressor(level=self._form.level, write_content_size=True)
        remaining = self._log_bytes
        for chunk in chunks:
            plain_bytes = min(self._form.chunk_bytes, remaining)
            remaining -= plain_bytes
            yield _compressed(compressor, chunk, plain_bytes)


def _compressed(compressor: zstandard.ZstdCompressor, chunk: Iterable[Data], plain_bytes: int) -> Iterator[bytes]:
    """Yield one zstd frame, with its content size, in pieces. The whole chunk is never in memory."""
    frame = compressor.compressobj(size=plain_bytes)
    for piece in chunk:
        if data := frame.compress(piece):
            yield data
    yield frame.flush()


def _cut(plain: Pieces, chunk_bytes: int, log_bytes: int) -> Generator[Iterable[memoryview], None, None]:
    """Yield, for each chunk, its pieces, without a copy. Consume a chunk before you request the next one."""
    rest = memoryview(b"")

    def chunk(left: int) -> Generator[memoryview, None, None]:
        nonlocal rest
        while left:
            if not rest:
                rest = memoryview(next(plain))  # `plain` yields the whole log or raises
            piece, rest = rest[:left], rest[left:]
            left -= len(piece)
            yield piece

    for start in range(0, log_bytes, chunk_bytes):
        yield chunk(min(chunk_bytes, log_bytes - start))
    for _ in plain:  # a log that is too long raises when more is requested
        pass


def ahead(pieces: Pieces, ahead_bytes: int) -> Pieces:
    """Yield the same pieces, which another thread requests. An error is raised after the pieces before it.

    The thread requests another piece if the waiting pieces have fewer than ``ahead_bytes``. Closing this generator
    waits for the piece that is being made, and closes ``pieces``.
    """
    worker = _Ahead(pieces, ahead_bytes)
    try:
        while (piece := worker.take()) is not None:
            yield piece
    finally:
        worker.stop()


class _Ahead:
    def __init__(self, pieces: Pieces, ahead_bytes: int) -> None:
        self._pieces, self._ahead_bytes = pieces, ahead_bytes
        self._changed = threading.Condition()
        self._made: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._ended = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tierstate-transform", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with closing(self._pieces):
                while self._may_make():
                    if (piece := next(self._pieces, None)) is None:
                        return
                    self._put(piece)
                    del piece  # only the caller keeps it
        except BaseException as error:  # whatever it is, `take` raises it
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _may_make(self) -> bool:
        """Wait until there is room for one more piece. Return False if the caller has called `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._waiting_bytes < self._ahead_bytes)
            return not self._stopped

    def _put(self, piece: bytes) -> None:
        with self._changed:
            self._made.append(piece)
            self._waiting_bytes += len(piece)
            self._changed.notify_all()

    def take(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._ended)
            if self._made:
                piece = self._made.popleft()
                self._waiting_bytes -= len(piece)
                self._changed.notify_all()
                return piece
        error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._made.clear()
            self._changed.notify_all()
        self._thread.join()

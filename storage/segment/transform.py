"""Transforms the plain log to its stored bytes in one pass: checksums, chunks, zstd, AES-GCM.

    the log's pieces → length, SHA-256, CRC-32C → chunks → zstd → AES-GCM → the store

All stages run in the thread that consumes the pieces, while the store sends earlier parts on other threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import google_crc32c
import zstandard

from ...state.errors import CorruptData, InvalidRequest
from ..crc32c import extended
from ..object_store import Data
from .chunks import MAX_INT, ChunkIndex
from .encryption import OVERHEAD_BYTES, SegmentCipher


@dataclass(frozen=True, slots=True)
class ChunkForm:
    """The form in which a log is stored: cut into chunks, each of which is first compressed, then encrypted.

    ``level`` is zstd's level, or None for no compression.
    """

    chunk_bytes: int
    level: int | None = None
    cipher: SegmentCipher | None = None

    @property
    def whole_chunk_bytes(self) -> int:
        """Stored size in bytes of every chunk but the last. With compression it is not known: then the plain size."""
        return self.chunk_bytes + (OVERHEAD_BYTES if self.cipher is not None and self.level is None else 0)


class LogTransform:
    """One pass over one log. After `pieces` was consumed to its end, once, the attributes describe the whole log.

    ``stored_crc32c`` and ``chunk_crc32c`` are the CRC-32C of all stored bytes and of each stored chunk.

    ``log`` yields pieces of any size, ``log_bytes`` in all. No piece is used after the next one was requested. ``key``
    names the log in errors.
    """

    def __init__(self, log: Iterable[Data], log_bytes: int, form: ChunkForm, key: str) -> None:
        self.sha256 = hashlib.sha256()
        self.crc32c = self.stored_crc32c = 0
        self.chunk_crc32c: list[int] = []
        self._log, self._log_bytes, self._form, self._key = log, log_bytes, form, key
        self._stored_sizes: list[int] = []

    def pieces(self) -> Generator[Data, None, None]:
        """Yield the stored bytes in order. Memory: two pieces of the log and one of the stored bytes.

        Raises the errors of ``log``, CorruptData if the log has another length, InvalidRequest above `MAX_INT`.
        """
        stored_bytes = 0
        with closing(self._summed()) as plain:
            for chunk in self._chunks(plain):
                began = stored_bytes
                self.chunk_crc32c.append(0)
                for piece in chunk if self._form.cipher is None else self._form.cipher.encrypt_pieces(chunk):
                    stored_bytes += len(piece)
                    self.stored_crc32c = extended(self.stored_crc32c, piece)
                    self.chunk_crc32c[-1] = extended(self.chunk_crc32c[-1], piece)
                    if stored_bytes > MAX_INT:
                        raise InvalidRequest("Aiven's reader cannot read a log object this long", file=self._key)
                    yield piece
                self._stored_sizes.append(stored_bytes - began)

    def chunk_index(self) -> ChunkIndex:
        """Return Aiven's chunk index: all stored sizes if they vary, else the common and the last size."""
        if self._form.level is not None:
            return ChunkIndex.of_variable(self._form.chunk_bytes, self._log_bytes, self._stored_sizes)
        sizes = (self._form.whole_chunk_bytes, self._stored_sizes[-1])
        return ChunkIndex(self._form.chunk_bytes, self._log_bytes, sizes, fixed=True)

    def _summed(self) -> Generator[bytes, None, None]:
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

    def _chunks(self, plain: Iterator[bytes]) -> Iterator[Iterable[Data]]:
        compressor = None
        if self._form.level is not None:
            compressor = zstandard.ZstdCompressor(level=self._form.level, write_content_size=True)
        rest = memoryview(b"")

        def cut(left: int) -> Iterator[memoryview]:
            nonlocal rest
            while left:
                if not rest:
                    rest = memoryview(next(plain))  # `plain` yields the whole log or raises
                piece, rest = rest[:left], rest[left:]
                left -= len(piece)
                yield piece

        for start in range(0, self._log_bytes, self._form.chunk_bytes):
            size = min(self._form.chunk_bytes, self._log_bytes - start)
            yield cut(size) if compressor is None else _compressed(compressor, cut(size), size)
        for _ in plain:  # a log that is too long raises when more is requested
            pass


def _compressed(compressor: zstandard.ZstdCompressor, chunk: Iterable[Data], plain_bytes: int) -> Iterator[bytes]:
    """Yield one zstd frame, with its content size, in pieces. The whole chunk is never in memory."""
    frame = compressor.compressobj(size=plain_bytes)
    for piece in chunk:
        if data := frame.compress(piece):
            yield data
    yield frame.flush()

"""The chunks of one log object: reads their stored bytes by few requests, then decrypts and decompresses them.

Lengths are always checked. If an object is shorter than its manifest states, reads raise CorruptData.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol, runtime_checkable

import zstandard

from ...state.errors import CorruptData, OtherBytes
from ...state.offsets import ByteRange
from ..crc32c import extended
from ..object_store import MIB, ObjectReads, RangeNotSatisfiable
from .buffers import Bytes, Memory, new_memory, put
from .chunks import Chunk
from .encryption import SegmentCipher
from .in_order import Stopped

WINDOW_BYTES = 8 * MIB
"""One request reads adjacent chunks of at most this many bytes, stored and plain, or one larger chunk."""

MOST_WINDOW = 2
"""Largest window of a frame, as a multiple of its chunk's length. Other frames are unpacked as a whole."""


@runtime_checkable
class NearStore(Protocol):
    """A store without network delay, such as a folder. It reads into the caller's memory, and reads ahead itself."""

    def read_into(self, key: str, start: int, target: memoryview) -> int: ...


class LogChunks:
    """Reads the chunks of the object ``key``. Thread-safe. ``cipher`` is None if they are not encrypted.

    ``checksums`` has the CRC-32C of each stored chunk, or is empty if the manifest has none. `stored` returns only
    bytes with these checksums.
    """

    def __init__(
        self,
        store: ObjectReads,
        key: str,
        *,
        compressed: bool,
        cipher: SegmentCipher | None,
        checksums: Sequence[int] = (),
    ) -> None:
        self.key, self.checksums = key, checksums
        self._store, self._compressed, self._cipher = store, compressed, cipher
        self._near = store if isinstance(store, NearStore) else None

    def stored(
        self, chunks: Sequence[Chunk], stop: threading.Event | None = None, memory: Memory = new_memory
    ) -> Generator[Bytes, None, None]:
        """Yield the stored bytes of each of the adjacent chunks, by one request. ``memory`` makes the memory for chunks
        that arrive in several pieces.

        Raises ObjectNotFound, OtherBytes, Unavailable, Stopped. Raises CorruptData for an object that is too short.
        """
        waiting = iter(chunks)
        chunk = next(waiting)
        target, filled = memoryview(b""), 0
        span = ByteRange(chunks[0].stored_start, chunks[-1].stored_stop)
        with closing(exact_range(self._store, self.key, span, stop, chunks)) as pieces:
            for piece in pieces:
                view, at = memoryview(piece), 0
                while len(piece) - at >= (need := chunk.stored_size - filled):
                    if filled:
                        put(target, filled, view[at : at + need])
                        self.require(chunk, target)
                        yield target.toreadonly()
                        target = memoryview(b"")  # only the caller keeps it
                    else:
                        self.require(chunk, view[at : at + need])
                        yield piece[at : at + need]
                    at += need
                    chunk, filled = next(waiting, chunk), 0
                if at < len(piece):
                    target = target if filled else memory(chunk.stored_size)
                    put(target, filled, view[at:])
                    filled += len(piece) - at

    def require(self, chunk: Chunk, stored: Bytes) -> None:
        """Raise OtherBytes if the checksum of ``stored`` is not the chunk's. Does nothing without checksums."""
        if self.checksums and (actual := extended(0, stored)) != (expected := self.checksums[chunk.id]):
            raise OtherBytes(
                "a chunk has other bytes than were copied",
                chunk=chunk.id,
                file=self.key,
                position=chunk.stored_start,
                expected=f"{expected:08x}",
                found=f"{actual:08x}",
            )

    def stored_into(self, target: memoryview, range: ByteRange, stop: threading.Event, chunks: Sequence[Chunk]) -> None:
        """Read exactly ``range`` into the start of ``target``, by one request. Raises the errors of `exact_range`."""
        if self._near is None:
            at = 0
            with closing(exact_range(self._store, self.key, range, stop, chunks)) as pieces:
                for piece in pieces:
                    target[at : at + len(piece)] = piece
                    at += len(piece)
            return
        try:
            count = self._near.read_into(self.key, range.start, target)
        except RangeNotSatisfiable as error:
            raise _short(self.key, range, 0, chunks) from error
        if count != len(range):
            raise _short(self.key, range, count, chunks)

    def plain(self, chunk: Chunk, stored: Bytes) -> Bytes:
        """Return a chunk's plain bytes. Raises CorruptData with key, chunk and reason, also for a wrong length."""
        with self._naming(chunk):
            data = self._decrypted(chunk, stored)
            if self._compressed:
                data = _decompressed(chunk, data)
            if len(data) != chunk.plain_size:
                raise _wrong_length(chunk, len(data))
            return data

    def beginning(self, chunk: Chunk, stored: Bytes, size: int) -> bytes | None:
        """Return the first ``size`` plain bytes of a chunk, or None if only `plain` can. Raises CorruptData as `plain`.

        The rest of the frame is not checked. Damage there is found when a read needs the whole chunk. The batches
        themselves have their own CRC, which a decoder checks.
        """
        if not self._compressed:
            return None
        with self._naming(chunk):
            return _beginning(chunk, self._decrypted(chunk, stored), size)

    @contextmanager
    def _naming(self, chunk: Chunk) -> Iterator[None]:
        try:
            yield
        except CorruptData as error:
            place = {"file": self.key, "chunk": chunk.id, "position": chunk.stored_start}
            raise CorruptData(error.message, **(error.facts | place)) from error

    def _decrypted(self, chunk: Chunk, stored: Bytes) -> Bytes:
        if self._cipher is None:
            return stored
        return self._cipher.decrypt(stored, source=self.key, position=chunk.stored_start)


def windows(chunks: Sequence[Chunk], window_bytes: float = WINDOW_BYTES) -> Iterator[list[Chunk]]:
    """Yield adjacent chunks in lists of at most ``window_bytes``, stored and plain, or of one larger chunk."""
    window: list[Chunk] = []
    size = 0
    for chunk in chunks:
        more = max(chunk.stored_size, chunk.plain_size)
        if window and (size + more > window_bytes or chunk.id != window[-1].id + 1):
            yield window
            window, size = [], 0
        window.append(chunk)
        size += more
    if window:
        yield window


def exact_range(
    store: ObjectReads, key: str, range: ByteRange, stop: threading.Event | None = None, chunks: Sequence[Chunk] = ()
) -> Generator[bytes, None, None]:
    """Yield exactly the bytes ``range``, in pieces of at most `WINDOW_BYTES`. Closing the generator ends the request.

    Raises CorruptData if the object is too short; the error names the first incomplete chunk of ``chunks``. Raises
    Stopped when ``stop`` is set.
    """
    count = 0
    first = chunks[0].stored_size if chunks else 0
    # if all stored chunks have one size, pieces of that size are the chunks, and nothing is copied
    pieces = store.stream_range(key, range, first if MIB <= first <= WINDOW_BYTES else MIB)
    try:
        for piece in pieces:
            count += len(piece)
            yield piece
            if stop is not None and stop.is_set():
                raise Stopped
    except RangeNotSatisfiable as error:
        raise _short(key, range, 0, chunks) from error
    finally:
        if isinstance(pieces, Generator):
            pieces.close()  # now, to free its connection: a traceback may refer to the generator for long
    if count != len(range):
        raise _short(key, range, count, chunks)


def _short(key: str, range: ByteRange, count: int, chunks: Sequence[Chunk]) -> CorruptData:
    end = range.start + count
    return CorruptData(
        "object is shorter than its manifest says",
        file=key,
        chunk=next((chunk.id for chunk in chunks if end < chunk.stored_stop), None),
        position=range.start,
        expected=range.stop,
        found=end if count else f"at most {range.start}",
    )


def _decompressed(chunk: Chunk, frame: Bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(frame)
        if size != chunk.plain_size:  # before anything of that size is allocated
            raise _wrong_length(chunk, size)
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptData("a chunk cannot be decompressed", reason=error) from error


def _beginning(chunk: Chunk, frame: Bytes, size: int) -> bytes | None:
    try:
        parameters = zstandard.get_frame_parameters(frame)
        if parameters.content_size != chunk.plain_size or parameters.window_size > MOST_WINDOW * chunk.plain_size:
            return None
        data: bytes = zstandard.ZstdDecompressor().stream_reader(frame).read(size)
    except zstandard.ZstdError as error:
        raise CorruptData("a chunk cannot be decompressed", reason=error) from error
    if len(data) != size:
        raise _wrong_length(chunk, len(data))
    return data


def _wrong_length(chunk: Chunk, size: int) -> CorruptData:
    return CorruptData("a chunk has another length than its manifest says", expected=chunk.plain_size, found=size)

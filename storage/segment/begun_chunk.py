"""Unpacks a compressed chunk only as far as it is read. A small read at a random position needs half of its chunk.

The bytes returned were unpacked without an error from a frame that states the right length. The rest of the frame is
not checked. Damage there, or bytes after the frame's end, are found when a read needs the whole chunk
(`LogChunks.plain`). The batches themselves have their own CRC, which a decoder checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

from ...state.errors import CorruptData
from .buffers import Bytes

STEP_BYTES = 128 * 1024
"""The largest block of zstd; a block is unpacked as a whole."""
MOST_WINDOW = 2
"""Largest window of a frame, as a multiple of its chunk's length. Other frames are unpacked as a whole."""


@dataclass(frozen=True, slots=True)
class BegunChunk:
    """The first ``size`` plain bytes of a chunk, and all its stored bytes for further reads."""

    pieces: tuple[bytes, ...]
    size: int
    stored: Bytes

    def cut(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the bytes ``[start, stop)`` of the chunk. ``stop`` is at most ``size``."""
        at = 0
        for piece in self.pieces:
            if at < stop and at + len(piece) > start:
                yield memoryview(piece)[max(0, start - at) : stop - at]
            at += len(piece)


class Unpacking:
    """Unpacks one frame from its beginning. Not thread-safe. Memory: the frame and zstd's window (`MOST_WINDOW`)."""

    def __init__(self, frame: Bytes) -> None:
        self._stream = zstandard.ZstdDecompressor().stream_reader(frame)

    def more(self, size: int) -> bytes:
        """Return exactly the next ``size`` plain bytes. Raises CorruptData."""
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as error:
            raise CorruptData("a chunk cannot be decompressed", reason=error) from error
        if len(data) != size:
            raise CorruptData("a chunk ends before its own length", missing=size - len(data))
        return data


def unpacking(frame: Bytes, plain_size: int) -> Unpacking | None:
    """Return the unpacking of a frame. Returns None if the frame must be unpacked, and so checked, as a whole."""
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError:
        return None
    if parameters.content_size != plain_size or parameters.window_size > MOST_WINDOW * plain_size:
        return None
    return Unpacking(frame)

"""Opens a compressed chunk only as far as it is read: a small read far from the last one needs half of it.

The bytes returned were unpacked, without an error so far, from a frame that states the right length. The rest is not
checked: damage there, or bytes after the frame's end, are found by a read to the end of the chunk, as
`LogChunks.plain` finds them. The batches themselves have their own CRC, which a decoder checks.
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
    """The first ``size`` plain bytes of a chunk. ``stored``: the whole chunk as the store has it, for further reads."""

    pieces: tuple[bytes, ...]
    size: int
    stored: Bytes

    def cut(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the bytes from ``start`` to ``stop``, which is at most ``size``."""
        at = 0
        for piece in self.pieces:
            if at < stop and at + len(piece) > start:
                yield memoryview(piece)[max(0, start - at) : stop - at]
            at += len(piece)


class Unpacking:
    """Unpacks one frame from its beginning. Not thread-safe. Memory: the frame, and its window (`MOST_WINDOW`)."""

    def __init__(self, frame: Bytes) -> None:
        self._stream = zstandard.ZstdDecompressor().stream_reader(frame)

    def more(self, size: int) -> bytes:
        """Return exactly the next ``size`` bytes. Raises CorruptData."""
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as error:
            raise CorruptData("a chunk cannot be decompressed", reason=error) from error
        if len(data) != size:
            raise CorruptData("a chunk ends before its own length", missing=size - len(data))
        return data


def unpacking(frame: Bytes, plain_size: int) -> Unpacking | None:
    """Return the unpacking of a frame; None when it must be opened as a whole, which checks everything of it."""
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError:
        return None
    if parameters.content_size != plain_size or parameters.window_size > MOST_WINDOW * plain_size:
        return None
    return Unpacking(frame)

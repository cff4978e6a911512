"""A compressed chunk, opened only as far as somebody reads: a small read far from the last one needs half of it.

What is handed out was unpacked from a frame that says the right length, without an error so far. Not looked at is what
lies behind it: damage there, or bytes after the frame's end, are found by who reads on to the end of the chunk, as
`LogChunks.plain` finds them. The batches themselves have their own CRC, which a decoder checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

from ...state.errors import CorruptData
from .buffers import Bytes

STEP_BYTES = 128 * 1024
"""A block of zstd at most, which is unpacked as a whole."""
MOST_WINDOW = 2
"""How much a frame may want to keep in memory while it is unpacked, by the length of its chunk. Else: as a whole."""


@dataclass(frozen=True, slots=True)
class BegunChunk:
    """The first ``size`` plain bytes of a chunk, and for who reads on, ``stored``: all of it as the store has it."""

    pieces: tuple[bytes, ...]
    size: int
    stored: Bytes

    def cut(self, start: int, stop: int) -> Iterator[memoryview]:
        """Bytes from ``start`` to ``stop``, which is at most ``size``."""
        at = 0
        for piece in self.pieces:
            if at < stop and at + len(piece) > start:
                yield memoryview(piece)[max(0, start - at) : stop - at]
            at += len(piece)


class Unpacking:
    """One frame, from its beginning on. Not thread-safe. Memory: the frame, and its window (`MOST_WINDOW`)."""

    def __init__(self, frame: Bytes) -> None:
        self._stream = zstandard.ZstdDecompressor().stream_reader(frame)

    def more(self, size: int) -> bytes:
        """Exactly so many bytes. Raises CorruptData."""
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as error:
            raise CorruptData("a chunk cannot be decompressed", reason=error) from error
        if len(data) != size:
            raise CorruptData("a chunk ends before its own length", missing=size - len(data))
        return data


def unpacking(frame: Bytes, plain_size: int) -> Unpacking | None:
    """None: this frame is to be opened as a whole, which checks everything of it."""
    try:
        said = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError:
        return None
    if said.content_size != plain_size or said.window_size > MOST_WINDOW * plain_size:
        return None
    return Unpacking(frame)

"""The chunk index: the position of each chunk of the plain log in the log object, and its form in the manifest.

The plain log is cut every ``chunk_bytes``, and the chunks are stored one after the other. A ``fixed`` index has one
stored size for all chunks but the last. A ``variable`` index lists all sizes. Positions here have 64 bits (Aiven's
reader has 32 and fails near 2 GiB). Format: Aiven's ``ChunkSizesBinaryCodec``, ``manifest/index``, `docs/formats.md`.
"""

from __future__ import annotations

import base64
import itertools
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import zstandard

from ...state.errors import CorruptData, InvalidRequest
from ...state.offsets import Offset

MAX_CODED_BYTES = 10 * 1024 * 1024
"""Aiven's limit for the decoded list of sizes, for writers and readers."""
MAX_CHUNK_BYTES = 2**30 - 1
MAX_INT = 2**31 - 1
"""A segment of Kafka has no more bytes than this."""
MAX_CHUNKS = 2**21
"""The largest segment has this many chunks of 1 KiB, the smallest chunk size that an agent writes."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The position and size of a chunk in the plain log and in the log object, in bytes. Stops are exclusive."""

    id: int
    plain_start: int
    plain_size: int
    stored_start: int
    stored_size: int

    @property
    def plain_stop(self) -> int:
        return self.plain_start + self.plain_size

    @property
    def stored_stop(self) -> int:
        return self.stored_start + self.stored_size


@dataclass(frozen=True)
class ChunkIndex:
    """All chunks of a plain log of ``file_bytes``. Raises InvalidRequest for impossible sizes.

    ``stored_sizes`` has one size per chunk. An empty log has one chunk of size 0. With ``fixed``, there are two sizes:
    the size of every chunk but the last, and the size of the last one.
    """

    chunk_bytes: int
    file_bytes: int
    stored_sizes: tuple[int, ...]
    fixed: bool

    def __post_init__(self) -> None:
        if not (1 <= self.chunk_bytes <= MAX_INT and 0 <= self.file_bytes <= MAX_INT):
            raise InvalidRequest("chunk size or log size out of range", chunk=self.chunk_bytes, log=self.file_bytes)
        if self.count > MAX_CHUNKS:
            raise InvalidRequest("too many chunks", chunks=self.count, most=MAX_CHUNKS)
        expected = 2 if self.fixed else self.count
        if len(self.stored_sizes) != expected:
            raise InvalidRequest("chunk index of another length", chunks=len(self.stored_sizes), expected=expected)
        if min(self.stored_sizes) < 0 or max(self.stored_sizes) > MAX_INT:
            raise InvalidRequest(
                "a chunk size is out of range", smallest=min(self.stored_sizes), largest=max(self.stored_sizes)
            )

    @classmethod
    def of_variable(cls, chunk_bytes: int, file_bytes: int, stored_sizes: Sequence[int]) -> ChunkIndex:
        return cls(chunk_bytes, file_bytes, tuple(stored_sizes) or (0,), fixed=False)

    @property
    def count(self) -> int:
        return max(1, -(-self.file_bytes // self.chunk_bytes))

    @property
    def is_plain(self) -> bool:
        """True if every stored chunk is as long as its plain bytes."""
        chunks = (self.chunk(0), self.chunk(self.count - 1)) if self.fixed else self
        return all(chunk.stored_size == chunk.plain_size for chunk in chunks)

    @property
    def stored_bytes(self) -> int:
        return self.chunk(self.count - 1).stored_stop

    def chunk(self, id: int) -> Chunk:
        if not 0 <= id < self.count:
            raise InvalidRequest("no such chunk", chunk=id, chunks=self.count)
        last = id == self.count - 1
        start = id * self.chunk_bytes
        size = self.file_bytes - start if last else self.chunk_bytes
        if self.file_bytes == 0:
            return Chunk(0, 0, 0, 0, 0)
        if self.fixed:
            return Chunk(id, start, size, id * self.stored_sizes[0], self.stored_sizes[1 if last else 0])
        return Chunk(id, start, size, self._starts[id], self.stored_sizes[id])

    def __iter__(self) -> Iterator[Chunk]:
        return map(self.chunk, range(self.count))

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(self.stored_sizes, initial=0))


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Return the binary list: count, base, width, the differences from the base, then the last size as it is."""
    if any(not 0 <= size <= MAX_INT for size in sizes):
        raise InvalidRequest("a stored chunk size does not fit into 31 bits", largest=max(sizes), smallest=min(sizes))
    if len(sizes) < 2:
        return struct.pack(f">{1 + len(sizes)}i", len(sizes), *sizes)
    base = min(sizes[:-1])
    width = max(1, -(-(max(sizes[:-1]) - base).bit_length() // 8))
    deltas = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    coded = struct.pack(">iiB", len(sizes), base, width) + deltas + struct.pack(">i", sizes[-1])
    if len(coded) > MAX_CODED_BYTES:
        raise InvalidRequest("too many chunks; use larger ones", chunks=len(sizes), bytes=len(coded))
    return coded


def decode_sizes(coded: bytes) -> tuple[int, ...]:
    """Return the sizes that `encode_sizes` wrote. Memory is proportional to ``coded``. Raises CorruptData."""
    try:
        (count,) = struct.unpack_from(">i", coded)
        if count in (0, 1):
            sizes = struct.unpack(f">{count}i", coded[4:])
        else:
            base, width = struct.unpack_from(">iB", coded, 4)
            if count < 0 or not 1 <= width <= 4 or len(coded) != 13 + (count - 1) * width:
                raise CorruptData("chunk sizes of another length", count=count, width=width, bytes=len(coded))
            deltas = coded[9:-4]
            sizes = tuple(
                base + int.from_bytes(deltas[at : at + width], "big") for at in range(0, len(deltas), width)
            ) + struct.unpack(">i", coded[-4:])
    except struct.error as error:
        raise CorruptData("chunk sizes break off", bytes=len(coded)) from error
    if any(not 0 <= size <= MAX_INT for size in sizes):
        raise CorruptData("a chunk size is out of range", smallest=min(sizes), largest=max(sizes))
    return sizes


def wrap_sizes(sizes: Sequence[int]) -> str:
    """Return the text for the manifest: base64 of a zstd frame that states its content size."""
    return base64.b64encode(zstandard.ZstdCompressor().compress(encode_sizes(sizes))).decode()


def unwrap_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that `wrap_sizes` wrote. Raises CorruptData."""
    try:
        frame = base64.b64decode(text, validate=True)
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= MAX_CODED_BYTES:
            raise CorruptData("chunk sizes are of unknown or excessive length", bytes=size)
        return decode_sizes(zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False))
    except (ValueError, zstandard.ZstdError) as error:
        raise CorruptData("chunk sizes cannot be read", reason=error) from error


def first_offsets(
    batches: Iterable[tuple[int, Offset]], chunk_bytes: int, file_bytes: int
) -> tuple[Offset | None, ...]:
    """Return, for each chunk, the base offset of the first batch that begins in it, or None if no batch begins in it.

    ``batches`` yields (position in the plain log, base offset) of every batch, ascending.
    """
    offsets: list[Offset | None] = [None] * max(1, -(-file_bytes // chunk_bytes))
    for position, offset in batches:
        if offsets[position // chunk_bytes] is None:
            offsets[position // chunk_bytes] = offset
    return tuple(offsets)


def chunk_of_offset(first_batch_offsets: Sequence[Offset | None], offset: int) -> int:
    """Return the id of the chunk where the last batch at or below ``offset`` begins, or 0 if there is none."""
    starts = [(first, id) for id, first in enumerate(first_batch_offsets) if first is not None]
    at = bisect_right(starts, offset, key=lambda start: start[0])
    return starts[at - 1][1] if at else 0

"""Decompress record batches with a bound: the result has at most ``limit`` bytes, whatever size the input states.

Each codec has the fastest well-maintained library that was tried: isal (gzip), cramjam (snappy, lz4), zstandard. The
Java client frames snappy in xerial's blocks; librdkafka does not. Only snappy always states the size of the result, so
the output goes into a `Scratch`, which grows with the bytes that are really written.

Kafka's own reader defines which input is accepted: docs/formats.md has the table, tests/log/test_codecs_of_kafka.py
compares with Kafka. Bytes after a frame are ignored, as Kafka does: the CRC covers them, so the producer wrote them.
"""

from __future__ import annotations

import struct
from functools import cached_property, lru_cache
from typing import NamedTuple, cast

import cramjam
import numpy as np
import numpy.typing as npt
import zstandard
from isal import isal_zlib

from ..state.errors import BatchTooLarge, CorruptData
from .batch import CODECS

MAX_RECORDS_BYTES = 512 * 1024 * 1024
"""Maximum unpacked size of a batch; larger ones are rejected. Producers limit it to about 1 MiB by default."""

_UNPACK_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    struct.error,
    cast(type[Exception], isal_zlib.error),
    cramjam.DecompressionError,
    zstandard.ZstdError,
)

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_PIECE_BYTES = 1 << 16
"""Maximum input per call of the gzip library. It copies the input after a member, and members may be tiny."""
_ZSTD_HEADER_BYTES = 18
"""Maximum size of a frame's header (RFC 8878, 3.1.1.1)."""
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of frames that hold no data (RFC 8878, 3.1.2)."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
FIRST_BYTES = 2 << 20
_SOME_BYTES = 256 << 10
"""Size of the buffer for output that is only counted. It stays in the processor's cache."""


class Scratch:
    """A growing buffer for unpacked bytes. It keeps its content when it grows. Set ``used = 0`` to reuse the buffer.

    It begins in ``memory`` (uint8). When it grows, numpy resizes the memory in place, so a batch at the limit needs the
    limit, not twice that. If numpy refuses, because others use the memory, the content moves to new memory.
    """

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self.used = 0
        self._hold(memory)

    @cached_property
    def zstd(self) -> zstandard.ZstdDecompressor:
        """Return the decompressor that all batches share. Creating it takes a tenth of the time to unpack 64 KiB."""
        return zstandard.ZstdDecompressor()

    def _hold(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self.view: memoryview[int] = memoryview(data.data)
        self.address: int = data.ctypes.data

    def free(self, size: int) -> memoryview[int]:
        """Return the memory after the used bytes, at least ``size`` bytes. Grows the buffer if necessary."""
        if len(self.data) - self.used < size:
            self._grow(max(self.used + size, len(self.data) * 3 // 2))
        return self.view[self.used :]

    def _grow(self, size: int) -> None:
        del self.view  # numpy counts it as a reference to the array, and then refuses to resize
        try:
            self.data.resize(size)
        except ValueError:
            grown = np.empty(size, np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data = grown
        self._hold(self.data)


def decompress(
    codec: int, payload: bytes | memoryview, *, source: str, position: int, limit: int = MAX_RECORDS_BYTES
) -> bytes:
    """Return the unpacked records of one batch. Raises the errors of `decompress_into`."""
    scratch = Scratch(np.empty(max(1024, 4 * len(payload)), np.uint8))
    decompress_into(scratch, codec, payload, source=source, position=position, limit=limit)
    return scratch.view[: scratch.used].tobytes()


def decompress_into(
    scratch: Scratch,
    codec: int,
    payload: bytes | memoryview[int],
    *,
    source: str,
    position: int,
    limit: int = MAX_RECORDS_BYTES,
) -> None:
    """Append the unpacked records of one batch to ``scratch``. After an error, ``scratch.used`` is unchanged.

    Raises BatchTooLarge if there are more bytes than a ``limit`` below `MAX_RECORDS_BYTES`. Raises CorruptData, naming
    ``source`` and ``position``, for all other faults."""
    unpack = (_none, _gzip, _snappy, _lz4, _zstd)[codec]
    if codec and not payload:
        raise CorruptData(f"{CODECS[codec]} payload is empty", file=source, position=position)
    before = scratch.used
    try:
        unpack(scratch, payload, limit)
    except _UNPACK_ERRORS as error:
        scratch.used = before
        if limit < MAX_RECORDS_BYTES and isinstance(error, _TooMuch):
            raise BatchTooLarge(f"a batch unpacks to more than {limit} bytes", limit=limit) from error
        raise CorruptData(
            f"{CODECS[codec]} payload cannot be unpacked", file=source, position=position, reason=error
        ) from error


def _none(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    _within(len(payload), limit)
    scratch.free(len(payload))[: len(payload)] = payload
    scratch.used += len(payload)


def _gzip(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    """Unpack consecutive members (RFC 1952, 2.2). Stop before bytes that are not a member, and before a broken member
    that is not the first. If records are missing then, the parser rejects the batch."""
    begun = scratch.used
    at = _gzip_member(scratch, begun, payload, 0, limit)
    while bytes(payload[at : at + len(_GZIP_MAGIC)]) == _GZIP_MAGIC:
        whole = scratch.used
        try:
            at = _gzip_member(scratch, begun, payload, at, limit)
        except _TooMuch:
            raise
        except _UNPACK_ERRORS:
            scratch.used = whole
            return


def _gzip_member(scratch: Scratch, begun: int, payload: bytes | memoryview[int], at: int, limit: int) -> int:
    """Unpack the member at ``at`` and return the position of its end. All members together may fill ``limit`` bytes of
    ``scratch`` from ``begun`` on."""
    member = isal_zlib.decompressobj(31)
    waiting: bytes | memoryview[int] = b""
    while not member.eof:
        if not waiting:
            waiting = payload[at : at + _GZIP_PIECE_BYTES]
            at += len(waiting)
        taken = scratch.used - begun
        piece: bytes = member.decompress(waiting, min(limit - taken + 1, FIRST_BYTES))
        if not piece and not waiting:
            raise ValueError("gzip member is cut off")
        waiting = member.unconsumed_tail
        _within(taken + len(piece), limit)
        _none(scratch, piece, limit)
    return at - len(member.unused_data)


def _snappy(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    if bytes(payload[: len(_XERIAL)]) != _XERIAL:
        _raw_snappy(scratch, payload, limit)
        return
    if len(payload) < _XERIAL_HEADER:
        raise ValueError("snappy header is cut off")
    at = _XERIAL_HEADER
    while at + 4 <= len(payload):
        if bytes(payload[at : at + len(_XERIAL)]) == _XERIAL:  # xerial's reader allows appended streams
            at += _XERIAL_HEADER
            continue
        (size,) = struct.unpack_from(">i", payload, at)
        block = payload[at + 4 : at + 4 + size] if size > 0 else b""
        if not block or len(block) != size:
            raise ValueError("snappy block is empty or cut off")
        limit -= _raw_snappy(scratch, block, limit)
        at += 4 + size


def _raw_snappy(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> int:
    size = cramjam.snappy.decompress_raw_len(payload)
    _within(size, limit)
    written = cramjam.snappy.decompress_raw_into(payload, scratch.free(size)[:size]) if size else 0
    if written != size:
        raise ValueError("snappy payload is shorter than it says")
    scratch.used += size
    return size


def _lz4(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    """Unpack one frame. Like Kafka's reader, ignore bytes after it, and its content size and content checksum."""
    frame = _lz4_header(payload)
    if frame.independent:  # as all Kafka clients write it
        _lz4_blocks(scratch, payload, limit, frame)
        return
    most, end = _lz4_size(payload, frame)
    free = scratch.free(min(most, limit) + 1)
    try:
        written = int(cramjam.lz4.decompress_into(payload[:end], free[: min(most, limit) + 1]))
    except cramjam.DecompressionError:
        if most > limit:
            _within(most, limit)  # there was no room left; a frame that is also damaged counts as too large
        raise
    _within(written, limit)
    scratch.used += written


def _lz4_blocks(scratch: Scratch, payload: bytes | memoryview[int], limit: int, frame: _Lz4) -> None:
    """Unpack block by block, which is five times faster than the library's function for frames."""
    at, most = frame.begin, frame.block_bytes
    while True:
        (word,) = struct.unpack_from("<I", payload, at)
        size, at = word & 0x7FFFFFFF, at + 4
        block = payload[at : at + size]
        at += size + (frame.block_checksum if size else frame.content_checksum)
        if at > len(payload):
            raise ValueError("lz4 frame is cut off")
        if not size:
            return
        most = min(most, limit)
        if word >> 31:
            if size > frame.block_bytes:
                raise ValueError("lz4 block is larger than its frame says")
            _none(scratch, block, most)
            limit -= size
            continue
        # the library writes no more than the space that it gets, and reports an error for a block that holds more
        try:
            written = int(cramjam.lz4.decompress_block_into(block, scratch.free(most)[:most], output_len=most))
        except cramjam.DecompressionError:
            _within(frame.block_bytes, most)
            raise
        scratch.used += written
        limit -= written


class _Lz4(NamedTuple):
    """The header of an lz4 frame: the position of the first block, the maximum unpacked size of a block, and the size
    in bytes of the checksum after each block and of the checksum after the last block."""

    begin: int
    block_bytes: int
    independent: bool
    block_checksum: int
    content_checksum: int


def _lz4_header(payload: bytes | memoryview[int]) -> _Lz4:
    has_size = len(payload) > 4 and payload[4] & 8
    return _lz4_frame(bytes(payload[: 15 if has_size else 7]))


@lru_cache(256)
def _lz4_frame(header: bytes) -> _Lz4:
    """Return what the first bytes of a frame say. It is cached: most frames of a producer have the same header."""
    if header[:4] != _LZ4_MAGIC or len(header) < 7:
        raise ValueError("not an lz4 frame")
    flags, block_bytes = header[4], _LZ4_BLOCK_BYTES.get((header[5] >> 4) & 7)
    if flags >> 6 != 1 or block_bytes is None:
        raise ValueError("lz4 frame of an unknown version")
    if flags & 3:
        raise ValueError("lz4 frame with a dictionary or a reserved flag")
    fault = _lz4_fault(header)
    if "ERROR_" in fault:
        raise ValueError(fault)
    return _Lz4(len(header), block_bytes, bool(flags & 32), 4 if flags & 16 else 0, 4 if flags & 4 else 0)


def _lz4_fault(header: bytes) -> str:
    """Return the library's error message for a frame that ends after its header. The message contains ``ERROR_`` only
    if the header is wrong, usually its checksum."""
    try:
        cramjam.lz4.decompress(header)
    except cramjam.DecompressionError as error:
        return str(error)
    return ""


def _lz4_size(payload: bytes | memoryview[int], frame: _Lz4) -> tuple[int, int]:
    """Return an upper bound of the unpacked size, computed from the block sizes, and where the frame ends."""
    at, most = frame.begin, 0
    while True:
        (size,) = struct.unpack_from("<I", payload, at)
        at += 4
        if size == 0:
            break
        # a block expands at most 255:1; the high bit marks an uncompressed block
        most += min(frame.block_bytes, (size & 0x7FFFFFFF) * (1 if size >> 31 else 255))
        at += (size & 0x7FFFFFFF) + frame.block_checksum
    at += frame.content_checksum
    if at > len(payload):
        raise ValueError("lz4 frame is cut off")
    return most, at


def _zstd(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    """Unpack consecutive frames, and ignore skippable frames between them (RFC 8878, 3.1)."""
    begun, at = scratch.used, 0
    while at < len(payload):
        frame = payload[at : _zstd_end(payload, at)]
        at += len(frame)
        if int.from_bytes(frame[:4], "little") not in _ZSTD_SKIPPABLE:
            _zstd_frame(scratch, begun, frame, limit)


def _zstd_frame(scratch: Scratch, begun: int, frame: bytes | memoryview[int], limit: int) -> None:
    """Unpack one frame. All frames together may fill ``limit`` bytes of ``scratch`` from ``begun`` on."""
    # A frame may omit its size or state a wrong one, so memory grows with the output, not with the stated size.
    size, before = zstandard.frame_content_size(frame), scratch.used
    _within(before - begun + size, limit)
    counted = 0
    room = size if 0 < size <= FIRST_BYTES else min(8 * len(frame) + 1024, FIRST_BYTES)
    with scratch.zstd.stream_reader(frame) as reader:
        read, free = 0, memoryview(b"")
        while read == len(free):  # less is read at the frame's end
            free = scratch.free(max(room, 1))[: limit - (scratch.used - begun) + 1]
            read = reader.readinto(free)
            scratch.used += read
            _within(scratch.used - begun, limit)
            room = min(max(room, scratch.used - before), FIRST_BYTES)
            if not counted and scratch.used - before >= FIRST_BYTES and len(scratch.data) - scratch.used < room:
                counted = _zstd_size(frame, limit - (before - begun))
            if counted:
                room = counted - (scratch.used - before) + 1  # one byte for the read that finds the end
    if size > 0 and scratch.used - before != size:
        raise ValueError(f"zstd frame says {size} bytes and has {scratch.used - before}")


def _zstd_size(frame: bytes | memoryview[int], limit: int) -> int:
    """Return the unpacked size of a large frame, counted without keeping it. The caller then allocates memory once."""
    total, some = 0, bytearray(_SOME_BYTES)
    with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
        while read := reader.readinto(some):
            total += read
            _within(total, limit)
    return total


def _zstd_end(payload: bytes | memoryview[int], at: int) -> int:
    """Return the position of a frame's end. The library accepts a frame that is cut off, so this checks its blocks.

    A block's header has 3 bytes, little endian: 1 bit last, 2 bits type (1: one byte, repeated), 21 bits size.
    """
    if int.from_bytes(payload[at : at + 4], "little") in _ZSTD_SKIPPABLE:
        (size,) = struct.unpack_from("<I", payload, at + 4)
        at += 8 + size
    else:
        head, last = payload[at : at + _ZSTD_HEADER_BYTES], 0
        at += zstandard.frame_header_size(head)
        while not last:
            low, high = struct.unpack_from("<HB", payload, at)
            block = low | high << 16
            last = block & 1
            at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        at += 4 if zstandard.get_frame_parameters(head).has_checksum else 0
    if at > len(payload):
        raise ValueError("zstd frame is cut off")
    return at


class _TooMuch(ValueError):
    pass


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise _TooMuch(f"unpacks to more than {limit} bytes")

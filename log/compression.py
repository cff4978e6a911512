"""The codecs of record batches, bounded: whatever the input says, no more than ``limit`` bytes come out.

Each is the fastest well-kept library that was tried: isal (gzip), cramjam (snappy, lz4), zstandard. The Java client
frames snappy in xerial's blocks, librdkafka does not. None says how long the result is but snappy, so output goes into
a `Scratch` that grows with what really comes out.
"""

from __future__ import annotations

import struct
from typing import cast

import cramjam
import numpy as np
import numpy.typing as npt
import zstandard
from isal import isal_zlib

from ..state.errors import CorruptData
from .batch import CODECS

MAX_RECORDS_BYTES = 512 * 1024 * 1024
"""A batch that unpacks to more is refused. Producers bound the *unpacked* batch, to about 1 MiB by default."""

_UNPACK_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    struct.error,
    cast(type[Exception], isal_zlib.error),
    cramjam.DecompressionError,
    zstandard.ZstdError,
)

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_KAFKA_LZ4 = bytes.fromhex("04224d18604082")
"""The frame header all Kafka clients write: independent blocks of 64 KiB, no checksums (the batch has its own)."""
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_FIRST_BYTES = 2 << 20


class Scratch:
    """Bytes to unpack into; grows, keeps what is in it, and is used again from ``used = 0``."""

    def __init__(self, size: int = _FIRST_BYTES) -> None:
        self.used = 0
        self._hold(np.empty(size, np.uint8))

    def _hold(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self.view: memoryview[int] = memoryview(data.data)
        self.address: int = data.ctypes.data

    def free(self, size: int) -> memoryview[int]:
        """At least so many bytes behind what is used."""
        if len(self.data) - self.used < size:
            grown = np.empty(max(self.used + size, 2 * len(self.data)), np.uint8)
            grown[: self.used] = self.data[: self.used]
            self._hold(grown)
        return self.view[self.used :]


def decompress(codec: int, payload: bytes, *, source: str, position: int, limit: int = MAX_RECORDS_BYTES) -> bytes:
    """The records of one batch. Raises CorruptData naming ``source`` and ``position``."""
    scratch = Scratch(max(1024, 4 * len(payload)))
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
    """As `decompress`, behind what ``scratch`` has."""
    unpack = (_none, _gzip, _snappy, _lz4, _zstd)[codec]
    if codec and not payload:
        raise CorruptData(f"{CODECS[codec]} payload is empty", file=source, position=position)
    before = scratch.used
    try:
        unpack(scratch, payload, limit)
    except _UNPACK_ERRORS as error:
        scratch.used = before
        raise CorruptData(
            f"{CODECS[codec]} payload cannot be unpacked", file=source, position=position, reason=error
        ) from error


def _none(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    _within(len(payload), limit)
    scratch.free(len(payload))[: len(payload)] = payload
    scratch.used += len(payload)


def _gzip(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    stream = isal_zlib.decompressobj(31)
    piece: bytes = stream.decompress(payload, min(limit + 1, _FIRST_BYTES))
    _none(scratch, piece, limit)
    taken = len(piece)
    while piece and not stream.eof:
        piece = stream.decompress(stream.unconsumed_tail, min(limit - taken + 1, _FIRST_BYTES))
        taken += len(piece)
        _within(taken, limit)
        _none(scratch, piece, limit)
    if not stream.eof or stream.unused_data:
        raise ValueError("not exactly one gzip member")


def _snappy(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    if bytes(payload[: len(_XERIAL)]) != _XERIAL:
        _raw_snappy(scratch, payload, limit)
        return
    if len(payload) < _XERIAL_HEADER:
        raise ValueError("snappy header is cut off")
    at = _XERIAL_HEADER
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        block = payload[at + 4 : at + 4 + size] if size >= 0 else b""
        if len(block) != size:
            raise ValueError("snappy block is cut off")
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
    if bytes(payload[: len(_KAFKA_LZ4)]) == _KAFKA_LZ4:
        _lz4_blocks(scratch, payload, limit)
        return
    most = _lz4_most(payload)
    free = scratch.free(min(most, limit) + 1)
    written = int(cramjam.lz4.decompress_into(payload, free[: min(most, limit) + 1]))
    _within(written, limit)
    scratch.used += written


def _lz4_blocks(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    """Block by block, five times faster than the library's frames."""
    at, most = len(_KAFKA_LZ4), _LZ4_BLOCK_BYTES[4]
    while True:
        (word,) = struct.unpack_from("<I", payload, at)
        size, at = word & 0x7FFFFFFF, at + 4
        block = payload[at : at + size]
        at += size
        if at > len(payload) or (not size and at != len(payload)):
            raise ValueError("lz4 frame does not end where its payload does")
        if not size:
            return
        most = min(most, limit)
        if word >> 31:
            _none(scratch, block, most)
            limit -= size
            continue
        # the library writes no more than it is given; a block that holds more is an error to it
        written = int(cramjam.lz4.decompress_block_into(block, scratch.free(most)[:most], output_len=most))
        scratch.used += written
        limit -= written


def _lz4_most(payload: bytes | memoryview[int]) -> int:
    """No more than this comes out of the frame, by the sizes of its blocks; it must end where the payload does."""
    if bytes(payload[:4]) != _LZ4_MAGIC or len(payload) < 7:
        raise ValueError("not an lz4 frame")
    flags, block_bytes = payload[4], _LZ4_BLOCK_BYTES.get((payload[5] >> 4) & 7)
    if flags >> 6 != 1 or block_bytes is None:
        raise ValueError("lz4 frame of an unknown version")
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    most = 0
    while True:
        (size,) = struct.unpack_from("<I", payload, at)
        at += 4
        if size == 0:
            break
        # a block gains at most 255:1; with the high bit it is stored as it is
        most += min(block_bytes, (size & 0x7FFFFFFF) * (1 if size >> 31 else 255))
        at += (size & 0x7FFFFFFF) + (4 if flags & 16 else 0)
    if at + (4 if flags & 4 else 0) != len(payload):
        raise ValueError("lz4 frame does not end where its payload does")
    return most


def _zstd(scratch: Scratch, payload: bytes | memoryview[int], limit: int) -> None:
    # A frame may not say its size, and may lie about it: room is made for what comes out, not for what it claims.
    # The reader takes a frame that is cut off, and stops after a first one, without a word: so it is walked before.
    _one_zstd_frame(payload)
    size = zstandard.frame_content_size(payload)
    room = size if 0 < size <= _FIRST_BYTES else min(8 * len(payload) + 1024, _FIRST_BYTES)
    taken = 0
    with zstandard.ZstdDecompressor().stream_reader(payload) as reader:
        while read := reader.readinto(scratch.free(max(room, 1))[: limit - taken + 1]):
            scratch.used += read
            taken += read
            _within(taken, limit)
            room = min(max(room, taken), _FIRST_BYTES)
    if size > 0 and taken != size:
        raise ValueError(f"zstd frame says {size} bytes and has {taken}")


def _one_zstd_frame(payload: bytes | memoryview[int]) -> None:
    """From block to block: 3 bytes, little endian: 1 bit last, 2 bits type (1: one byte, repeated), 21 bits size."""
    at = zstandard.frame_header_size(payload)
    last = 0
    while not last:
        low, high = struct.unpack_from("<HB", payload, at)
        block = low | high << 16
        last = block & 1
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    if at + (4 if zstandard.get_frame_parameters(payload).has_checksum else 0) != len(payload):
        raise ValueError("zstd frame does not end where its payload does")


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"unpacks to more than {limit} bytes")

"""The codecs of record batches, bounded: whatever the input says, no more than ``limit`` bytes come out.

Each is the fastest well-kept library that was tried: isal (gzip), cramjam (snappy, lz4), zstandard. The Java client
frames snappy in xerial's blocks, librdkafka does not.
"""

from __future__ import annotations

import struct
from typing import cast

import cramjam
import zstandard
from isal import isal_zlib

from ..state.errors import CorruptData
from .batch import CODECS

MAX_RECORDS_BYTES = 512 * 1024 * 1024
"""A batch that unpacks to more is refused."""

UNPACK_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    struct.error,
    cast(type[Exception], isal_zlib.error),
    cramjam.DecompressionError,
    zstandard.ZstdError,
)

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


def decompress(codec: int, payload: bytes, *, source: str, position: int, limit: int = MAX_RECORDS_BYTES) -> bytes:
    """The records of one batch. Raises CorruptData naming ``source`` and ``position``."""
    unpack = (_none, _gzip, _snappy, _lz4, _zstd)[codec]
    try:
        return unpack(payload, limit)
    except UNPACK_ERRORS as error:
        raise CorruptData(
            f"{CODECS[codec]} payload cannot be unpacked", file=source, position=position, reason=error
        ) from error


def _none(payload: bytes, limit: int) -> bytes:
    return payload


def _gzip(payload: bytes, limit: int) -> bytes:
    stream = isal_zlib.decompressobj(31)
    out: bytes = stream.decompress(payload, limit + 1)
    _within(len(out), limit)
    if not stream.eof or stream.unused_data:
        raise ValueError("not exactly one gzip member")
    return out


def _snappy(payload: bytes, limit: int) -> bytes:
    if not payload.startswith(_XERIAL):
        return _raw_snappy(payload, limit)
    out, at = bytearray(), _XERIAL_HEADER
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        block = payload[at + 4 : at + 4 + size]
        if size < 0 or len(block) != size:
            raise ValueError("snappy block is cut off")
        out += _raw_snappy(block, limit - len(out))
        at += 4 + size
    return bytes(out)


def _raw_snappy(payload: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(payload)
    _within(size, limit)
    out = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(payload, out)
    if written != size:
        raise ValueError("snappy payload is shorter than it says")
    return bytes(out)


def _lz4(payload: bytes, limit: int) -> bytes:
    # The frame rarely says its size: grow until it fits. lz4 gains at most 255:1, so that bounds the attempts too.
    most = min(limit, 255 * len(payload) + 64)
    size = min(most, max(64 * 1024, 4 * len(payload)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: cramjam.lz4.decompress_into(payload, out)])
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if size == most:
                raise ValueError(f"unpacks to more than {most} bytes") from error
            size = min(most, size * 4)


def _zstd(payload: bytes, limit: int) -> bytes:
    # A frame may not say its size, and may lie about it: read into what is needed, never into what it claims.
    # A second frame would be read too; the record parser then finds bytes that no record owns.
    out = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as reader:
        while piece := reader.read(1 << 20):
            _within(len(out) + len(piece), limit)
            out += piece
    return bytes(out)


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"unpacks to more than {limit} bytes")

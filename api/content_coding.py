"""Compression of answers, in a coding that the Accept-Encoding header allows (RFC 9110, 12.5.3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import cramjam
from isal import isal_zlib

from .media import BATCHES, PARQUET, qualities

ZSTD_LEVEL = 1
GZIP_LEVEL = 1
_WITH_GZIP_HEADER = 31


class Coding(StrEnum):
    """The codings, in order of preference."""

    ZSTD = "zstd"
    GZIP = "gzip"


class Coder(Protocol):
    """Compresses one answer."""

    def code(self, data: bytes | memoryview) -> bytes:
        """Compress and flush: a client can decompress all that it has received up to this point."""
        ...

    def finish(self) -> bytes: ...


def coding_of(accept_encoding: str, media_type: str) -> Coding | None:
    """Return the coding that the caller prefers; None for no coding, and for types that are compressed already."""
    if media_type in (BATCHES, PARQUET):
        return None
    named = dict(qualities(accept_encoding))
    best = max(Coding, key=lambda coding: named.get(coding, 0.0))
    return best if named.get(best, 0.0) > max(0.0, named.get("identity", 0.0) - 1e-9) else None


def coder_of(coding: Coding | None) -> Coder | None:
    """Return a coder, or None for no coding."""
    return None if coding is None else _Zstd() if coding is Coding.ZSTD else _Gzip()


class _Zstd:
    def __init__(self) -> None:
        self._frame = cramjam.zstd.Compressor(ZSTD_LEVEL)

    def code(self, data: bytes | memoryview) -> bytes:
        self._frame.compress(bytes(data))
        return bytes(self._frame.flush())

    def finish(self) -> bytes:
        return bytes(self._frame.finish())


class _Gzip:
    def __init__(self) -> None:
        self._stream = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _WITH_GZIP_HEADER)

    def code(self, data: bytes | memoryview) -> bytes:
        return self._stream.compress(data) + self._stream.flush(isal_zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._stream.flush()

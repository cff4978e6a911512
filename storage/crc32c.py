"""CRC-32C checksums, as numbers and in the form of S3 and Google: base64 of four bytes, big-endian."""

from __future__ import annotations

import base64

import google_crc32c
import numpy as np

from .object_store import Data


def extended(crc32c: int, data: Data) -> int:
    """Return the checksum of earlier bytes and ``data``; ``crc32c`` is that of the earlier bytes. Copies nothing."""
    checksum: int = google_crc32c.extend(crc32c, np.frombuffer(data, np.uint8))  # only bytes and arrays are accepted
    return checksum


def crc32c_text(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def crc32c_from(text: str | None) -> int | None:
    """Return the CRC-32C that a store reports. Returns None if ``text`` is no checksum of a whole object."""
    try:
        return int.from_bytes(base64.b64decode(text or "", validate=True), "big") if text else None
    except ValueError:  # S3 writes "…-3" for the checksum of three parts' checksums
        return None

"""Select records of decoded blocks by their bytes, without a copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import kernels
from .record_block import RecordBlock

_NO_BYTES = b"\0"
"""Stands for a missing or empty key: its address is valid, but nothing is read from it."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selects records whose key equals ``key`` and that contain the bytes ``contains``. A null key never matches.
    ``contains`` must lie within the key, the value, or one header's name or value. None means no condition.

    The time is linear in the size of the records, for any ``contains``.
    """

    key: bytes | None = None
    contains: bytes | None = None
    _key: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _contains: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _back: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pattern = np.array(bytearray(self.contains or b""), np.uint8)
        arrays: dict[str, Any] = {
            "_key": np.array(bytearray(self.key or _NO_BYTES), np.uint8),
            "_contains": pattern if len(pattern) else np.zeros(1, np.uint8),
            "_back": kernels.fall_back(pattern),
        }
        for name, value in arrays.items():
            object.__setattr__(self, name, value)

    def of(self, block: RecordBlock) -> RecordBlock:
        """Return the block with the selected records only."""
        matches = np.zeros(len(block), np.uint8)
        kernels.match(
            block.raw.ctypes.data, block.at, block.size, block.headers_at, block.header_counts,
            self._key.ctypes.data, -1 if self.key is None else len(self.key), self._contains.ctypes.data, self._back,
            matches,
        )  # fmt: skip
        return block if matches.all() else block.only(np.flatnonzero(matches))

"""Which records are wanted, by their bytes: looked for in decoded blocks, where they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import kernels
from .record_block import RecordBlock

_NO_BYTES = b"\0"
"""For an address that nothing is read from."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """``key``: exactly this key, which a null is not. ``contains``: these bytes within the key, the value, or the name
    or value of a header; never across two of them. Both: both. None: not asked.

    Time is linear in what is looked through, whatever is looked for.
    """

    key: bytes | None = None
    contains: bytes | None = None
    _key: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _contains: npt.NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _back: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wanted = np.array(bytearray(self.contains or b""), np.uint8)
        made: dict[str, Any] = {
            "_key": np.array(bytearray(self.key or _NO_BYTES), np.uint8),
            "_contains": wanted if len(wanted) else np.zeros(1, np.uint8),
            "_back": kernels.fall_back(wanted),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def of(self, block: RecordBlock) -> RecordBlock:
        """The records that are wanted."""
        found = np.zeros(len(block), np.uint8)
        kernels.match(
            block.raw.ctypes.data, block.at, block.size, block.headers_at, block.header_counts,
            self._key.ctypes.data, -1 if self.key is None else len(self.key), self._contains.ctypes.data, self._back,
            found,
        )  # fmt: skip
        return block if found.all() else block.only(np.flatnonzero(found))

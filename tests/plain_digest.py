"""The record digest by its definition (docs/formats.md), slowly and on its own, for the records of any reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

Header = tuple[str, bytes | None]
Row = tuple[int, int, int, bytes | None, bytes | None, Sequence[Header]]
"""Offset, timestamp in ms, timestamp type (0 create, 1 append), key, value, headers."""


class PlainDigest:
    """The digest of records that are added one by one."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._hash, self.count = hashlib.sha256(), 0
        for row in rows:
            self.add(*row)

    def add(
        self, offset: int, time: int, kind: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> None:
        self.count += 1
        self._hash.update(offset.to_bytes(8, "big", signed=True) + time.to_bytes(8, "big", signed=True) + bytes([kind]))
        self._data(key)
        self._data(value)
        self._hash.update(len(headers).to_bytes(4, "big"))
        for name, content in headers:
            self._data(name.encode())
            self._data(content)

    def _data(self, part: bytes | None) -> None:
        self._hash.update((-1 if part is None else len(part)).to_bytes(4, "big", signed=True) + (part or b""))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

"""Sends and receives S3 bodies in small steps, to distinguish a slow connection from a dead one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError
from urllib3.exceptions import HTTPError

from ..runtime.clock import Clock
from .object_store import MIB, Data

if TYPE_CHECKING:
    from botocore.response import StreamingBody

STEP_BYTES = 64 * 1024
MOST_AT_ONCE = MIB
"""Most bytes that one call reads. The call allocates this memory even if few bytes arrive, and a larger block would
always have new pages (`runtime/allocator.py`)."""


class SentBody:
    """Presents bytes as a file, without a copy.

    A socket's time-out applies to one call of ``sendall``. If one call sent a whole part, as it does for bytes, a
    connection slower than (part size / connect time-out) would look dead. With steps of 64 KiB and a time-out of 5 s,
    13 KB/s are enough.
    """

    def __init__(self, data: Data) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    def read(self, size: int | None = -1) -> memoryview:
        """Return the next bytes: about ``size``, but at least a step, because urllib3 requests only 16 KiB."""
        rest = len(self._data) - self._at
        count = rest if size is None or size < 0 else min(rest, max(size, STEP_BYTES))
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at


def arriving(body: StreamingBody, size: int, piece_bytes: int, clock: Clock, timeout_s: float) -> Iterator[bytes]:
    """Yield ``size`` bytes as they arrive, then close the body. Yields fewer bytes if the body breaks off or is slow.

    A body is slow if less than a MiB arrives in ``timeout_s`` seconds of waiting. The caller's own time is not counted.
    """
    remaining, since, waited = size, 0, 0.0
    # The attribute is private, but botocore's `read` waits for all requested bytes and so hides a slow body.
    stream: Any = cast(Any, body)._raw_stream
    with closing(body):
        while remaining:
            began = clock.monotonic()
            try:
                piece: bytes = stream.read1(min(remaining, piece_bytes, MOST_AT_ONCE))
            except (BotoCoreError, HTTPError, OSError):
                return
            if not piece:
                return
            remaining -= len(piece)
            since, waited = since + len(piece), waited + clock.monotonic() - began
            if since >= MIB:
                since, waited = 0, 0.0
            yield piece
            if waited > timeout_s:
                return

"""Bodies of S3 requests and answers, moved in small steps, so that a slow network is told from a dead one."""

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
"""What is read by one call, at most: the call asks for memory of that size, and of larger ones every page is new
(`runtime/allocator.py`), however little comes."""


class SentBody:
    """Bytes as a file, without a copy.

    A socket's time-out is for one call of ``sendall``. With a whole part in one call, as for bytes, a connection below
    (part size / connect time-out) would look dead; a step of 64 KiB within 5 s is 13 KB/s.
    """

    def __init__(self, data: Data) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    def read(self, size: int | None = -1) -> memoryview:
        """At most ``size``; urllib3's 16 KiB become a step, which it does not mind."""
        rest = len(self._data) - self._at
        wanted = rest if size is None or size < 0 else min(rest, max(size, STEP_BYTES))
        piece = self._data[self._at : self._at + wanted]
        self._at += wanted
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at


def arriving(body: StreamingBody, size: int, piece_bytes: int, clock: Clock, patience_s: float) -> Iterator[bytes]:
    """At most ``size`` bytes as they come, closed at the end; fewer when the body broke off or only trickles.

    Trickling: less than a MiB (or than all) in ``patience_s`` seconds of waiting. The caller's own time is not counted.
    """
    left, since, waited = size, 0, 0.0
    # Private to botocore, but its `read` waits until all it was asked for is there: a trickle would never be noticed.
    stream: Any = cast(Any, body)._raw_stream
    with closing(body):
        while left:
            began = clock.monotonic()
            try:
                piece: bytes = stream.read1(min(left, piece_bytes, MOST_AT_ONCE))
            except (BotoCoreError, HTTPError, OSError):
                return
            if not piece:
                return
            left -= len(piece)
            since, waited = since + len(piece), waited + clock.monotonic() - began
            if since >= MIB:
                since, waited = 0, 0.0
            yield piece
            if waited > patience_s:
                return

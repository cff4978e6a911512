"""Sends the blocks of one object to Azure, in parallel and with bounded memory. `azure.py` commits them.

All writers of a key share its uncommitted blocks. A block id begins with the id of its upload, so uploads never mix.
Uncommitted blocks are invisible, and Azure removes them a week after the last one. They are not removed earlier,
because that would create an object for a moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from azure.storage.blob import BlobBlock, BlobClient

from ..state.errors import InvalidRequest
from .parts import Part, UploadShare

MAX_BLOCKS = 50_000
"""Azure's limit. Parts of 8 MiB reach 390 GiB."""


class BlockUpload:
    """The blocks of one upload. ``upload_id`` must have the same length for all uploads.

    ``send`` sends and repeats a request and translates its errors. Its arguments are the request, a function that
    returns whether the upload was given up, and the body's size in bytes.
    """

    def __init__(
        self,
        blob: BlobClient,
        upload_id: str,
        concurrency: int,
        share: UploadShare,
        send: Callable[[Callable[[], Any], Callable[[], bool], int], Any],
    ) -> None:
        self._blob, self._id, self._concurrency, self._send = blob, upload_id, concurrency, send
        self._share = share
        self._failed = False

    def stage(self, parts: Iterable[Part]) -> tuple[list[BlobBlock], int]:
        """Send every part. Return the blocks to commit and their total size in bytes.

        As many parts are in flight as ``parts`` gets shares for. Also raises the errors of the iterator.
        """
        size = 0
        blocks: list[BlobBlock] = []
        waiting: deque[Future[BlobBlock]] = deque()
        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="tierstate-part")
        with threads as pool:
            try:
                for part in parts:
                    number = len(blocks) + len(waiting)
                    if number >= MAX_BLOCKS:
                        raise InvalidRequest("the object has more parts than Azure allows", limit=MAX_BLOCKS)
                    size += len(part.data)
                    waiting.append(pool.submit(self._stage, number, [bytes(part.data)]))
                    del part  # otherwise it is in memory twice until the next part is made
                    while waiting and waiting[0].done():
                        blocks.append(waiting.popleft().result())
                blocks.extend(each.result() for each in waiting)
            except BaseException:  # also an interrupt: no block is sent after a failure
                self._failed = True
                for future in waiting:
                    future.cancel()
                for future in waiting:
                    with suppress(BaseException):
                        future.result()
                raise
        return blocks, size

    def _stage(self, number: int, held: list[bytes]) -> BlobBlock:
        """Send the part in the list ``held``. Empty the list before the share, and so its memory, is given back."""
        block_id, size = f"{self._id}{number:06d}", len(held[0])
        try:
            self._send(lambda: self._blob.stage_block(block_id, held[0], length=size), lambda: self._failed, size)
        finally:
            held.clear()
            self._share.give_back()
        return BlobBlock(block_id)

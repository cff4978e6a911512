"""Uploads one object to Azure in blocks: in parallel, with bounded memory, and only if the key is still free.

All writers of a key share one space of blocks. Block ids begin with the id of the upload, so two writers never mix.
Blocks without a commit are no object: they are invisible, and Azure removes them a week after the last one.
Removing them sooner would create an object for a moment, so nothing here does.
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
"""Azure's limit; 8 MiB parts reach 390 GiB."""


class BlockUpload:
    """``upload_id`` has one length for all uploads. ``send`` makes one request: it repeats it and translates errors.

    ``send`` takes the request, a function that returns whether the upload was given up, and the bytes of the body.
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
        """Send every part; return the blocks to commit and their bytes. Raises also what the iterator raises.

        As many parts are in flight as ``parts`` has shares for.
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
                    del part  # otherwise it is in memory twice until the next one is made
                    while waiting and waiting[0].done():
                        blocks.append(waiting.popleft().result())
                blocks.extend(each.result() for each in waiting)
            except BaseException:  # also a closed generator or an interrupt: no block is sent after we gave up
                self._failed = True
                for future in waiting:
                    future.cancel()
                for future in waiting:
                    with suppress(BaseException):
                        future.result()
                raise
        return blocks, size

    def _stage(self, number: int, held: list[bytes]) -> BlobBlock:
        """Send one block. ``held`` is a list of its part, emptied before another upload may make one in its place."""
        block_id, size = f"{self._id}{number:06d}", len(held[0])
        try:
            self._send(lambda: self._blob.stage_block(block_id, held[0], length=size), lambda: self._failed, size)
        finally:
            held.clear()
            self._share.give_back()
        return BlobBlock(block_id)

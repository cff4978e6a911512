"""One upload to Azure in blocks: in parallel, bounded memory, an object only if the key is still free.

Blocks of one key share one space, whoever stages them: their ids begin with an id of this upload, so that two writers
never mix. Blocks without a commit are no object; nobody sees them, and Azure removes them a week after the last one.
Nothing removes them sooner without making an object for a moment, so nothing here does.
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
    """``upload_id``: text of one length for all uploads; ``send`` makes one request, typed and repeated.

    Beside the request ``send`` gets what tells whether the upload is given up, and the bytes of the request's body.
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
        """Sends every part; returns the blocks to commit and their bytes. Raises what the iterator raises, too.

        As many parts are in flight as ``parts`` has a share for.
        """
        size = 0
        done: list[BlobBlock] = []
        waiting: deque[Future[BlobBlock]] = deque()
        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="tierstate-part")
        with threads as pool:
            try:
                for part in parts:
                    number = len(done) + len(waiting)
                    if number >= MAX_BLOCKS:
                        raise InvalidRequest("the object has more parts than Azure allows", limit=MAX_BLOCKS)
                    size += len(part.data)
                    waiting.append(pool.submit(self._stage, number, [bytes(part.data)]))
                    del part  # else it is in memory twice, and stays there while the next one is made
                    while waiting and waiting[0].done():
                        done.append(waiting.popleft().result())
                done.extend(each.result() for each in waiting)
            except BaseException:  # also a closed generator or an interrupt: no block is sent after we gave up
                self._failed = True
                for each in waiting:
                    each.cancel()
                for each in waiting:
                    with suppress(BaseException):
                        each.result()
                raise
        return done, size

    def _stage(self, number: int, held: list[bytes]) -> BlobBlock:
        """``held``: the part, in a list that is emptied before another upload may make one in its place."""
        block_id, size = f"{self._id}{number:06d}", len(held[0])
        try:
            self._send(lambda: self._blob.stage_block(block_id, held[0], length=size), lambda: self._failed, size)
        finally:
            held.clear()
            self._share.give_back()
        return BlobBlock(block_id)

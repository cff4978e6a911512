"""The answer to a call for records: a head, and a body that is ready or is made while it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..fetch.piece import Fetched
from ..runtime.pool import Pool
from ..state.offsets import Offset
from ..state.routing import Tier
from .answer_body import AnswerBody, Call, Chunk, Scan, ScanEnd, StoredBody
from .answer_memory import Held

Head = list[tuple[bytes, bytes]]


def answer_of(
    call: Call,
    piece: Fetched,
    tiers: Sequence[Tier],
    next_offset: Offset,
    body: AnswerBody | StoredBody,
    pool: Pool,
    held: Held,
    scan: Scan | None = None,
) -> AnswerResponse:
    """Return the answer whose body begins with ``piece``. ``tiers``: the tiers of its records, in their order.

    The body was checked, so that the rest of it cannot fail. The rest is made in ``pool``.
    """
    bounds = piece.bounds
    head = {
        "x-next-offset": str(next_offset),
        "x-tier": ", ".join(tiers),
        "x-high-watermark": str(bounds.high_watermark),
        "x-last-stable-offset": str(bounds.last_stable_offset),
        "cache-control": "no-store",
        "vary": "Accept, Accept-Encoding",
    }
    log_fields: dict[str, Any] = {"tier": ", ".join(tiers), "first_offset": piece.offset, "next_offset": next_offset}
    if scan is not None:
        head["x-scanned-records"], head["x-scanned-bytes"] = str(scan.records), str(scan.bytes)
        head["x-scan-stopped"] = scan.stopped or ScanEnd.END
        log_fields["scanned_bytes"] = scan.bytes
    if bounds.log_start is not None:
        head["x-log-start-offset"] = str(bounds.log_start)
    if piece.view_age_s is not None:
        head["x-view-age"] = f"{piece.view_age_s:.1f}"
    if piece.topic_id is not None:
        head["x-topic-id"] = str(piece.topic_id)
    if call.coding is not None:
        head["content-encoding"] = call.coding
    if body.whole:
        head["content-length"] = str(body.size)
    head["content-type"] = call.media_type
    raw_headers = [(name.encode(), value.encode()) for name, value in head.items()]
    return AnswerResponse(raw_headers, log_fields, body, pool, held)


class HeldResponse(StreamingResponse):
    """A response in pieces. It releases its memory when it ends, also after an error.

    Each piece is made in a thread of ``pool``, after the previous piece was taken: no thread waits for a slow client.
    """

    def __init__(
        self,
        pieces: Iterator[Chunk],
        pool: Pool,
        held: Held,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(_each(pieces, pool), status, headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.release()


async def _each(pieces: Iterator[Chunk], pool: Pool) -> AsyncIterator[Chunk]:
    try:
        while (piece := await pool.run(lambda: next(pieces, None), goes_on=True)) is not None:
            if len(piece):
                yield piece
    finally:
        if isinstance(pieces, Generator):
            pieces.close()


class AnswerResponse(HeldResponse):
    """A response with a head, the chunks that are ready, and then the rest. ``log_fields``: for the access log."""

    def __init__(
        self, head: Head, log_fields: dict[str, Any], body: AnswerBody | StoredBody, pool: Pool, held: Held
    ) -> None:
        super().__init__(iter(body.later, None), pool, held)
        self.raw_headers, self.log_fields, self._body = head, log_fields, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._body.whole:
            await super().__call__(scope, receive, send)  # this also notices when the client disconnects
            return
        try:
            await self.stream_response(send)
        finally:
            self._held.release()

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        ready = self._body.ready
        while ready:  # each chunk is freed after it was sent
            await send({"type": "http.response.body", "body": ready.pop(0), "more_body": True})
        if not self._body.whole:
            async for later in self.body_iterator:
                await send({"type": "http.response.body", "body": later, "more_body": True})
        # uvicorn accepts a message after the client has taken the earlier ones; the memory is held until then
        await send({"type": "http.response.body", "body": b"", "more_body": False})

"""The answer to a call for records: a head, and a body that is ready or is made while it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..fetch.piece import Fetched
from ..runtime.pool import Pool
from ..state.offsets import Offset
from ..state.routing import Tier
from .answer_body import AnswerBody, Call, Chunk, StoredBody
from .answer_memory import Held
from .scan import Scan, ScanEnd

Head = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was checked, so that the rest of its body cannot fail. The rest is made in ``pool``.

    ``log_fields``: the answer's fields in the access log.
    """

    head: Head
    log_fields: dict[str, Any]
    body: AnswerBody | StoredBody
    pool: Pool


def answer_of(
    call: Call,
    piece: Fetched,
    tiers: Sequence[Tier],
    next_offset: Offset,
    body: AnswerBody | StoredBody,
    pool: Pool,
    scan: Scan | None = None,
) -> Answer:
    """Return the answer whose body begins with ``piece``. ``tiers``: the tiers of its records, in their order."""
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
    return Answer([(name.encode(), value.encode()) for name, value in head.items()], log_fields, body, pool)


class AnswerResponse(StreamingResponse):
    """A response that releases its memory when it ends, also after an error."""

    def __init__(self, answer: Answer, held: Held) -> None:
        super().__init__(_rest(answer))
        self.raw_headers = answer.head
        self._body, self._held = answer.body, held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._body.whole:
                await self.stream_response(send)
            else:
                await super().__call__(scope, receive, send)  # this also notices when the client disconnects
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


async def _rest(answer: Answer) -> AsyncIterator[Chunk]:
    """Yield the rest. Each chunk is made after the previous chunk was taken, so no thread waits for a slow client."""
    while (chunk := await answer.pool.run(answer.body.later, goes_on=True)) is not None:
        if len(chunk):
            yield chunk

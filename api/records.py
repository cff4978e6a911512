"""`…/records`: one piece of one tier, in the caller's media type.

    position  ->  fetch (in the pool of the tier that has it)  ->  empty? long poll  ->  check  ->  stream

An answer holds records of one tier, so ``X-Tier`` is never a mixture; where the tier changes the answer ends and
``X-Next-Offset`` says where to go on. The bytes are read whole once before the status line (decoded, CRCs checked, and
parsed where JSON was asked for): what is wrong with them is said by a status, never by a body that breaks off.
Memory of an answer: all of it is taken of `answer_memory.py` before the status line: the batches as stored, the largest
decoded block with its encoding. A batch that unpacks to more than ``gateway.max_bytes`` is refused by its offset.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..app.pool import Pool
from ..fetch.piece import Fetched
from ..log.decode import RecordBlock, decode_records, record_schema
from ..log.json_lines import Encoding
from ..state.errors import BatchTooLarge, InvalidRequest, OffsetOutOfRange
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from .access_log import ACCESS
from .answer_memory import Held
from .credentials import Caller
from .media import ARROW, BATCHES, JSON, KAFKA_BINARY, KAFKA_JSON, NDJSON, negotiate
from .record_forms import (
    SLICE_BYTES,
    arrow_stream,
    batches_trailer,
    json_array,
    kafka_records,
    ndjson,
    require_json,
    stored_bytes,
)
from .service import FetchService, Need, caller_of, refuse_unknown_parameters, unless_gone
from .topics import Asked, PartitionNumber, TopicName, known

router = APIRouter(prefix="/v1/topics", tags=["records"], dependencies=[Depends(refuse_unknown_parameters)])

DEFAULT_BYTES = 1024 * 1024
UNPACKED_FIRST = 2 * 1024 * 1024
"""What one batch may unpack to before more memory is taken for it."""
BLOCK_BYTES = 8 * 1024 * 1024
"""Beside its largest batch: a block's other ones, and its columns."""
COLUMNS_BYTES = 100
"""A record's, of a block."""
LONGEST_WAIT_MS = 60_000
MAX_OFFSET = 2**63
_FALLIBLE = record_schema(columns=("timestamp", "headers"))
"""Columns whose conversion to Arrow can find corruption that decoding does not."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its parameters checked."""

    topic: str
    partition: int
    media_type: str
    offset: int | None
    timestamp: int | None
    max_bytes: int
    max_records: int | None
    isolation: Isolation
    tier: Tier
    wait_s: float
    encoding: Encoding

    @property
    def source(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Checked, so that encoding it cannot fail. ``body`` makes the chunks; it runs in ``pool``."""

    piece: Fetched
    pool: Pool
    next_offset: Offset
    body: Callable[[], Iterator[bytes]]
    size: int | None = None


@router.get(
    "/{topic}/partitions/{partition}/records",
    summary="Records, from an offset or a time",
    responses={
        200: {
            "description": "Records of one tier. X-Next-Offset: where to go on.",
            "content": {
                NDJSON: {"schema": {"type": "string"}},
                KAFKA_BINARY: {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/BinaryRecord"}}},
                KAFKA_JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
                JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
                BATCHES: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
    response_class=Response,
)
async def read_records(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: PartitionNumber,
    offset: Annotated[int | None, Query(ge=0, lt=MAX_OFFSET, description="First offset. This or timestamp.")] = None,
    timestamp: Annotated[int | None, Query(ge=0, lt=MAX_OFFSET, description="Milliseconds since the epoch.")] = None,
    max_bytes: Annotated[
        int, Query(ge=1, lt=MAX_OFFSET, description="Of batches as stored; the gateway's own cap holds too.")
    ] = DEFAULT_BYTES,
    max_records: Annotated[
        int | None, Query(ge=1, lt=MAX_OFFSET, description="None: as many as the bytes hold.")
    ] = None,
    isolation_level: Annotated[
        Isolation, Query(description="read_uncommitted shows aborted and open transactions too.")
    ] = Isolation.READ_COMMITTED,
    timeout_ms: Annotated[int, Query(ge=0, le=LONGEST_WAIT_MS, description="How long to wait at the end.")] = 0,
    tier: Annotated[Tier, Query(description="Which tier may serve the read.")] = Tier.AUTO,
    encoding: Annotated[Encoding, Query(description="Of keys and values in ndjson.")] = Encoding.UTF8,
) -> Response:
    call = Call(
        topic=await service.permit(caller_of(request), topic, Need.READ),
        partition=partition,
        media_type=negotiate(", ".join(request.headers.getlist("accept")) or None),
        offset=offset,
        timestamp=timestamp,
        max_bytes=min(max_bytes, service.settings.max_bytes),
        max_records=max_records,
        isolation=isolation_level,
        tier=tier,
        wait_s=timeout_ms / 1000,
        encoding=encoding,
    )
    if (offset is None) == (timestamp is None):
        raise InvalidRequest("either offset or timestamp is needed")
    if max_records is not None and call.media_type == BATCHES:
        raise InvalidRequest("batches are never cut: max_records cannot be had with this media type", given=BATCHES)
    held = service.memory.hold()
    try:
        answer = await unless_gone(request, _answer(service, call, caller_of(request), held))
    except BaseException:
        held.release()
        raise
    if (access := request.scope.get(ACCESS)) is not None:
        piece = answer.piece
        access.read = {"tier": piece.tier.value, "first_offset": piece.offset, "next_offset": answer.next_offset}
    headers = {
        "X-Next-Offset": str(answer.next_offset),
        "X-Tier": answer.piece.tier.value,
        "X-High-Watermark": str(answer.piece.bounds.high_watermark),
        "X-Last-Stable-Offset": str(answer.piece.bounds.last_stable_offset),
        "Cache-Control": "no-store",
        "Vary": "Accept",
    }
    if answer.piece.bounds.log_start is not None:
        headers["X-Log-Start-Offset"] = str(answer.piece.bounds.log_start)
    if answer.piece.view_age_s is not None:
        headers["X-View-Age"] = f"{answer.piece.view_age_s:.1f}"
    if answer.size is not None:
        headers["Content-Length"] = str(answer.size)
    return _Records(answer, held, headers, call.media_type)


class _Records(StreamingResponse):
    """Gives its memory back when it is over, however it ends."""

    def __init__(self, answer: Answer, held: Held, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(_chunks(answer), headers=headers, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.release()


async def _answer(service: FetchService, call: Call, caller: Caller, held: Held) -> Answer:
    service.charge(caller.principal, 0)
    position = await _position(service, call)
    held.resize(call.max_bytes)
    piece, pool = await _fetch(service, call, position)
    if not piece.data and call.wait_s > 0:
        held.resize(0)
        await service.tail.wait_beyond((call.topic, call.partition, call.isolation), position, call.wait_s)
        await service.permit(caller, call.topic, Need.READ)  # it may have lost the right while it waited
        held.resize(call.max_bytes)
        piece, pool = await _fetch(service, call, position)
    service.charge(caller.principal, len(piece.data))
    return await pool.run(lambda: _checked(call, piece, pool, held, service.settings.max_bytes))


async def _position(service: FetchService, call: Call) -> Offset:
    if call.offset is not None:
        return Offset(call.offset)
    at = call.timestamp or 0
    reader = service.reader

    def look() -> Offset:
        known(reader, call.topic, call.partition)
        found = reader.offset_for_time(call.topic, call.partition, at)
        return found[0] if found else reader.bounds(call.topic, call.partition).end(call.isolation)

    found = await service.pools.times.run(look)
    # the broker finds records of open transactions too; a committed reader waits at the last stable offset
    end = (await service.pools.metadata.run(lambda: reader.bounds(call.topic, call.partition))).end(call.isolation)
    return Offset(min(found, end))


async def _fetch(service: FetchService, call: Call, position: Offset) -> tuple[Fetched, Pool]:
    """In the local pool while the offset is on the broker, else in the remote one.

    A local read is held to the local tier: what was trimmed meanwhile is read again in the remote pool, so the store
    is never waited for by a thread that serves local reads.
    """

    def fetch(tier: Tier) -> Fetched:
        return service.reader.fetch(
            call.topic,
            call.partition,
            position,
            max_bytes=call.max_bytes,
            isolation=call.isolation,
            tier=tier,
        )

    local, remote = service.pools.local, service.pools.remote
    if call.tier is Tier.LOCAL:
        return await local.run(lambda: fetch(Tier.LOCAL)), local
    if call.tier is Tier.AUTO and position >= await service.local_start(call.topic, call.partition):
        try:
            piece = await local.run(lambda: fetch(Tier.LOCAL))
        except OffsetOutOfRange as error:
            if position >= error.valid_end:
                raise
        else:
            service.saw(call.topic, call.partition, piece.bounds)
            return piece, local
    if call.tier is Tier.REMOTE:
        asked = call.topic, call.partition, position, call.max_bytes, call.isolation
        return await remote.run(lambda: service.fetch_remote(*asked)), remote
    piece = await remote.run(lambda: fetch(call.tier))
    service.saw(call.topic, call.partition, piece.bounds)
    return piece, remote


def _checked(call: Call, piece: Fetched, pool: Pool, held: Held, most_unpacked: int) -> Answer:
    """Reads every byte that will be sent. Raises CorruptData, NotJson, BatchTooLarge, Throttled."""
    stored = len(piece.data)
    if call.media_type == BATCHES:
        held.resize(2 * stored)
        size, trailer = stored_bytes(piece, call.source), batches_trailer(piece)
        data = piece.data if size == stored else memoryview(piece.data)[:size]
        return Answer(piece, pool, piece.next_offset, lambda: iter((bytes(data), trailer)), size + len(trailer))
    most = min(UNPACKED_FIRST, most_unpacked)
    while True:
        held.resize(stored + 2 * most + BLOCK_BYTES)  # what grows is there twice for a moment
        try:
            shown, largest = _looked_through(call, piece, most)
            break
        except BatchTooLarge as error:
            if most == most_unpacked:
                raise BatchTooLarge(f"{error.message}; {BATCHES} has it as it is stored", **error.facts) from error
        most = min(most * 8, most_unpacked)
    held.resize(stored + largest)
    return Answer(
        shown, pool, shown.limit if shown is not piece else piece.next_offset, lambda: _body(call, shown, most)
    )


def _looked_through(call: Call, piece: Fetched, most_unpacked: int) -> tuple[Fetched, int]:
    """The piece, ended where ``max_records`` ends it; and bytes of the largest block with its encoding."""
    left, largest = call.max_records, 0
    for block in _blocks(call, piece, most_unpacked):
        largest = max(largest, _bytes_of(block, call.media_type))
        if left is not None and len(block) >= left:
            piece = replace(piece, limit=Offset(int(block.offsets[left - 1]) + 1))
        if call.media_type == KAFKA_JSON:
            require_json(block, piece.limit)
        if call.media_type == ARROW:
            block.to_arrow(call.topic, call.partition, _FALLIBLE)
        else:
            block.headers()
        if left is not None:
            left -= len(block)
            if left <= 0:
                break
    return piece, largest


def _bytes_of(block: RecordBlock, media_type: str) -> int:
    """At most, while it is encoded: a byte is six in JSON, and there several times while lines are put together."""
    sizes = block.size.clip(0)
    plain, longest = int(sizes.sum()), int(sizes.max(initial=0))
    found = block.raw.nbytes + COLUMNS_BYTES * len(block)
    if media_type == ARROW:
        return found + 3 * plain
    lines = 20 * max(SLICE_BYTES, longest)
    return found + lines if media_type in (JSON, NDJSON) else found + lines + 3 * plain


def _body(call: Call, piece: Fetched, most_unpacked: int) -> Iterator[bytes]:
    blocks = _blocks(call, piece, most_unpacked)
    if call.media_type == ARROW:
        return arrow_stream(blocks, call.topic, call.partition)
    if call.media_type == JSON:
        return json_array(ndjson(blocks, call.topic, call.partition, call.encoding, piece.tier))
    if call.media_type == NDJSON:
        return ndjson(blocks, call.topic, call.partition, call.encoding, piece.tier)
    return kafka_records(blocks, call.topic, call.partition, binary=call.media_type == KAFKA_BINARY)


def _blocks(call: Call, piece: Fetched, most_unpacked: int) -> Iterator[RecordBlock]:
    """Exactly the records of [offset, limit) that the isolation shows."""
    found = decode_records(
        piece.data,
        source=call.source,
        aborted=piece.aborted,
        start=piece.offset,
        end=piece.limit,
        most_unpacked=most_unpacked,
    )
    return (block for block in found if len(block))


async def _chunks(answer: Answer) -> AsyncIterator[bytes]:
    """One chunk is made when the one before it was taken; no thread waits for a slow client."""
    chunks = answer.body()
    while (chunk := await answer.pool.run(lambda: next(chunks, None), goes_on=True)) is not None:
        yield chunk

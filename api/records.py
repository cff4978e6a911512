"""`…/records`: records from an offset or a time, in the caller's media type.

    position  ->  fetch, check, encode (in the pool of the tier that has it)  ->  empty? long poll  ->  send

An answer holds one piece of one tier, and ``X-Next-Offset`` is the offset to continue at. With ``max_records``, more
pieces follow until the answer has that many records, also from the other tier. ``X-Tier`` names the tiers in the order
of the records. With ``key`` or ``contains``, more pieces follow until a budget is spent. Without ``max_records``, they
are all from one tier.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response

from ..fetch.piece import Fetched
from ..log.json_lines import Encoding
from ..log.record_block import RecordFilter
from ..runtime.pool import Pool
from ..state.errors import InvalidRequest, OffsetOutOfRange, TierstateError
from ..state.offsets import Offset
from ..state.routing import Isolation, Tier
from ..values.registered_values import AnswerValues
from .access_log import ACCESS
from .answer import AnswerResponse, answer_of
from .answer_body import AnswerBody, Call, Scan, ScanEnd, StoredBody
from .answer_memory import Held
from .credentials import Caller
from .media import ARROW, BATCHES, JSON, KAFKA_BINARY, KAFKA_JSON, NDJSON, PARQUET, coding_of, header, negotiate
from .parameters import A_TIME, LONGEST_TIME, WHOLE, check_parameters, time_of
from .service import FetchService, caller_of, run_until_left
from .topics import Asked, PartitionNumber, TopicName, known

router = APIRouter(prefix="/v1/topics", tags=["records"], dependencies=[Depends(check_parameters)])

DEFAULT_BYTES = 1024 * 1024
FEW_BYTES, RECORD_BYTES = 64 * 1024, 1024
"""Bytes of the first piece with ``max_records``: the larger of `FEW_BYTES` and `RECORD_BYTES` for each record."""
LONGEST_WAIT_MS = 60_000
MAX_OFFSET = 2**63
LONGEST_FILTER = 4096
"""The most characters of a filter."""
Taken: TypeAlias = tuple[Fetched, Offset]
"""A piece that was added to the answer, and the offset to continue at."""


@router.get(
    "/{topic}/partitions/{partition}/records",
    summary="Records, from an offset or a time",
    responses={
        200: {
            "description": "Records. X-Next-Offset: where to go on.",
            "content": {
                NDJSON: {"schema": {"type": "string"}},
                KAFKA_BINARY: {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/BinaryRecord"}}},
                KAFKA_JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
                JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
                PARQUET: {"schema": {"type": "string", "format": "binary"}},
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
    offset: Annotated[
        int | None, Query(ge=0, lt=MAX_OFFSET, description="First offset. This or timestamp."), WHOLE
    ] = None,
    timestamp: Annotated[str | None, Query(max_length=LONGEST_TIME, description=A_TIME)] = None,
    max_bytes: Annotated[
        int, Query(ge=1, lt=MAX_OFFSET, description="Of batches as stored; the gateway's own cap holds too."), WHOLE
    ] = DEFAULT_BYTES,
    max_records: Annotated[
        int | None,
        Query(
            ge=1,
            lt=MAX_OFFSET,
            description="None: as many as one piece of one tier holds; else over the seam of the tiers too.",
        ),
        WHOLE,
    ] = None,
    isolation_level: Annotated[
        Isolation, Query(description="read_uncommitted shows aborted and open transactions too.")
    ] = Isolation.READ_COMMITTED,
    timeout_ms: Annotated[int, Query(ge=0, le=LONGEST_WAIT_MS, description="How long to wait at the end."), WHOLE] = 0,
    tier: Annotated[Tier, Query(description="Which tier may serve the read.")] = Tier.AUTO,
    encoding: Annotated[Encoding, Query(description="Of keys and values in ndjson.")] = Encoding.UTF8,
    key: Annotated[
        str | None, Query(max_length=LONGEST_FILTER, description="Only records with exactly this key.")
    ] = None,
    contains: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=LONGEST_FILTER,
            description="Only records with this in their key, their value, or a header's name or value.",
        ),
    ] = None,
    filter_encoding: Annotated[Encoding, Query(description="Of key and contains.")] = Encoding.UTF8,
    decode: Annotated[
        bool, Query(description="In ndjson and JSON: keys and values also as the schema registry says.")
    ] = False,
) -> Response:
    media_type = negotiate(header(request.scope, b"accept"))
    call = Call(
        topic=topic,
        partition=partition,
        media_type=media_type,
        coding=coding_of(header(request.scope, b"accept-encoding"), media_type),
        offset=offset,
        timestamp=None if timestamp is None else time_of(timestamp, service.clock),
        max_bytes=min(max_bytes, service.settings.max_bytes),
        max_records=max_records,
        isolation=isolation_level,
        tier=tier,
        wait_s=timeout_ms / 1000,
        encoding=encoding,
        values=_values(service, media_type) if decode else None,
    )
    return await _respond(request, service, call, _wanted(key, contains, filter_encoding))


async def _respond(
    request: Request, service: FetchService, call: Call, record_filter: RecordFilter | None = None
) -> Response:
    """Return the answer to a call. Raises InvalidRequest, and the errors of reads and of `FetchService.permit`."""
    caller = caller_of(request)
    await service.permit(caller, call.topic, read=True)
    if (call.offset is None) == (call.timestamp is None):
        raise InvalidRequest("either offset or timestamp is needed")
    if call.max_records is not None and call.media_type == BATCHES:
        raise InvalidRequest("batches are never cut: max_records cannot be had with this media type", given=BATCHES)
    if record_filter is not None and call.media_type == BATCHES:
        name = "contains" if record_filter.key is None else "key"
        raise InvalidRequest(f"batches are never cut: {name} cannot be had with this media type", given=BATCHES)
    scan = None if record_filter is None else Scan(record_filter, service.settings.scan_bytes)
    service.charge(caller.principal, 0)
    held = service.memory.hold()
    try:
        answer = await run_until_left(request, _answer(service, call, caller, held, scan))
    except BaseException:
        held.release()
        raise
    if (access := request.scope.get(ACCESS)) is not None:
        access.reads(call.topic, answer.log_fields)
    return answer


def _values(service: FetchService, media_type: str) -> AnswerValues:
    if service.values is None:
        raise InvalidRequest("the gateway has no schema registry: registry.url", parameter="decode")
    if media_type not in (NDJSON, JSON):
        raise InvalidRequest("decoded values are in ndjson and JSON alone", given=media_type)
    return service.values.of_answer()


def _wanted(key: str | None, contains: str | None, encoding: Encoding) -> RecordFilter | None:
    if key is None and contains is None:
        return None

    def bytes_of(name: str, text: str | None) -> bytes | None:
        try:
            return (
                text if text is None else text.encode() if encoding is Encoding.UTF8 else b64decode(text, validate=True)
            )
        except ValueError as error:
            raise InvalidRequest("not what filter_encoding says", parameter=name) from error

    return RecordFilter(bytes_of("key", key), bytes_of("contains", contains))


async def _answer(service: FetchService, call: Call, caller: Caller, held: Held, scan: Scan | None) -> AnswerResponse:
    position = await _position(service, call)
    most = service.settings.max_bytes
    body = StoredBody(call, held) if call.media_type == BATCHES else AnswerBody(call, held, most, scan)
    tiers: list[Tier] = []
    piece_bytes = _first_bytes(call, scan, most)
    taken = 0

    def take(piece: Fetched) -> tuple[Fetched, Offset]:
        nonlocal taken
        if scan is not None and tiers and piece.data and piece.tier is not tiers[-1] and call.max_records is None:
            scan.stop(ScanEnd.TIER)
            return piece, piece.offset
        service.charge(caller.principal, len(piece.data))
        taken += 1
        before = 0 if scan is None else scan.bytes
        reached = body.add(piece)
        if scan is not None:
            service.owe(caller.principal, scan.bytes - before - len(piece.data))
        if piece.data and not body.wants_more:
            body.end()
        if not tiers or (piece.data and piece.tier is not tiers[-1]):
            tiers.append(piece.tier)
        return piece, reached

    held.resize(piece_bytes)
    (first, next_offset), pool = await _taken(service, call, position, piece_bytes, take)
    if not first.data and call.wait_s > 0:
        held.resize(0)
        await service.tail.wait_beyond((call.topic, call.partition, call.isolation), position, call.wait_s)
        await service.permit(caller, call.topic, read=True)  # the right may have been lost during the wait
        held.resize(piece_bytes)
        tiers.clear()
        (first, next_offset), pool = await _taken(service, call, position, piece_bytes, take)
    last = first
    while body.wants_more and last.data:
        before = taken
        left = call.max_bytes - body.stored if scan is None else piece_bytes
        held.resize(body.size + left)
        try:
            (last, next_offset), pool = await _taken(service, call, next_offset, left, take)
        except TierstateError:
            if taken > before:
                raise  # a part of the piece may be in the answer
            if scan is not None:
                scan.stop(ScanEnd.ERROR)
            break  # answer with the records so far; the call for the next offset reports the error
    if not body.ended:
        body.end()
    return answer_of(call, first, tiers, next_offset, body, pool, held, scan)


def _first_bytes(call: Call, scan: Scan | None, most: int) -> int:
    """Return the bytes to read for the first piece, as stored. In a scan, all pieces have this size."""
    if scan is not None:
        return min(max(call.max_bytes, DEFAULT_BYTES), most)  # at least the default
    if call.max_records is not None:
        return min(call.max_bytes, max(FEW_BYTES, call.max_records * RECORD_BYTES))
    return call.max_bytes


async def _position(service: FetchService, call: Call) -> Offset:
    if call.offset is not None:
        return Offset(call.offset)
    at = call.timestamp or 0
    reader = service.reader

    def look() -> Offset:
        known(reader, call.topic, call.partition)
        record = reader.offset_for_time(call.topic, call.partition, at)
        return record[0] if record else reader.bounds(call.topic, call.partition).end(call.isolation)

    offset = await service.pools.times.run(look)
    # the broker finds records of open transactions too; a committed reader waits at the last stable offset
    end = (await service.pools.metadata.run(lambda: reader.bounds(call.topic, call.partition))).end(call.isolation)
    return Offset(min(offset, end))


async def _taken(
    service: FetchService, call: Call, position: Offset, max_bytes: int, take: Callable[[Fetched], Taken]
) -> tuple[Taken, Pool]:
    """Fetch as `_fetch` does. To decode values, ``take`` may wait for a schema registry, so it runs in another pool."""
    if call.values is None:
        return await _fetch(service, call, position, max_bytes, take)
    (piece, _), _ = await _fetch(service, call, position, max_bytes, lambda piece: (piece, piece.offset))
    decoding = service.pools.decoding
    return await decoding.run(lambda: take(piece)), decoding


async def _fetch(
    service: FetchService, call: Call, position: Offset, max_bytes: int, take: Callable[[Fetched], Taken]
) -> tuple[Taken, Pool]:
    """Fetch and take a piece: in the local pool if the broker has the offset, else in the remote pool.

    A read in the local pool reads the local tier alone. If the offset was trimmed in between, the remote pool repeats
    the read. So no thread that serves local reads waits for the object store.
    """
    place = call.topic, call.partition

    def fetch(tier: Tier) -> Taken:
        piece = service.reader.fetch(*place, position, max_bytes=max_bytes, isolation=call.isolation, tier=tier)
        service.remember(*place, piece.bounds)
        return take(piece)

    local, remote = service.pools.local, service.pools.remote
    if call.tier is Tier.LOCAL:
        return await local.run(lambda: fetch(Tier.LOCAL)), local
    if call.tier is Tier.AUTO and position >= await service.local_start(*place):
        try:
            return await local.run(lambda: fetch(Tier.LOCAL)), local
        except OffsetOutOfRange as error:
            if position >= error.valid_end:
                raise
    if call.tier is Tier.REMOTE:
        return await remote.run(lambda: take(service.fetch_remote(*place, position, max_bytes, call.isolation))), remote
    return await remote.run(lambda: fetch(call.tier)), remote

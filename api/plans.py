"""`/v1/plans`, and the calls of a plan's readers: URLs of a segment's objects, or their bytes if no URLs are signed.

POST /v1/plans                        a lease, and splits with all that reading needs       once per job
DELETE /v1/plans/{plan}?topic=…       ends the lease                                        at the job's end, optional
GET  …/segments/{id}/grant            URLs that expire, an encrypted segment's data key     per segment, and on expiry
GET  …/segments/{id}/{manifest|log|indexes}      bytes, by Range: for folders, and if URLs are switched off
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from ..app.operating.plans import Place, Plans, SegmentPlace
from ..fetch.granted_objects import NAMES
from ..fetch.plan import SPLIT_BYTES
from ..fetch.plan_lines import plan_lines
from ..state.errors import InvalidRequest
from ..state.ids import RemoteSegmentId
from ..state.object_keys import ObjectKind
from ..state.offsets import ByteRange, Extent, Offset
from ..state.routing import Isolation, Tier
from ..state.segment import RemoteSegment
from ..storage.object_store import RangeNotSatisfiable
from .access_log import ACCESS
from .answer import HeldResponse
from .answer_memory import Held
from .auth import HEAD
from .media import NDJSON
from .parameters import check_parameters
from .service import FetchService, caller_of
from .topics import Asked, PartitionNumber, TopicName

router = APIRouter(prefix="/v1", tags=["plans"], dependencies=[Depends(check_parameters)])

MOST_RANGES = 10_000
LEASE_S = 3600.0
UNSIGNED_S = 900.0
"""Lifetime in seconds that is reported for the gateway's own paths. Each call to them checks the caller's rights."""
PART_BYTES = 4096
"""Bytes of memory for one part of a plan: its descriptor and its lines."""
PIECE_BYTES = 1 << 20
"""Bytes of one piece of an object that goes through the gateway. Two pieces are in memory."""
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


class PlanRange(BaseModel):
    """``[start, end)`` of a partition."""

    model_config = ConfigDict(extra="forbid")

    topic: str
    partition: int = Field(strict=True, ge=0, lt=2**31)
    start: int | None = Field(default=None, strict=True, ge=0, lt=2**63, description="null: from the beginning.")
    end: int | None = Field(default=None, strict=True, ge=0, lt=2**63, description="null: to the end as it is now.")


class PlanCall(BaseModel):
    """The ranges to read, and how to read them."""

    model_config = ConfigDict(extra="forbid")

    ranges: list[PlanRange] = Field(min_length=1, max_length=MOST_RANGES)
    isolation_level: Isolation = Isolation.READ_COMMITTED
    tier: Tier = Tier.PREFER_REMOTE
    split_bytes: int | None = Field(
        default=SPLIT_BYTES,
        strict=True,
        ge=1024,
        lt=2**62,
        description="About the most log bytes of a split; null: a range is one.",
    )
    lease_seconds: float = Field(
        default=LEASE_S,
        strict=True,
        ge=0,
        le=31_536_000,
        description="How long nothing of it expires; renewed while it is read. 0: no lease.",
    )


SegmentId = Annotated[str, Path(description="As a plan or the list of segments names it.")]
PlanName = Annotated[str, Query(max_length=100, description="The plan it is read for: its lease keeps the segment.")]


@router.post(
    "/plans",
    summary="A plan: leased, and cut into splits",
    responses={200: {"description": "Lines of JSON.", "content": {NDJSON: {"schema": {"type": "string"}}}}},
    response_class=Response,
)
async def make_plan(request: Request, service: Asked, call: PlanCall) -> Response:
    caller = caller_of(request)
    for topic in dict.fromkeys(each.topic for each in call.ranges):
        await service.permit(caller, topic, read=True)
    places = [(each.topic, each.partition) for each in call.ranges]
    if len(set(places)) < len(places):
        raise InvalidRequest("a partition is named twice")
    plans, held = _plans(service), service.memory.hold()
    try:
        body = await service.pools.plans.run(lambda: _planned(plans, call, caller.principal, held))
    except BaseException:
        held.release()
        raise
    headers = {"Content-Type": NDJSON, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
    return HeldResponse(iter([body]), service.pools.plans, held, headers=headers)


@router.delete("/plans/{plan}", summary="A plan is over: its leases are given up", status_code=204)
async def end_plan(
    request: Request,
    service: Asked,
    plan: Annotated[str, Path(max_length=100, description="Its name, by its first line.")],
    topic: Annotated[
        list[str], Query(min_length=1, max_length=MOST_RANGES, description="Each topic that it was of; repeated.")
    ],
) -> Response:
    caller = caller_of(request)
    topics = [await service.permit(caller, each, read=True) for each in dict.fromkeys(topic)]
    plans = _plans(service)
    if not await service.pools.plans.run(lambda: plans.end(plan, caller.principal, topics)):
        raise HTTPException(404, "no such plan of this caller: it is over, or was never made")
    return Response(status_code=204)


@router.get(
    "/topics/{topic}/partitions/{partition}/segments/{segment_id}/grant",
    summary="What reads one segment: URLs that end",
)
async def grant_segment(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: PartitionNumber,
    segment_id: SegmentId,
    plan: PlanName = "",
) -> Response:
    caller = caller_of(request)
    at = SegmentPlace(await service.permit(caller, topic, read=True), partition, RemoteSegmentId(segment_id))
    secret = request.url.scheme == "https"  # TLS ends here, or at a trusted proxy
    plans, longest = _plans(service), service.settings.url_lifetime

    def look() -> bytes:
        grant = plans.grant(at, plan, caller.principal, longest or UNSIGNED_S, with_key=secret, sign=longest > 0)
        return orjson.dumps(grant.as_json())

    body = await service.pools.plans.run(look)
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


@router.get(
    "/topics/{topic}/partitions/{partition}/segments/{segment_id}/{name}",
    summary="One object of a segment, as it is stored",
    response_class=Response,
)
async def read_object(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: PartitionNumber,
    segment_id: SegmentId,
    name: Literal["manifest", "log", "indexes"],
    plan: PlanName = "",
) -> Response:
    caller = caller_of(request)
    at = SegmentPlace(await service.permit(caller, topic, read=True), partition, RemoteSegmentId(segment_id))
    service.charge(caller.principal, 0)
    plans, pool, kind = _plans(service), service.pools.remote, NAMES[name]
    segment, _ = await service.pools.plans.run(lambda: plans.segment(at, plan, caller.principal))
    held = service.memory.hold()
    try:
        held.resize(2 * max(PIECE_BYTES, segment.manifest_bytes if kind is ObjectKind.MANIFEST else 0))
        whole = await pool.run(lambda: plans.manifest(segment)) if kind is ObjectKind.MANIFEST else None
        size = len(whole) if whole is not None else _size(segment, kind)
        byte_range, headers = _asked(request.headers.get("range"), size)
        pieces: Iterator[bytes] = iter(())
        if whole is not None:
            pieces = iter([whole[byte_range.start : byte_range.stop]])
        elif len(byte_range) and not request.scope[HEAD]:
            rest = plans.stored(segment, kind, byte_range)
            first = await pool.run(lambda: next(rest, b""))  # its error becomes the status
            pieces = _behind(first, rest)
        service.charge(caller.principal, 0 if request.scope[HEAD] else len(byte_range))
    except BaseException:
        held.release()
        raise
    if (access := request.scope.get(ACCESS)) is not None:
        offsets = {"first_offset": segment.offsets.start, "next_offset": segment.offsets.end + 1}
        access.reads(topic, {"tier": Tier.REMOTE.value, **offsets})
    status = 206 if "Content-Range" in headers else 200
    headers |= {"Content-Type": "application/octet-stream", "Cache-Control": "no-store"}
    return HeldResponse(pieces, pool, held, status, headers)


def _behind(first: bytes, rest: Iterator[bytes]) -> Generator[bytes, None, None]:
    try:
        yield first
        yield from rest
    finally:
        if isinstance(rest, Generator):
            rest.close()  # closes its connection to the store


def _plans(service: FetchService) -> Plans:
    if service.plans is None:
        raise InvalidRequest("this gateway makes no plans")
    return service.plans


def _planned(plans: Plans, call: PlanCall, user: str, held: Held) -> bytes:
    extents: dict[Place, Extent] = {}
    for each in call.ranges:
        place = each.topic, each.partition
        start, end = each.start, each.end
        if start is None or end is None:
            all_there_is = plans.extent(place, call.isolation_level, call.tier)
            start, end = all_there_is.start if start is None else start, all_there_is.end if end is None else end
        elif start > end:
            raise InvalidRequest("a range ends before it begins", topic=each.topic, partition=each.partition)
        if start < end:
            extents[place] = Extent(Offset(start), Offset(end))
    head = plans.lease(extents, user, call.lease_seconds)
    ranges, parts = [], 0
    for planned_range in plans.routed(extents, call.isolation_level, call.tier):
        ranges.append(planned_range)
        parts += len(planned_range.whole.parts)
        held.resize(parts * PART_BYTES)
    return b"".join(plan_lines(head, ranges, call.split_bytes))


def _size(segment: RemoteSegment, kind: ObjectKind) -> int:
    return segment.log_object_bytes if kind is ObjectKind.LOG else segment.indexes_object_bytes


def _asked(header: str | None, size: int) -> tuple[ByteRange, dict[str, str]]:
    """Return the range to answer, and its headers. A header that is not one range is ignored (RFC 9110 allows it)."""
    span = None if header is None else _RANGE.fullmatch(header.strip())
    if span is None:
        return ByteRange(0, size), {"Content-Length": str(size), "Accept-Ranges": "bytes"}
    start = int(span[1])
    stop = min(size, int(span[2]) + 1 if span[2] else size)
    if not start < stop:
        raise RangeNotSatisfiable("range begins past the end of the object", start=start)
    headers = {"Content-Range": f"bytes {start}-{stop - 1}/{size}", "Content-Length": str(stop - start)}
    return ByteRange(start, stop), headers

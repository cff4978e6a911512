"""Further calls for the console's page of a topic: its summary, times, groups, and the newest facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from ..app.looking.overview import addresses_of, overview
from ..broker.groups import GroupPosition
from ..fetch.piece import LogicalBounds
from ..state.errors import InvalidRequest, TierstateError, UnknownTopic
from . import models
from .look import GatewayReader, Look
from .parameters import WHOLE, check_parameters
from .partition_times import times_of
from .recent_facts import RecentFact, recent_facts
from .service import Need, caller_of
from .topics import Asked, TopicName, answer, known

router = APIRouter(prefix="/v1/topics/{topic}", tags=["topics"], dependencies=[Depends(check_parameters)])

AT_ONCE = 64
"""The most partitions of one answer."""
STANDINGS = 1000

Which = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**31), WHOLE]],
    Query(
        alias="partition",
        default_factory=list,
        description="Which, repeated. None: all of a topic that has 64 at most.",
    ),
]


@router.get("/summary", response_model=models.TopicSummary, summary="Its row of the table of topics")
async def summarise(request: Request, service: Asked, topic: TopicName) -> Response:
    await service.permit(caller_of(request), topic, Need.DESCRIBE)

    def made(look: Look) -> models.TopicSummary:
        boards = service.boards.known()
        views = [look.view(topic, number) for number in range(look.topic(topic).partitions)]
        service.boards.renew(addresses_of(views))
        return models.TopicSummary.model_validate(asdict(overview(topic, views, boards)))

    return await answer(service, made)


@router.get("/times", response_model=models.TimesList, summary="How far its partitions had come at what time")
async def list_times(request: Request, service: Asked, topic: TopicName, partition: Which) -> Response:
    await service.permit(caller_of(request), topic, Need.DESCRIBE)

    def made(look: Look) -> models.TimesList:
        by_partition = [(number, times_of(look, topic, number)) for number in _which(look, topic, partition)]
        times = [
            models.PartitionTimes(
                partition=number,
                times=[models.TimedOffset(offset=offset, timestamp=at) for offset, at in each.pairs],
                unavailable=each.unavailable,
            )
            for number, each in by_partition
        ]
        return models.TimesList(topic=topic, partitions=times)

    # this may read the object store, like a search by time
    return await answer(service, made, service.pools.times)


@router.get("/facts", response_model=models.FactList, summary="What happened last: copied, trimmed, expired, elected")
async def list_facts(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: Which,
    count: Annotated[int, Query(ge=1, le=500, description="At most; the newest."), WHOLE] = 50,
) -> Response:
    await service.permit(caller_of(request), topic, Need.READ)  # like the list of segments

    def made(look: Look) -> models.FactList:
        all_facts: list[RecentFact] = []
        for number in _which(look, topic, partition):
            all_facts += recent_facts(look.view(topic, number), count)
        all_facts.sort(key=lambda fact: -fact.at)
        facts = [models.RecentFact.model_validate(asdict(each)) for each in all_facts[:count]]
        return models.FactList(topic=topic, facts=facts)

    return await answer(service, made, service.pools.times)


@router.get("/groups", response_model=models.GroupList, summary="Where consumer groups stand, and in which tier")
async def list_groups(request: Request, service: Asked, topic: TopicName, partition: Which) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic, Need.DESCRIBE)
    numbers = await service.pools.metadata.run(lambda: _which(service.look(), topic, partition))
    described = await service.pools.metadata.run(lambda: service.reader.topic(topic))
    seen = await service.groups.of(caller, topic, described.partitions)

    def made(look: Look) -> models.GroupList:
        bounds = {number: _bounds(service.reader, topic, number) for number in numbers}
        here = [_standing(each, bounds[each.partition]) for each in seen.positions if each.partition in bounds]
        here.sort(key=lambda each: (-(each.behind or 0), each.group_id, each.partition))
        return models.GroupList(
            topic=topic,
            groups=here[:STANDINGS],
            left_out=max(0, len(here) - STANDINGS),
            unknown=[each.why for each in seen.problems],
        )

    return await answer(service, made)


def _which(look: Look, topic: str, partitions: Sequence[int]) -> list[int]:
    """Return each partition once, or all if none is named. Raises InvalidRequest if they are too many, UnknownTopic."""
    count = look.topic(topic).partitions
    numbers = sorted(set(partitions)) if partitions else list(range(count))
    if len(numbers) > AT_ONCE:
        raise InvalidRequest(f"name the partitions: one answer has {AT_ONCE} at most", partitions=len(numbers))
    for number in numbers:
        known(look, topic, number)
    return numbers


def _bounds(reader: GatewayReader, topic: str, partition: int) -> LogicalBounds | None:
    try:
        return reader.bounds(topic, partition)
    except UnknownTopic:
        raise
    except TierstateError:
        return None


def _standing(at: GroupPosition, bounds: LogicalBounds | None) -> models.GroupStanding:
    assert at.committed is not None
    behind = remote = None
    if bounds is None:
        words = f"stands at {at.committed:,}; where the broker's log begins is unknown"
    else:
        behind = max(0, bounds.high_watermark - at.committed)
        remote = at.committed < bounds.local_start
        if remote:
            alone = bounds.local_start - at.committed
            words = f"stands in the remote tier: the broker has the next {alone:,} of its {behind:,} offsets no more"
        elif behind:
            words = f"stands in the local tier, {behind:,} offsets behind the end"
        else:
            words = "stands at the end"
    return models.GroupStanding(
        group_id=at.group,
        partition=at.partition,
        committed_offset=at.committed,
        behind=behind,
        in_remote_tier=remote,
        said=words,
    )

"""Further calls for the console's page of a topic: its summary, times, groups, and the newest facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from heapq import nlargest
from itertools import accumulate
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from ..app.looking.overview import addresses_of, overview
from ..app.looking.partition_facts import describe_order
from ..broker.groups import GroupPosition
from ..fetch.piece import LogicalBounds
from ..fetch.reader import LogReader
from ..log.batch import BatchHeader, iter_batches
from ..rules.reasons import about_size
from ..runtime.units import counted
from ..state.errors import InvalidRequest, TierstateError, UnknownTopic
from ..state.facts import (
    ContradictionSettled,
    DeleteReason,
    Fact,
    GapAccepted,
    IntegrityHold,
    LeaderElected,
    LineageSettled,
    LiveFact,
    LocalTrimIntended,
    LogStartAdvanced,
    OperatorOrder,
    PartitionDeleted,
    PartitionMissing,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
    UnknownFact,
)
from ..state.ids import writer_of
from ..state.offsets import Offset, OffsetRange, TimestampMs
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier
from . import models
from .look import Look
from .parameters import WHOLE, check_parameters
from .service import caller_of
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
    await service.permit(caller_of(request), topic)

    def made(look: Look) -> models.TopicSummary:
        boards = service.boards.known()
        views = [look.view(topic, number) for number in range(look.topic(topic).partitions)]
        service.boards.renew(addresses_of(views))
        return models.TopicSummary.model_validate(asdict(overview(topic, views, boards)))

    return await answer(service, made)


@router.get("/times", response_model=models.TimesList, summary="How far its partitions had come at what time")
async def list_times(request: Request, service: Asked, topic: TopicName, partition: Which) -> Response:
    await service.permit(caller_of(request), topic)

    def made(look: Look) -> models.TimesList:
        times = [times_of(look, topic, number) for number in _which(look, topic, partition)]
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
    await service.permit(caller_of(request), topic, read=True)  # like the list of segments

    def made(look: Look) -> models.FactList:
        all_facts: list[models.RecentFact] = []
        for number in _which(look, topic, partition):
            all_facts += recent_facts(look.view(topic, number), count)
        all_facts.sort(key=lambda fact: -fact.at)
        return models.FactList(topic=topic, facts=all_facts[:count])

    return await answer(service, made, service.pools.times)


@router.get("/groups", response_model=models.GroupList, summary="Where consumer groups stand, and in which tier")
async def list_groups(request: Request, service: Asked, topic: TopicName, partition: Which) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic)
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


def _bounds(reader: LogReader, topic: str, partition: int) -> LogicalBounds | None:
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


MOST_PAIRS = 64
"""The most pairs of one partition. A bar of the console has no space for more."""


def times_of(reader: Look, topic: str, partition: int) -> models.PartitionTimes:
    """Return pairs for the end of each remote segment, and for three batches: the first, the first local, and the last.

    If a record's time is earlier than the previous time, the previous time is used. ``unavailable``: why the broker's
    part, or the beginning, is missing. Raises UnknownTopic.
    """
    owned = reader.view(topic, partition).coverage.owned
    pairs = {each.offsets.end: each.segment.max_timestamp for each in owned}
    start, unavailable = Offset(0), None
    try:
        bounds = reader.bounds(topic, partition)
        start = bounds.log_start if bounds.log_start is not None else bounds.local_start
        end = Offset(bounds.high_watermark - 1)
        samples: list[tuple[Offset, Callable[[list[BatchHeader]], int]]] = [
            (start, lambda headers: headers[0].first_timestamp),
            (bounds.local_start, lambda headers: headers[0].first_timestamp),
            (end, lambda headers: headers[-1].max_timestamp),
        ]
        for offset, time_of in samples if start <= end else ():
            piece = reader.fetch(
                topic, partition, offset, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED, tier=Tier.AUTO
            )
            headers = list(iter_batches(piece.data, source=f"{topic}-{partition}@{offset}"))
            if headers:
                pairs[offset] = TimestampMs(max(time_of(headers), pairs.get(offset, TimestampMs(-1))))
    except UnknownTopic:
        raise
    except TierstateError as error:  # what the view knows is still worth drawing
        unavailable = error.message
    sorted_pairs = sorted((offset, time) for offset, time in pairs.items() if offset >= start and time >= 0)
    times = accumulate((time for _, time in sorted_pairs), max)
    ascending = thinned([(offset, time) for (offset, _), time in zip(sorted_pairs, times, strict=True)])
    return models.PartitionTimes(
        partition=partition,
        times=[models.TimedOffset(offset=offset, timestamp=time) for offset, time in ascending],
        unavailable=unavailable,
    )


def thinned(pairs: list[tuple[Offset, TimestampMs]]) -> tuple[tuple[Offset, TimestampMs], ...]:
    if len(pairs) <= MOST_PAIRS:
        return tuple(pairs)
    last = len(pairs) - 1
    return tuple(pairs[at * last // (MOST_PAIRS - 1)] for at in range(MOST_PAIRS))


EXPIRED = (DeleteReason.RETENTION_TIME, DeleteReason.RETENTION_SIZE, DeleteReason.LOG_START)


def recent_facts(view: PartitionView, most: int) -> list[models.RecentFact]:
    """Return at most ``most`` facts, newest first by their position in the topic. Facts without a time, such as leases,
    are left out. So is the start of a copy that is finished.
    """
    facts = nlargest(most, _tellable(view), key=lambda live: live.position)
    return [_told(view.partition.partition, live.fact) for live in facts if not isinstance(live.fact, UnknownFact)]


def _tellable(view: PartitionView) -> Iterator[LiveFact]:
    for live in view.others:
        if _at(live.fact) is not None:
            yield live
    for segment in view.segments.values():
        finished = any(isinstance(live.fact, SegmentCopyFinished) for live in segment.facts)
        for live in segment.facts:
            if _at(live.fact) is not None and not (finished and isinstance(live.fact, SegmentCopyStarted)):
                yield live


def _at(fact: Fact | UnknownFact) -> TimestampMs | None:
    match fact:
        case LeaderElected(elected_at=at):
            return at
        case SegmentCopyStarted(attempt=attempt):
            return attempt.started_at
        case SegmentCopyFinished(segment=segment):
            return segment.copied_at
        case _:
            return getattr(fact, "at", None)


def _told(partition: int, fact: Fact) -> models.RecentFact:
    at, (words, offsets) = _at(fact), _words(fact)
    assert at is not None
    shown = None if offsets is None else models.Offsets(start=offsets.start, end=offsets.end)
    return models.RecentFact(at=at, partition=partition, fact=type(fact).__name__, said=words, offsets=shown)


def _words(fact: Fact) -> tuple[str, OffsetRange | None]:
    match fact:
        case LeaderElected():
            return f"{writer_of(fact.broker_id)} leads, epoch {fact.epoch}; its log began at {fact.local_start:,}", None
        case LogStartAdvanced():
            return f"log start moved to {fact.log_start:,}: {fact.reason}", None
        case LocalTrimIntended():
            return f"trimmed: the broker's log below {fact.offset:,}", None
        case OperatorOrder():
            return f"order: {describe_order(fact)}", None
        case IntegrityHold():
            return f"held by {writer_of(fact.broker_id)}: {fact.reason}", None
        case LineageSettled() | ContradictionSettled():
            return f"settled by {fact.settled_by}", None
        case GapAccepted():
            return f"gap accepted by {fact.accepted_by}: {fact.reason}", fact.offsets
        case PartitionMissing():
            return f"{writer_of(fact.broker_id)} found no topic of this id", None
        case PartitionDeleted():
            return "the partition is deleted", None
        case _:
            return _words_of_segment(fact)


def _words_of_segment(fact: Fact) -> tuple[str, OffsetRange | None]:
    match fact:
        case SegmentCopyStarted(attempt=attempt):
            return f"copy of {_range(attempt.offsets)} was begun by {writer_of(attempt.broker_id)}", attempt.offsets
        case SegmentCopyFinished(segment=segment):
            size = f"{counted(segment.record_count, 'record')}, {about_size(segment.log_bytes)}"
            return f"copied {_range(segment.offsets)}: {size}", segment.offsets
        case SegmentDeleteStarted(subject=subject, reason=reason):
            what = "expired" if reason in EXPIRED else "deleted"
            return f"{what} {_range(subject.offsets)}: {reason.value.replace('-', ' ')}", subject.offsets
        case SegmentDeleteFinished(subject=subject):
            return f"objects of {_range(subject.offsets)} are gone", subject.offsets
        case _:
            return type(fact).__name__, None


def _range(offsets: OffsetRange) -> str:
    return f"{offsets.start:,}..{offsets.end:,}"

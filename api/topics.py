"""`/v1/topics…`: the logical view. Every call runs in the metadata pool, serialisation included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from ..app.looking.overview import addresses_of, overview, status_of, worst_first
from ..app.looking.partition_facts import (
    accepted_in_words,
    ask_agent,
    is_archive,
    kept_in_words,
    lost_branch,
    orders_in_words,
)
from ..app.looking.remote_records import record_count, segments_as_json
from ..app.operating.plans import user_of_plan
from ..broker.acls import ADDED_BY
from ..fetch.piece import LogicalBounds, LogicalTopic
from ..fetch.reader import LogReader
from ..rules.reasons import Reason
from ..rules.trim import cut_elsewhere
from ..runtime.pool import Pool
from ..runtime.units import counted
from ..state.errors import BrokerUnavailable, Unavailable, UnknownTopic
from ..state.partition_view import PartitionView
from . import models
from .credentials import Caller
from .look import Look
from .parameters import A_TIME, LONGEST_TIME, WHOLE, check_parameters, time_of
from .service import FetchService, caller_of, service_of

router = APIRouter(prefix="/v1/topics", tags=["topics"], dependencies=[Depends(check_parameters)])

TopicName = Annotated[str, Path(description="A topic's name.")]
ANOTHER = "another reader"
PartitionNumber = Annotated[int, Path(ge=0, lt=2**31), WHOLE]
Number = Annotated[int, Field(ge=0, lt=2**31), WHOLE]
Asked = Annotated[FetchService, Depends(service_of)]


@router.get("", response_model=models.TopicList, summary="Tiered topics")
async def list_topics(request: Request, service: Asked) -> Response:
    names = await service.topics(caller_of(request))
    return await answer(service, lambda look: _topics(service, look, names))


@router.get("/{topic}", response_model=models.Topic, summary="One topic, with every partition")
async def describe_topic(request: Request, service: Asked, topic: TopicName) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic)
    return await answer(service, lambda look: _topic(service, look, topic, service.restricted(caller)))


@router.get("/{topic}/partitions", response_model=models.PartitionList, summary="The partitions of a topic, both tiers")
async def list_partitions(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: Annotated[list[Number], Query(default_factory=list, description="Which, repeated. None: all.")],
) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic)

    def made(look: Look) -> models.PartitionList:
        topic_model = _topic(service, look, topic, service.restricted(caller), partition or None)
        return models.PartitionList(partitions=topic_model.partitions)

    return await answer(service, made)


@router.get("/{topic}/partitions/{partition}", response_model=models.Partition, summary="One partition, both tiers")
async def describe_partition(
    request: Request, service: Asked, topic: TopicName, partition: PartitionNumber
) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic)

    def made(look: Look) -> models.Partition:
        described = known(service.reader, topic, partition)
        view = service.reader.view(topic, partition)
        bounds, status = service.reader.bounds(topic, partition), _status(service, topic, view)
        return _partition(described, view, bounds, status, service.restricted(caller))

    return await answer(service, made)


@router.get(
    "/{topic}/partitions/{partition}/segments",
    response_model=models.SegmentList,
    summary="Segments, with state, offsets, epochs, sizes and object key",
)
async def list_segments(request: Request, service: Asked, topic: TopicName, partition: PartitionNumber) -> Response:
    await service.permit(caller_of(request), topic, read=True)

    def made(look: Look) -> dict[str, Any]:
        known(look, topic, partition)
        segments = segments_as_json(look.view(topic, partition))
        return {"topic": topic, "partition": partition, "segments": segments}

    return await answer(service, made)


@router.get(
    "/{topic}/partitions/{partition}/agent",
    response_model=models.AgentStatus,
    summary="What only its agent knows: why it is not copied, trimmed, expired",
)
async def ask_its_agent(request: Request, service: Asked, topic: TopicName, partition: PartitionNumber) -> Response:
    caller = caller_of(request)
    await service.permit(caller, topic, read=True)

    def made(look: Look) -> models.AgentStatus:
        partitions = known(look, topic, partition).partitions
        view = look.view(topic, partition)
        reply = ask_agent(view, topic, service.agents)
        return models.AgentStatus(
            topic=topic,
            partition=partition,
            broker_id=None if view.leader is None else view.leader.broker_id,
            address=None if view.leader is None else view.leader.management_address,
            silent=isinstance(reply, str),
            status=_shown(service, caller, topic, partitions, reply) if isinstance(reply, dict) else None,
        )

    # an agent that does not answer takes seconds, and metadata calls must not wait for it
    return await answer(service, made, service.pools.agents)


@router.get(
    "/{topic}/partitions/{partition}/offsets",
    response_model=models.FoundOffset,
    summary="The first record at or after a time",
)
async def find_offset(
    request: Request,
    service: Asked,
    topic: TopicName,
    partition: PartitionNumber,
    timestamp: Annotated[str, Query(max_length=LONGEST_TIME, description=A_TIME)],
) -> Response:
    await service.permit(caller_of(request), topic)
    moment = time_of(timestamp, service.clock)

    def made(look: Look) -> models.FoundOffset:
        known(service.reader, topic, partition)
        record = service.reader.offset_for_time(topic, partition, moment)
        offset, at = record if record is not None else (None, None)
        return models.FoundOffset(topic=topic, partition=partition, offset=offset, timestamp=at)

    # this may read the object store: it must neither delay metadata calls nor wait for scans
    return await answer(service, made, service.pools.times)


async def answer(
    service: FetchService, made: Callable[[Look], BaseModel | dict[str, Any]], pool: Pool | None = None
) -> Response:
    """Return the answer, made in ``pool`` (None: the metadata pool). X-View-Age: age of a view read without brokers."""
    look = service.look()

    def dumped() -> bytes:
        try:
            content = made(look)
        except UnknownTopic as error:
            if not look.alone:
                raise
            raise BrokerUnavailable("no broker answers, and the view does not have it", **error.facts) from error
        return orjson.dumps(content.model_dump(mode="json") if isinstance(content, BaseModel) else content)

    body = await (pool or service.pools.metadata).run(dumped)
    headers = {} if look.view_age_s is None else {"X-View-Age": f"{look.view_age_s:.1f}"}
    return Response(body, headers=headers, media_type="application/json")


def known(reader: LogReader | Look, topic: str, partition: int) -> LogicalTopic:
    """Return the topic. Raises UnknownTopic if the topic or the partition does not exist."""
    described = reader.topic(topic)
    if partition >= described.partitions:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=described.partitions)
    return described


def _topics(service: FetchService, look: Look, names: Sequence[str]) -> models.TopicList:
    views, boards = dict[str, list[PartitionView]](), service.boards.known()
    for name in names:
        try:
            views[name] = [look.view(name, number) for number in range(look.topic(name).partitions)]
        except UnknownTopic:
            continue  # deleted since it was listed
    service.boards.renew(addresses_of(view for each in views.values() for view in each))
    overviews = worst_first([overview(name, each, boards) for name, each in views.items()])
    return models.TopicList(topics=[models.TopicSummary.model_validate(asdict(each)) for each in overviews])


def _topic(
    service: FetchService, look: Look, name: str, user: str | None, only: Collection[int] | None = None
) -> models.Topic:
    described = look.topic(name)
    partitions = []
    for number in range(described.partitions) if only is None else sorted(set(only)):
        known(look, name, number)
        view = look.view(name, number)
        status = _status(service, name, view)
        try:
            partitions.append(_partition(described, view, look.bounds(name, number), status, user))
        except Unavailable as error:  # one partition without a leader must not hide the others
            partitions.append(_partition(described, view, None, status, user, error.message))
    return models.Topic(topic=name, topic_id=described.topic_id, partitions=partitions)


def _status(service: FetchService, topic: str, view: PartitionView) -> Mapping[str, Any]:
    service.boards.renew(addresses_of([view]))
    status = status_of(topic, view, service.boards.known())
    return status if isinstance(status, Mapping) else {}


def _shown(
    service: FetchService, caller: Caller, topic: str, partitions: int, status: dict[str, Any]
) -> dict[str, Any]:
    """Return an agent's status as this caller may read it: its reasons may name consumer groups and users."""
    user = service.restricted(caller)
    if user is None:
        return status
    groups = set[str]()
    if status.get("held_by"):
        try:
            groups = {each.group for each in service.groups.now(caller, topic, partitions).positions}
        except Unavailable:  # unknown groups are not shown
            pass
    return shown_status(status, groups, user)


def _partition(
    topic: LogicalTopic,
    view: PartitionView,
    bounds: LogicalBounds | None,
    status: Mapping[str, Any],
    user: str | None,
    unavailable: str | None = None,
) -> models.Partition:
    highest = view.coverage.owned[-1].offsets.end if view.coverage.owned else None
    start = bounds.start(topic.name, view.partition.partition) if bounds else view.log_start
    copied_to = view.coverage.prefix_end(start if start is not None else 0)
    local_start = bounds.local_start if bounds else None
    lost, archive = status.get("facts_lost"), is_archive(status)
    overlap = None
    if bounds is not None and start is not None and highest is not None and highest >= bounds.local_start:
        overlap = models.Offsets(start=max(bounds.local_start, start), end=highest)
    gaps = view.gaps_between(start, bounds.local_start if bounds else None)
    return models.Partition(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=view.partition.partition,
        log_start_offset=start,
        local_log_start_offset=local_start,
        highest_remote_offset=highest,
        last_stable_offset=bounds.last_stable_offset if bounds else None,
        high_watermark=bounds.high_watermark if bounds else None,
        remote_segments=len(view.readable),
        remote_bytes=view.remote_bytes,
        remote_log_bytes=sum(segment.log_bytes for segment in view.readable),
        remote_records=record_count(view, start),
        copied_to=copied_to,
        local_only_records=max(0, bounds.high_watermark - 1 - copied_to) if bounds else None,
        overlap=overlap,
        accepted_gaps=list(accepted_in_words(view)),
        gaps=[models.Offsets(start=gap.start, end=gap.end) for gap in gaps],
        term=str(view.term) if view.term else None,
        orders=list(orders_in_words(view, local_start)),
        degraded=list(view.degraded),
        holds=[hold.reason for hold in view.holds],
        contradictions=list(view.contradictions),
        lineage_unknown=view.lineage_unknown,
        facts_lost=lost,
        cut_elsewhere=None if lost or archive else cut_elsewhere(view, topic.name, local_start),
        lost_branch=lost_branch(view),
        kept=list(kept_in_words(view)),
        leases=[
            models.Lease(
                id=lease.id,
                holder=lease.holder if user is None or user_of_plan(lease.holder) == user else ANOTHER,
                offsets=models.Offsets(start=lease.offsets.start, end=lease.offsets.end),
                expires_at=lease.expires_at,
            )
            for lease in view.leases
        ],
        unavailable=unavailable,
    )


# Agents' statuses and leases' holders name groups and users. If Kafka decides about rights, a caller sees the groups
# that the brokers list to this caller, and the holders that are the caller's own plans.


def shown_status(status: Mapping[str, Any], groups: Collection[str], user: str) -> dict[str, Any]:
    """Return the status of a partition as this user may read it. ``groups``: the groups that the user may see."""
    made, held_by = dict(status), status.get("held_by") or ()
    shown_groups = [each for each in held_by if each in groups]
    if "held_by" in made:
        made["held_by"] = shown_groups
    match status.get("not_trimmed_reason"):
        case Reason.GROUP_HOLDS if len(shown_groups) < len(held_by) or not held_by:
            others = counted(max(1, len(held_by) - len(shown_groups)), "consumer group") + " that this user may not see"
            made["not_trimmed"] = f"held by {', '.join([*shown_groups, others])}"
        case Reason.GROUPS_UNKNOWN:
            made["not_trimmed"] = "consumer groups could not be listed completely"
    if status.get("rights_lacking"):
        made["rights_lacking"] = [each.partition(ADDED_BY)[0] for each in status["rights_lacking"]]
    if status.get("not_expired_reason") == Reason.LEASED:
        made["not_expired"] = "readers' leases keep the objects of condemned segments"
    return made

"""Where consumer groups stand on a topic, as far as somebody may see: each broker is asked as that caller.

ListGroups answers the groups that who asks may DESCRIBE, OffsetFetch the offsets of those alone: Kafka's authorizer
decides, and nothing of it is evaluated here. A broker lists the groups that it coordinates, so all of them are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from ..state.errors import BrokerUnavailable, TierstateError, TimedOut
from ..state.offsets import Offset
from .answers import Address, metadata_of
from .error_codes import error_of
from .groups import GroupPosition, GroupProblem, TopicGroups
from .raw_connection import RawConnection

Connect = Callable[[Sequence[Address] | None], tuple[RawConnection, float]]
"""To the first of these addresses that answers, None: of all that are known; and until when it may be asked."""

CONSUMERS = ("consumer", "")
"""Kinds of protocol whose groups commit offsets: members', and those of who assigns partitions itself."""
MOST_GROUPS = 5000
"""Of one broker."""
AT_ONCE = 200
"""Groups in one request."""


def read_groups_as(connect: Connect, topic: str, partitions: Sequence[int]) -> TopicGroups:
    """What can be seen now. BrokerUnavailable, TimedOut: no broker answers. AccessDenied: the login is refused."""
    connection, deadline = connect(None)
    try:
        nobody: list[object] = []
        request = MetadataRequest(topics=nobody, allow_auto_topic_creation=False, min_version=8, max_version=10)
        brokers = metadata_of(connection.ask(request, deadline)).brokers
    finally:
        connection.close()
    positions: list[GroupPosition] = []
    problems: list[GroupProblem] = []
    for broker, address in sorted(brokers.items()):
        try:
            _ask_one(connect, address, (topic, partitions), positions, problems)
        except (BrokerUnavailable, TimedOut):
            problems.append(GroupProblem(None, f"broker {broker} did not answer: the groups that it knows are missing"))
    positions.sort(key=lambda each: (each.group, each.partition))
    return TopicGroups(tuple(positions), tuple(problems))


def _ask_one(
    connect: Connect,
    address: Address,
    wanted: tuple[str, Sequence[int]],
    positions: list[GroupPosition],
    problems: list[GroupProblem],
) -> None:
    connection, deadline = connect([address])
    try:
        listed = connection.ask(ListGroupsRequest(states_filter=[], min_version=3, max_version=4), deadline)
        refused = error_of(listed.error_code, request="ListGroups")
        if refused is not None:
            problems.append(GroupProblem(None, f"a broker did not list its groups: {refused.message}"))
            return
        names = sorted(each.group_id for each in listed.groups if each.protocol_type in CONSUMERS)
        if len(names) > MOST_GROUPS:
            problems.append(GroupProblem(None, f"{len(names) - MOST_GROUPS} groups of a broker were not asked about"))
        for at in range(0, min(len(names), MOST_GROUPS), AT_ONCE):
            for each in _committed(connection, deadline, names[at : min(at + AT_ONCE, MOST_GROUPS)], wanted):
                if isinstance(each, GroupPosition):
                    positions.append(each)
                else:
                    problems.append(each)
    finally:
        connection.close()


def _committed(
    connection: RawConnection, deadline: float, names: Sequence[str], wanted: tuple[str, Sequence[int]]
) -> Iterator[GroupPosition | GroupProblem]:
    topic, partitions = wanted
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    parts = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))]
    asked = [kind(group_id=name, topics=parts) for name in names]
    request = OffsetFetchRequest(groups=asked, require_stable=False, min_version=8, max_version=9)
    for group in connection.ask(request, deadline).groups:
        failed: TierstateError | None = error_of(group.error_code, request="OffsetFetch")
        if failed is not None:
            yield GroupProblem(group.group_id, f"the offsets of group {group.group_id} are unknown: {failed.message}")
            continue
        for part in (part for each in group.topics for part in each.partitions):
            if part.error_code:
                why = f"the offset of group {group.group_id} on {topic}-{part.partition_index} is unknown"
                yield GroupProblem(group.group_id, why)
            elif part.committed_offset >= 0:
                yield GroupPosition(group.group_id, part.partition_index, Offset(part.committed_offset))

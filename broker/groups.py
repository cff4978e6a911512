"""Reads the positions of groups of every kind on a topic: no group may lose records that it has not read yet.

Each broker lists the groups that it coordinates, and is then asked for their members and offsets. librdkafka is not
used: while brokers restart, its requests to coordinators use freed memory and crash the process (its issue 4605).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeClusterRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from ..state.errors import BrokerUnavailable, InvalidRequest, TierstateError, TimedOut
from ..state.offsets import Offset
from .answers import Address, metadata_of
from .coordinators import Coordinators
from .error_codes import error_of
from .messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from .raw import RawClient, metadata_request
from .raw_connection import RawConnection
from .wire import Frame


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """``committed``: the next offset that the group will read; None: a member is assigned, but nothing is committed."""

    group: str
    partition: int
    committed: Offset | None


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """A reason why positions are unknown. ``group``: the group concerned; None: any group may be missing."""

    group: str | None
    why: str


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """The positions of groups on one topic, and the reasons why others are unknown."""

    positions: tuple[GroupPosition, ...]
    problems: tuple[GroupProblem, ...] = ()

    def why_incomplete(self, excluded: Callable[[str], bool] = lambda group: False) -> str | None:
        """Return why groups that are not excluded, by name, may be missing. Returns None if none can be missing."""
        return "; ".join(each.why for each in self.problems if each.group is None or not excluded(each.group)) or None


Ask = Callable[[Any], Any]
"""Sends one request to one broker and returns its answer. Raises BrokerUnavailable, TimedOut, CorruptData."""

Connect = Callable[[Sequence[Address] | None], tuple[RawConnection, float]]
"""Connects to the first address (None: of all known ones) that answers. Returns the connection and its deadline."""
AT_ONCE = 200
"""The most groups in one request."""
COMMITTING_KINDS = ("classic", "consumer", "streams")
"""Kinds of groups that commit offsets."""
MOST_GROUPS = 5000
"""The most groups of one broker whose offsets are requested for a caller."""
_DESCRIBE = 8
"""Kafka's code of the operation DESCRIBE."""
_GROUP_ID_NOT_FOUND = 69
_Assigned = Iterator[tuple[str, int]]
"""Topic and partition."""
Offsets = Iterator[tuple[str, GroupPosition] | tuple[str | None, GroupProblem]]
"""Pairs of a topic and a position or problem. The topic is None if the problem concerns the whole group."""


@dataclass(slots=True)
class _Listing:
    """The brokers' answers so far. ``offsets``: the next offset by topic, group and partition."""

    topics: Collection[str]
    offsets: dict[tuple[str, str, int], Offset | None] = field(default_factory=dict)
    problems: list[GroupProblem] = field(default_factory=list)
    problems_of_topics: dict[str, list[GroupProblem]] = field(default_factory=lambda: defaultdict(list))

    def add_assigned(self, group: str, assigned: _Assigned) -> None:
        for topic, partition in assigned:
            if topic in self.topics:
                self.offsets.setdefault((topic, group, partition))

    def of_topic(self, topic: str) -> TopicGroups:
        rows = sorted((group, part, at) for (name, group, part), at in self.offsets.items() if name == topic)
        positions = tuple(GroupPosition(*each) for each in rows)
        return TopicGroups(positions, (*self.problems, *self.problems_of_topics.get(topic, ())))


def read_groups(raw: RawClient, topics: Collection[str]) -> dict[str, TopicGroups]:
    """Return the groups' positions on each topic. An error that concerns one group becomes a problem of that group.

    Every kind of group counts: classic, consumer, share and streams groups. A group of a kind that this release does
    not know becomes a problem. Kafka silently lists only the groups that these credentials may see and whose
    coordinator is active, so DESCRIBE on the cluster and the coordinators are checked. Raises BrokerUnavailable or
    TimedOut if no broker returns metadata.
    """
    listing, coordinators = _Listing(topics), Coordinators(raw)
    sees_all = False
    for broker in coordinators.brokers:
        ask = partial(raw.ask, broker)
        try:
            sees_all = sees_all or _sees_all_groups(ask)
            with coordinators.listing(ask):
                _ask_broker(ask, listing)
        except TierstateError as error:
            listing.problems.append(GroupProblem(None, f"a broker did not list its groups: {error}"))
    if (why := coordinators.why_incomplete()) is not None:
        listing.problems.append(GroupProblem(None, why))
    if not sees_all:
        why = "these credentials lack DESCRIBE on the cluster, so groups may be hidden"
        listing.problems.insert(0, GroupProblem(None, why))
    return {topic: listing.of_topic(topic) for topic in topics}


def read_groups_as(connect: Connect, topic: str, partitions: Sequence[int]) -> TopicGroups:
    """Return the positions of those groups on a topic that a caller may see. ``connect`` logs in as the caller.

    ListGroups returns only the groups that the caller may DESCRIBE, and OffsetFetch only their offsets: Kafka's
    authorizer decides. A broker that does not answer becomes a problem in the result. Raises BrokerUnavailable or
    TimedOut if no broker answers, and AccessDenied if the login is refused.
    """
    connection, deadline = connect(None)
    with closing(connection):
        brokers = metadata_of(connection.ask(metadata_request(()), deadline)).brokers
    listing = _Listing([topic])
    for broker, address in sorted(brokers.items()):
        try:
            connection, deadline = connect([address])
            with closing(connection):
                _ask_for_caller(partial(connection.ask, deadline=deadline), listing, {topic: partitions})
        except (BrokerUnavailable, TimedOut):
            why = f"broker {broker} did not answer: the groups that it knows are missing"
            listing.problems.append(GroupProblem(None, why))
        except TierstateError as error:
            listing.problems.append(GroupProblem(None, f"a broker did not list its groups: {error.message}"))
    return listing.of_topic(topic)


def _ask_for_caller(ask: Ask, listing: _Listing, partitions: Mapping[str, Sequence[int]]) -> None:
    kinds = list_groups(ask)
    names = sorted(name for kind in COMMITTING_KINDS for name in kinds.get(kind, ()))
    if len(names) > MOST_GROUPS:
        why = f"{len(names) - MOST_GROUPS} groups of a broker were not queried"
        listing.problems.append(GroupProblem(None, why))
    _add_offsets(committed_offsets(ask, names[:MOST_GROUPS], partitions), listing)


def list_groups(ask: Ask) -> dict[str, list[str]]:
    """Return the groups that a broker coordinates, by kind in lower case. Raises the error in the broker's answer."""
    answer = ask(ListGroupsRequest(states_filter=[], types_filter=[], min_version=3, max_version=5))
    if (refusal := error_of(answer.error_code, request="ListGroups")) is not None:
        raise refusal
    kinds = defaultdict(list)
    for each in answer.groups:
        kinds[(each.group_type or "classic").lower()].append(each.group_id)  # brokers before 3.8 omit the type
    return kinds


def committed_offsets(
    ask: Ask, groups: Sequence[str], partitions: Mapping[str, Sequence[int]] | None = None
) -> Offsets:
    """Yield the offsets that these groups committed. ``partitions``: partition numbers by topic; None: all."""
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = partitions and [
        kind.OffsetFetchRequestTopics(name=topic, partition_indexes=list(parts)) for topic, parts in partitions.items()
    ]
    for names in _portions(groups):
        queries = [kind(group_id=name, topics=topics) for name in names]
        request = OffsetFetchRequest(groups=queries, require_stable=False, min_version=8, max_version=9)
        for group in ask(request).groups:
            rows = ((each.name, part, part.committed_offset) for each in group.topics for part in each.partitions)
            yield from _positions(group, "group", (row for row in rows if row[1].error_code or row[2] >= 0))


def _positions(group: Any, kind: str, rows: Iterable[tuple[str, Any, int]]) -> Offsets:
    """Yield the positions in a group's answer. ``rows``: topic, partition, and its offset; -1 without one."""
    name = group.group_id
    if (failure := error_of(group.error_code)) is not None:
        yield None, GroupProblem(name, f"the offsets of {kind} {name} are unknown: {failure.message}")
        return
    for topic, part, offset in rows:
        if part.error_code:
            why = f"the offset of {kind} {name} on {topic}-{part.partition_index} is unknown"
            yield topic, GroupProblem(name, why)
        else:
            yield topic, GroupPosition(name, part.partition_index, Offset(offset) if offset >= 0 else None)


def _portions(groups: Sequence[str]) -> Iterator[Sequence[str]]:
    return (groups[at : at + AT_ONCE] for at in range(0, len(groups), AT_ONCE))


def _sees_all_groups(ask: Ask) -> bool:
    answer = ask(DescribeClusterRequest(include_cluster_authorized_operations=True, min_version=0, max_version=0))
    return _DESCRIBE in (answer.authorized_operations or ())


def _ask_broker(ask: Ask, listing: _Listing) -> None:
    for kind, groups in list_groups(ask).items():
        if kind not in _MEMBERS:
            why = f"is of kind {kind}, which this release does not know: what it has read is unknown"
            listing.problems += [GroupProblem(name, f"group {name} {why}") for name in groups]
            continue
        for names in _portions(groups):
            _add_members(ask, kind, names, listing)
            _add_offsets(_share_offsets(ask, names) if kind == "share" else committed_offsets(ask, names), listing)


def _add_members(ask: Ask, kind: str, names: Sequence[str], listing: _Listing) -> None:
    """Add the partitions that are or will be assigned to members, each without an offset until one is known."""
    request, assigned = _MEMBERS[kind]
    for group in ask(request(names)).groups:
        name = group.group_id
        if group.error_code == _GROUP_ID_NOT_FOUND:  # deleted since it was listed
            continue
        if (failure := error_of(group.error_code, request="DescribeGroups")) is not None:
            listing.problems.append(GroupProblem(name, f"the members of group {name} are unknown: {failure}"))
            continue
        try:
            listing.add_assigned(name, assigned(group))
        except InvalidRequest as error:
            why = f"the assignment of a member of group {name} cannot be read: {error}"
            listing.problems.append(GroupProblem(name, why))


def _add_offsets(offsets: Offsets, listing: _Listing) -> None:
    for topic, each in offsets:
        if isinstance(each, GroupPosition):
            if topic in listing.topics:
                listing.offsets[str(topic), each.group, each.partition] = each.committed
        elif topic is None:
            listing.problems.append(each)
        else:
            listing.problems_of_topics[topic].append(each)


def _share_offsets(ask: Ask, names: Sequence[str]) -> Offsets:
    """Yield the start offsets of share groups. Records below them were acknowledged or archived (KIP-932)."""
    kind = DescribeShareGroupOffsetsRequest.Group
    queries = [kind(group_id=name, topics=None) for name in names]
    for group in ask(DescribeShareGroupOffsetsRequest(groups=queries, max_version=0)).groups:
        if group.error_code != _GROUP_ID_NOT_FOUND:  # deleted since it was listed
            rows = ((each.topic_name, part, part.start_offset) for each in group.topics for part in each.partitions)
            yield from _positions(group, "share group", rows)


def _classic(group: Any) -> _Assigned:
    """Decode the assignments of a group whose members are consumers (ConsumerProtocolAssignment)."""
    for member in group.members if group.protocol_type == "consumer" else ():
        if not member.member_assignment:  # the group rebalances
            continue
        frame = Frame(member.member_assignment)
        frame.int16()  # version
        for _ in range(frame.count(flexible=False)):
            topic = frame.string(flexible=False)
            yield from [(topic, frame.int32()) for _ in range(frame.count(flexible=False, smallest=4))]


def _consumer(group: Any) -> _Assigned:
    for member in group.members:
        for each in (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions):
            yield from ((each.topic_name, partition) for partition in each.partitions)


def _share(group: Any) -> _Assigned:
    for each in (each for member in group.members for each in member.assignment.topic_partitions):
        yield from ((each.topic_name, partition) for partition in each.partitions)


def _streams(group: Any) -> _Assigned:
    """Yield the members' partitions. A task reads the same partition of each source topic of its subtopology."""
    sources = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in (group.topology.subtopologies if group.topology else None) or ()
    }
    for member in group.members:
        for task in (*member.assignment.active_tasks, *member.target_assignment.active_tasks):
            for topic in sources.get(task.subtopology_id, ()):
                yield from ((topic, partition) for partition in task.partitions)


_MEMBERS: Mapping[str, tuple[Callable[[Sequence[str]], Any], Callable[[Any], _Assigned]]] = {
    "classic": (lambda names: DescribeGroupsRequest(groups=list(names), min_version=3, max_version=5), _classic),
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=list(names)), _consumer),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=list(names), min_version=1), _share),
    "streams": (lambda names: StreamsGroupDescribeRequest(group_ids=list(names)), _streams),
}
"""By kind of group: the request that describes its members, and the function that yields their partitions."""

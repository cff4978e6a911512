"""The positions of those consumer groups on a topic that a caller may see, requested with the caller's login.

ListGroups returns only the groups that the caller may DESCRIBE, and OffsetFetch only their offsets: Kafka's authorizer
decides, and tierstate evaluates no ACL. A broker lists only the groups that it coordinates, so all brokers are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kafka.protocol.metadata import MetadataRequest

from ..state.errors import BrokerUnavailable, TierstateError, TimedOut
from .answers import Address, metadata_of
from .groups import GroupPosition, GroupProblem, TopicGroups, committed_offsets, list_groups
from .raw_connection import RawConnection

Connect = Callable[[Sequence[Address] | None], tuple[RawConnection, float]]
"""Connects to the first address (None: of all known ones) that answers. Returns the connection and its deadline."""

COMMIT_OFFSETS = ("classic", "consumer", "streams")
"""Kinds of groups that commit offsets."""
MOST_GROUPS = 5000
"""The most groups of one broker whose offsets are requested."""


def read_groups_as(connect: Connect, topic: str, partitions: Sequence[int]) -> TopicGroups:
    """Return the positions that the caller may see. A broker that does not answer becomes a problem in the result.

    Raises BrokerUnavailable or TimedOut if no broker answers, and AccessDenied if the login is refused."""
    connection, deadline = connect(None)
    try:
        no_topics: list[object] = []
        request = MetadataRequest(topics=no_topics, allow_auto_topic_creation=False, min_version=8, max_version=10)
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
        except TierstateError as refused:
            problems.append(GroupProblem(None, f"a broker did not list its groups: {refused.message}"))
    positions.sort(key=lambda each: (each.group, each.partition))
    return TopicGroups(tuple(positions), tuple(problems))


def _ask_one(
    connect: Connect,
    address: Address,
    topic_partitions: tuple[str, Sequence[int]],
    positions: list[GroupPosition],
    problems: list[GroupProblem],
) -> None:
    connection, deadline = connect([address])
    try:
        ask = partial(connection.ask, deadline=deadline)
        kinds = list_groups(ask)
        names = sorted(name for kind in COMMIT_OFFSETS for name in kinds.get(kind, ()))
        if len(names) > MOST_GROUPS:
            problems.append(GroupProblem(None, f"{len(names) - MOST_GROUPS} groups of a broker were not asked about"))
        for _, each in committed_offsets(ask, names[:MOST_GROUPS], dict([topic_partitions])):
            if isinstance(each, GroupPosition):
                positions.append(each)
            else:
                problems.append(each)
    finally:
        connection.close()

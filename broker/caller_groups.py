"""The positions of consumer groups on a topic, as far as a caller may see them: each broker is asked as that caller.

ListGroups returns the groups that the caller may DESCRIBE, OffsetFetch the offsets of those alone: Kafka's authorizer
decides, nothing is evaluated here. A broker lists the groups that it coordinates, so all brokers are asked.
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
"""Connects to the first of these addresses (None: all known ones) that answers; returns its deadline too."""

COMMIT_OFFSETS = ("classic", "consumer", "streams")
"""Kinds of groups that commit offsets."""
MOST_GROUPS = 5000
"""Groups of one broker that are asked about at most."""


def read_groups_as(connect: Connect, topic: str, partitions: Sequence[int]) -> TopicGroups:
    """Return the visible positions. Raises BrokerUnavailable or TimedOut (no answer), AccessDenied (login refused)."""
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

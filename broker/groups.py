"""Which consumer groups stand where on a topic: plain consumers must not lose what they have not read yet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient

from ..state.errors import TierstateError
from ..state.offsets import Offset
from .error_codes import error_of_exception

Excluded = Callable[[str], bool]
"""Whether a group, by name, does not count."""


def nobody(group: str) -> bool:
    """The exclusion that excludes no group."""
    return False


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """``committed`` is the next offset the group will read; None: a member is assigned and nothing is committed."""

    group: str
    partition: int
    committed: Offset | None


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """Something about groups that could not be learned; ``group`` is None when any group may be missing."""

    group: str | None
    why: str


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """Where groups stand on one topic, and what could not be learned."""

    positions: tuple[GroupPosition, ...]
    problems: tuple[GroupProblem, ...] = ()

    def why_incomplete(self, excluded: Excluded = nobody) -> str | None:
        """None when these are all groups that count."""
        return "; ".join(one.why for one in self.problems if one.group is None or not excluded(one.group)) or None

    def holding(self, partition: int, excluded: Excluded = nobody) -> GroupPosition | None:
        """Who is furthest behind on this partition; a group without a commit is behind every other."""
        here = [one for one in self.positions if one.partition == partition and not excluded(one.group)]
        return min(here, key=lambda one: (-1 if one.committed is None else one.committed, one.group), default=None)


def read_groups(admin: AdminClient, topics: Collection[str], timeout: float) -> dict[str, TopicGroups]:
    """Every group's committed offsets and assigned members on each topic. Trouble with one group is a problem of its.

    One listing for all topics. Kafka lists only the groups these credentials may see, without a word: whether they see
    all is asked first (DESCRIBE on the cluster). A share group has no committed offsets that a request here could show,
    so it is a problem too. BrokerUnavailable, TimedOut when nothing is answered at all.
    """
    problems: list[GroupProblem] = []
    if not _sees_all_groups(admin, timeout):
        problems.append(GroupProblem(None, "these credentials lack DESCRIBE on the cluster, so groups may be hidden"))
    listing = _result(admin.list_consumer_groups(request_timeout=timeout))
    problems += [GroupProblem(None, f"a broker did not list its groups: {error}") for error in listing.errors or ()]
    names = sorted(group.group_id for group in listing.valid or ())
    of_topics: dict[str, list[GroupProblem]] = {topic: [] for topic in topics}
    positions: dict[str, dict[tuple[str, int], Offset | None]] = {topic: {} for topic in topics}
    for topic, name, partition in _assigned(admin, names, timeout, problems):
        if topic in positions:
            positions[topic][name, partition] = None
    for topic, name, partition, offset in _committed(admin, names, timeout, problems, of_topics):
        if topic in positions:
            positions[topic][name, partition] = offset
    return {
        topic: TopicGroups(
            tuple(GroupPosition(name, partition, offset) for (name, partition), offset in sorted(found.items())),
            (*problems, *of_topics[topic]),
        )
        for topic, found in positions.items()
    }


def look_around(admin: AdminClient, timeout: float) -> None:
    """After a TimedOut, so that the next listing asks those that live: librdkafka goes on asking a broker that died for
    as long as its metadata names it, and reads that again every five minutes.
    """
    with suppress(KafkaException):
        admin.list_topics(timeout=timeout)


def _sees_all_groups(admin: AdminClient, timeout: float) -> bool:
    cluster = _result(admin.describe_cluster(include_authorized_operations=True, request_timeout=timeout))
    return AclOperation.DESCRIBE in (cluster.authorized_operations or ())


def _assigned(
    admin: AdminClient, names: list[str], timeout: float, problems: list[GroupProblem]
) -> list[tuple[str, str, int]]:
    """Topic, group, partition."""
    if not names:
        return []
    found = []
    for name, future in admin.describe_consumer_groups(names, request_timeout=timeout).items():
        try:
            members = _result(future).members
        except TierstateError as error:
            problems.append(GroupProblem(name, f"the members of group {name} are unknown: {error}"))
            continue
        for member in members:
            # What a member will be given counts as what it has.
            lists = [one.topic_partitions for one in (member.assignment, member.target_assignment) if one is not None]
            found += [(part.topic, name, part.partition) for parts in lists for part in parts]
    return found


def _committed(
    admin: AdminClient,
    names: list[str],
    timeout: float,
    problems: list[GroupProblem],
    of_topics: dict[str, list[GroupProblem]],
) -> list[tuple[str, str, int, Offset]]:
    """Topic, group, partition, next offset. ``of_topics``: topic to what could not be learned of it alone."""
    asked = {
        name: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=timeout)[name]
        for name in names
    }
    found = []
    for name, future in asked.items():
        try:
            parts = _result(future).topic_partitions or ()
        except TierstateError as error:
            problems.append(GroupProblem(name, f"the offsets of group {name} are unknown: {error}"))
            continue
        for part in parts:
            if part.topic in of_topics and part.error is not None:
                why = f"the offset of group {name} on {part.topic}-{part.partition} is unknown"
                of_topics[part.topic].append(GroupProblem(name, why))
            elif part.offset >= 0:
                found.append((part.topic, name, part.partition, Offset(part.offset)))
    return found


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise error_of_exception(error) from error

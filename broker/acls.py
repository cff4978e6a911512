"""The rights that an agent needs in Kafka, and whether it has them. docs/operations.md shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka.admin import AclOperation, ResourceType
from kafka.protocol.admin import DescribeClusterRequest, DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

from ..runtime.watchdog import go_round
from ..state.errors import AccessDenied, TierstateError, UnknownTopic
from .answers import RawTopic
from .error_codes import error_of
from .kafka_access import KafkaAccess
from .raw import RawClient

WILDCARD = "*"


class Resource(StrEnum):
    """The resource that a right applies to."""

    TIER_STATE = "the tier-state topic"
    TOPICS = "its topics"
    EVERY_TOPIC = "every topic, `*`"
    CLUSTER = "the cluster"
    EVERY_GROUP = "every group, `*`"
    AGENTS = "the agents' consumer group"

    def pattern(self, tier_state: str, topic: str) -> tuple[ResourceType, str]:
        """Return Kafka's type and name of this resource."""
        return {
            Resource.TIER_STATE: (ResourceType.TOPIC, tier_state),
            Resource.TOPICS: (ResourceType.TOPIC, topic),
            Resource.EVERY_TOPIC: (ResourceType.TOPIC, WILDCARD),
            Resource.CLUSTER: (ResourceType.BROKER, "kafka-cluster"),
            Resource.EVERY_GROUP: (ResourceType.GROUP, WILDCARD),
            Resource.AGENTS: (ResourceType.GROUP, group_of(tier_state)),
        }[self]


def group_of(tier_state: str) -> str:
    """Return the name of the consumer group by which agents share partitions (`tail/ownership.py`)."""
    return f"{tier_state}-agents"


@dataclass(frozen=True, slots=True)
class Right:
    """A right on a resource. ``why``: the purpose of the right."""

    resource: Resource
    operation: AclOperation
    why: str

    @property
    def typed(self) -> str:
        """The operation as `kafka-acls.sh` expects it: ``DescribeConfigs``, not ``DESCRIBE_CONFIGS``."""
        return str(self.operation.name).title().replace("_", "")


def rights_on(resource: Resource, **why: str) -> tuple[Right, ...]:
    return tuple(Right(resource, AclOperation[name.upper()], text) for name, text in why.items())


AGENT = (
    *rights_on(
        Resource.TIER_STATE,
        read="facts are read",
        write="facts are written",
        describe="its end and its leaders are asked for",
        describe_configs="nothing is deleted while it is not safe",
    ),
    *rights_on(
        Resource.TOPICS,
        describe="bounds and leaders are asked for",
        describe_configs="retention is obeyed",
        delete="the local tier is trimmed (DeleteRecords)",
    ),
    *rights_on(Resource.EVERY_TOPIC, describe="it distinguishes a deleted topic from a hidden one"),
    *rights_on(Resource.CLUSTER, describe="all consumer groups are listed"),
    *rights_on(Resource.EVERY_GROUP, describe="what a group has read is asked for before every trim"),
)

ADDED_BY = "; an administrator adds it: "
"""The text between the purpose of a right and the command that adds the right for the agent's user."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A right that the credentials lack, with Kafka's type and name of its resource."""

    right: Right
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.right.operation.name} on {self.name}: {self.right.why}"

    def concerns(self, topic: str) -> bool:
        """Return whether the topic cannot be tiered correctly without this right."""
        return self.right.resource is not Resource.TOPICS or self.name == topic

    def told(self, kafka: Mapping[str, str]) -> str:
        """Return a text with the right, its purpose, and the command that adds it."""
        return f"{self}{ADDED_BY}{self.command(kafka)}"

    def command(self, kafka: Mapping[str, str]) -> str:
        """Return the command that adds this right."""
        flag = {ResourceType.TOPIC: f"--topic '{self.name}'", ResourceType.GROUP: f"--group '{self.name}'"}
        who = kafka.get("sasl.username") or "AGENT"
        secured = kafka.get("security.protocol", "plaintext").lower() != "plaintext"
        as_admin = " --command-config ADMIN.properties" if secured else ""
        return (
            f"kafka-acls.sh --bootstrap-server {kafka.get('bootstrap.servers', 'HOST:PORT')}{as_admin} --add "
            "--allow-principal "
            f"User:{who} --operation {self.right.typed} {flag.get(self.kind, '--cluster')}"
        )


TO_TRIM = tuple(
    right
    for right in AGENT
    if right.resource in (Resource.CLUSTER, Resource.EVERY_GROUP) or right.operation is AclOperation.DELETE
)
"""The rights that an agent needs only to trim. An archive (``trim.enabled = false``) does not need them."""
TO_FETCH = (
    *rights_on(Resource.TOPICS, read="records are copied by Fetch"),
    *rights_on(Resource.AGENTS, read="agents share partitions by this group"),
)
"""What an agent with ``agent.source = "fetch"`` needs in addition."""

TO_BACK_UP = (
    *rights_on(
        Resource.EVERY_TOPIC, describe="topics are backed up", describe_configs="settings of topics are backed up"
    ),
    *rights_on(Resource.CLUSTER, describe="access lists are backed up", describe_configs="quotas are backed up"),
    *rights_on(Resource.EVERY_GROUP, describe="committed offsets are backed up"),
)
"""What a backup of the cluster needs to be complete (`app/operating/cluster_backup.py`). An agent works without it."""


def rights_of_agent(*, trims: bool, fetches: bool) -> tuple[Right, ...]:
    """Return the rights that an agent needs. ``fetches``: it copies by Fetch."""
    rights = AGENT if trims else tuple(each for each in AGENT if each not in TO_TRIM)
    return rights + TO_FETCH if fetches else rights


def lacking(
    raw: RawClient, tier_state: str, topics: Collection[str], rights: Collection[Right] = AGENT
) -> list[Lacking]:
    """Return which of these ``rights`` an agent of the ``topics`` lacks according to the brokers.

    The list is empty if the cluster has no authorizer. Raises BrokerUnavailable and its subclasses.
    """
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True, min_version=0, max_version=0)
    # a name that no topic has represents all topics: brokers answer "unknown" only if DESCRIBE is allowed
    answers = raw.metadata([NOBODYS, tier_state, *topics], operations=True).topics
    may: dict[tuple[ResourceType, str], Collection[int] | None]
    may = {(ResourceType.TOPIC, name): _allowed(topic) for name, topic in answers.items()}
    may[ResourceType.TOPIC, WILDCARD] = may[ResourceType.TOPIC, NOBODYS]
    may[ResourceType.BROKER, "kafka-cluster"] = raw.on_any(
        lambda broker: raw.ask(broker, cluster)
    ).authorized_operations
    may[ResourceType.GROUP, WILDCARD] = EVERY_OPERATION if _may_describe_groups(raw) else ()
    if any(right.resource is Resource.AGENTS for right in rights):
        agents = group_of(tier_state)
        may[ResourceType.GROUP, agents] = (AclOperation.READ.value,) if _may_join(raw, agents) else ()
    missing = []
    for right in rights:
        for topic in topics if right.resource is Resource.TOPICS else ("",):
            kind, name = right.resource.pattern(tier_state, topic)
            if right.operation.value not in (may[kind, name] or ()):
                missing.append(Lacking(right, kind, name))
    return missing


NOBODYS = "tierstate-asks-what-it-may"
EVERY_OPERATION = tuple(each.value for each in AclOperation)


def _may_describe_groups(raw: RawClient) -> bool:
    """Return whether DESCRIBE is allowed on a group that does not exist: brokers check the right before the group."""
    request = DescribeGroupsRequest(groups=[NOBODYS], min_version=3, max_version=5)
    (group,) = raw.on_any(lambda broker: raw.ask(broker, request)).groups
    return not isinstance(error_of(group.error_code), AccessDenied)


def _may_join(raw: RawClient, group: str) -> bool:
    """Return whether READ is allowed on a group: any broker checks it before it looks for a heartbeat's member."""
    request = HeartbeatRequest(group_id=group, generation_id=-1, member_id="", min_version=3, max_version=3)
    return not isinstance(error_of(raw.on_any(lambda broker: raw.ask(broker, request)).error_code), AccessDenied)


def _allowed(topic: RawTopic) -> Collection[int]:
    """Return Kafka's codes of the operations that are allowed on a topic: none, if not even DESCRIBE is allowed."""
    if isinstance(topic.error, AccessDenied):
        return ()
    if isinstance(topic.error, UnknownTopic):  # brokers look for a topic after they checked the right
        return EVERY_OPERATION  # visible but absent: brokers report its other rights only once it exists
    if topic.error is not None and not topic.operations:
        raise topic.error
    return topic.operations


LOOK_S = 30.0
AGAIN_S = 5.0
"""Seconds between checks while a right is missing or a login is refused."""


class RightsWatch:
    """``ask`` returns the missing rights (`acls.lacking`). ``raw`` logs in. Reading the results never blocks.

    ``returned`` is called when the last missing right is granted, and when refused logins are accepted again."""

    def __init__(self, ask: Callable[[], Sequence[Lacking]], kafka: KafkaAccess, raw: RawClient) -> None:
        self._ask, self._kafka, self._raw = ask, kafka, raw
        self.lacking: tuple[Lacking, ...] = ()
        self._refusals = 0
        self.returned: Callable[[], None] = lambda: None

    def told(self, topic: str | None = None) -> list[str]:
        """Return one sentence for each missing right. ``topic``: leave out the rights on other topics."""
        return [each.told(self._kafka) for each in self.lacking if topic is None or each.concerns(topic)]

    @property
    def refused(self) -> list[str]:
        """Return one sentence for each broker that refuses the login."""
        return self._kafka.logins.troubles()

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly until ``stop`` is set."""
        go_round("rights watch", stop, self.look, lambda: AGAIN_S if self.lacking or self.refused else LOOK_S)

    def look(self) -> None:
        """Check once. If no broker answers, the last known rights are kept."""
        self._raw.log_in(everywhere=True)
        if self.refused:
            return  # no broker would answer
        if self._kafka.logins.count != self._refusals:
            self._refusals = self._kafka.logins.count
            self.returned()
        try:
            missing = self._ask()
        except TierstateError:
            return
        before, self.lacking = self.lacking, tuple(missing)
        if before and not self.lacking:
            self.returned()

"""The rights that each role needs in Kafka. docs/operations.md shows them; a test runs each command with only these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, ResourceType
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

from ..state.errors import AccessDenied
from .error_codes import denied, error_of, error_of_exception
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


def _rights(resource: Resource, **why: str) -> tuple[Right, ...]:
    return tuple(Right(resource, AclOperation[name.upper()], text) for name, text in why.items())


READER = (
    *_rights(
        Resource.TIER_STATE,
        read="facts are read",
        describe="its end and its leaders are asked for",
        describe_configs="a topic that is not safe is refused",
    ),
    *_rights(
        Resource.TOPICS,
        read="what is not yet in the bucket is read from the broker",
        describe="bounds and leaders are asked for",
        describe_configs="`describe` says why a topic is not tiered",
    ),
)
"""For the gateway, commands that only read, `read_records` and Spark. They join no group and commit nothing."""

OPERATOR = (*READER, *_rights(Resource.TIER_STATE, write="what people say is a fact"))
"""For commands that give orders, settle, release or recover."""

INIT = (*OPERATOR, *_rights(Resource.TIER_STATE, create="`tierstate init` makes it"))

AGENT = (
    *_rights(
        Resource.TIER_STATE,
        read="facts are read",
        write="facts are written",
        describe="its end and its leaders are asked for",
        describe_configs="nothing is deleted while it is not safe",
    ),
    *_rights(
        Resource.TOPICS,
        describe="bounds and leaders are asked for",
        describe_configs="retention is obeyed",
        delete="the local tier is trimmed (DeleteRecords)",
    ),
    *_rights(Resource.EVERY_TOPIC, describe="it distinguishes a deleted topic from a hidden one"),
    *_rights(Resource.CLUSTER, describe="all consumer groups are listed"),
    *_rights(Resource.EVERY_GROUP, describe="what a group has read is asked for before every trim"),
)
AGENT_MAY = _rights(Resource.TOPICS, read="an open transaction is named")
"""Rights that are optional for an agent."""

ROLES = {
    "agent": AGENT,
    "gateway, commands that look, `read_records`, Spark": READER,
    "in addition: [orders](#orders), `settle`, `accept-gap`, `release`, `undelete`, `leases --end`, `recover`": tuple(
        right for right in OPERATOR if right not in READER
    ),
    "in addition: `tierstate init`": tuple(right for right in INIT if right not in OPERATOR),
}
"""The rows of the table. A role "in addition" has only the rights that it adds to those of the role above."""


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
    *_rights(Resource.TOPICS, read="records are copied by Fetch"),
    *_rights(Resource.AGENTS, read="agents share partitions by this group"),
)
"""What an agent with ``agent.source = "fetch"`` needs in addition."""


def rights_of_agent(*, trims: bool, fetches: bool) -> tuple[Right, ...]:
    """Return the rights that an agent needs. ``fetches``: it copies by Fetch."""
    rights = AGENT if trims else tuple(each for each in AGENT if each not in TO_TRIM)
    return rights + TO_FETCH if fetches else rights


def lacking(
    admin: Any, raw: RawClient, tier_state: str, topics: Collection[str], rights: Collection[Right] = AGENT
) -> list[Lacking]:
    """Return which of these ``rights`` an agent of the ``topics`` lacks according to the brokers.

    The list is empty if the cluster has no authorizer. Raises BrokerUnavailable and its subclasses.
    """
    may = {
        (ResourceType.BROKER, "kafka-cluster"): _asked(admin.describe_cluster(**_ASKING)),
        (ResourceType.GROUP, WILDCARD): tuple(AclOperation) if _may_describe_groups(raw) else (),
        # a name that no topic has represents all topics: brokers answer "unknown" only if DESCRIBE is allowed
        (ResourceType.TOPIC, WILDCARD): _asked(admin.describe_topics(TopicCollection([NOBODYS]), **_ASKING)[NOBODYS]),
    }
    for name, future in admin.describe_topics(TopicCollection([tier_state, *topics]), **_ASKING).items():
        may[ResourceType.TOPIC, name] = _asked(future)
    if any(right.resource is Resource.AGENTS for right in rights):
        agents = group_of(tier_state)
        may[ResourceType.GROUP, agents] = (AclOperation.READ,) if _may_join(raw, agents) else ()
    missing = []
    for right in rights:
        for topic in topics if right.resource is Resource.TOPICS else ("",):
            kind, name = right.resource.pattern(tier_state, topic)
            if right.operation not in may[kind, name]:
                missing.append(Lacking(right, kind, name))
    return missing


NOBODYS = "tierstate-asks-what-it-may"
_ASKING = {"include_authorized_operations": True, "request_timeout": 10}


def _may_describe_groups(raw: RawClient) -> bool:
    """Return whether DESCRIBE is allowed on a group that does not exist: brokers check the right before the group."""
    request = DescribeGroupsRequest(groups=[NOBODYS], min_version=3, max_version=5)
    (group,) = raw.ask(min(raw.metadata().brokers), request).groups
    return not isinstance(error_of(group.error_code), AccessDenied)


def _may_join(raw: RawClient, group: str) -> bool:
    """Return whether READ is allowed on a group: any broker checks it before it looks for a heartbeat's member."""
    request = HeartbeatRequest(group_id=group, generation_id=-1, member_id="", min_version=3, max_version=3)
    return not isinstance(error_of(raw.ask(min(raw.metadata().brokers), request).error_code), AccessDenied)


def _asked(future: Future[Any]) -> Collection[AclOperation]:
    """Return the authorized operations on a resource. The result is empty if not even DESCRIBE is allowed."""
    try:
        return future.result(timeout=15).authorized_operations or ()  # None: no operation at all (seen, 2.16)
    except KafkaException as error:
        code = error.args[0].code()
        if denied(error):
            return ()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:  # brokers look for a topic after they checked the right
            return tuple(AclOperation)  # visible but absent: brokers report its other rights only once it exists
        raise error_of_exception(error) from error


def table() -> str:
    """Return the Markdown table of docs/operations.md."""
    rows = ["| who | on | needs | for |", "|---|---|---|---|"]
    for who, rights in ROLES.items():
        for resource in Resource:
            matching = [right for right in rights if right.resource is resource]
            if matching:
                names = ", ".join(right.operation.name for right in matching)
                rows.append(f"| {who} | {resource.value} | {names} | {'; '.join(right.why for right in matching)} |")
    return "\n".join(rows)

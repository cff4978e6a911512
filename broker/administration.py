"""Reads topics, offsets, ACLs and quotas of a cluster for a backup, and sets them in another one for a restore.

librdkafka is not used, for the reason that `groups.py` gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
)
from kafka.protocol.consumer import OffsetCommitRequest

from ..runtime.clock import Clock, repeated
from ..state.errors import BrokerUnavailable, InvalidRequest, TierstateError, TimedOut
from ..state.ids import BrokerId
from ..state.offsets import Offset
from .answers import Place
from .coordinators import Coordinators
from .error_codes import check, error_of
from .fenced_producer import AGAIN_S, GROUP, PATIENCE_S, coordinator
from .groups import COMMITTING_KINDS, GroupPosition, committed_offsets, list_groups
from .raw import TOPIC_RESOURCE, RawClient

_OF_TOPIC = 1
"""Kafka's number for a setting of the topic itself, neither a default nor a setting of the broker."""
_ANY, _MATCH_ANY = 1, 1
_SECURITY_DISABLED, _NOT_CONTROLLER, _TOPIC_EXISTS, _UNKNOWN_MEMBER, _ILLEGAL_GENERATION = 54, 41, 36, 25, 22
_UNKNOWN_TOPIC = 3
_CREATE_S = 30.0
_REFUSED = {37: "partitions", 38: "the replication factor", 40: "a setting", 44: "the topic: a policy forbids it"}


@dataclass(frozen=True, slots=True)
class NewTopicSpec:
    """A topic to create. ``config``: settings by Kafka's names."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


def topic_settings(raw: RawClient, topics: Collection[str]) -> dict[str, dict[str, str] | TierstateError]:
    """Return the settings that each topic has of its own, without secrets, or the error of the topic."""
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        kind(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in sorted(topics)
    ]
    request = DescribeConfigsRequest(resources=resources, min_version=1, max_version=4)
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    return {
        each.resource_name: error_of(each.error_code, topic=each.resource_name, needs="DESCRIBE_CONFIGS")
        or {
            one.name: one.value
            for one in each.configs
            if one.config_source == _OF_TOPIC and not one.is_sensitive and one.value is not None
        }
        for each in answer.results
    }


def create_topic(raw: RawClient, topic: NewTopicSpec) -> None:
    """Create a topic. Does nothing if a topic of this name exists. Raises InvalidRequest if Kafka refuses it."""
    kind = CreateTopicsRequest.CreatableTopic
    configs = [kind.CreatableTopicConfig(name=name, value=value) for name, value in sorted(topic.config.items())]
    new = kind(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=configs,
    )
    request = CreateTopicsRequest(topics=[new], timeout_ms=int(_CREATE_S * 1000), min_version=2, max_version=7)

    def ask(broker: BrokerId) -> Any:
        result = raw.ask(broker, request).topics[0]
        if result.error_code == _NOT_CONTROLLER:
            raise BrokerUnavailable("this broker is not the controller", broker=broker)
        return result

    result = raw.on_any(ask)
    if result.error_code in _REFUSED:
        raise InvalidRequest(
            f"Kafka refuses {_REFUSED[result.error_code]}", topic=topic.name, reason=result.error_message
        )
    if result.error_code != _TOPIC_EXISTS:
        check(result.error_code, topic=topic.name)


def delete_topic(raw: RawClient, name: str) -> None:
    """Delete a topic. Does nothing if it does not exist. Raises AccessDenied and BrokerUnavailable."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(_CREATE_S * 1000), min_version=1, max_version=5)

    def ask(broker: BrokerId) -> int:
        code = int(raw.ask(broker, request).responses[0].error_code)
        if code == _NOT_CONTROLLER:
            raise BrokerUnavailable("this broker is not the controller", broker=broker)
        return code

    code = raw.on_any(ask)
    if code != _UNKNOWN_TOPIC:
        check(code, topic=name, needs="DELETE")


def all_committed(raw: RawClient) -> tuple[dict[str, dict[Place, Offset]], list[str]]:
    """Return the committed offsets of all groups that these credentials may see, and what could not be read."""
    offsets: dict[str, dict[Place, Offset]] = {}
    problems: list[str] = []
    coordinators = Coordinators(raw)
    for broker in coordinators.brokers:
        ask = partial(raw.ask, broker)
        try:
            with coordinators.listing(ask):
                kinds = list_groups(ask)
                names = sorted(name for kind in COMMITTING_KINDS for name in kinds.get(kind, ()))
                positions = list(committed_offsets(ask, names))
        except TierstateError as error:
            problems.append(f"broker {broker} did not list its groups: {error}")
            continue
        for topic, each in positions:
            if not isinstance(each, GroupPosition):
                problems.append(each.why)
            elif each.committed is not None:
                offsets.setdefault(each.group, {})[str(topic), each.partition] = each.committed
    if (why := coordinators.why_incomplete()) is not None:
        problems.append(why)
    return offsets, problems


def commit(raw: RawClient, clock: Clock, group: str, offsets: Mapping[Place, Offset]) -> None:
    """Set the committed offsets of a group without members. Raises InvalidRequest if the group has members.

    A new cluster creates its topic of offsets at the first request, and has no coordinator until then.
    """
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        row = kind.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        topics.setdefault(topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[kind(name=name, partitions=rows) for name, rows in topics.items()],
        min_version=2,
        max_version=9,
    )

    def ask() -> None:
        answer = raw.ask(coordinator(raw, GROUP, group), request)
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code in (_UNKNOWN_MEMBER, _ILLEGAL_GENERATION):
                    raise InvalidRequest("the group has members: stop its consumers first", group_id=group)
                check(row.error_code, group_id=group, topic=topic.name, partition=row.partition_index)

    repeated(clock, ask, (BrokerUnavailable, TimedOut), PATIENCE_S, AGAIN_S)


def acls(raw: RawClient) -> list[dict[str, Any]] | None:
    """Return all access lists, with Kafka's numbers for kinds; None if the cluster has no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_MATCH_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
        min_version=1,
        max_version=3,
    )
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    if answer.error_code == _SECURITY_DISABLED:
        return None
    check(answer.error_code, needs="DESCRIBE on the cluster")
    rows = [
        {
            "resource_type": resource.resource_type,
            "name": resource.resource_name,
            "pattern_type": resource.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission": acl.permission_type,
        }
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def quotas(raw: RawClient) -> list[dict[str, Any]]:
    """Return the quotas of clients, users and addresses: each entity, and its values by name."""
    request = DescribeClientQuotasRequest(components=[], strict=False, min_version=0, max_version=1)
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    check(answer.error_code, needs="DESCRIBE_CONFIGS on the cluster")
    rows = [
        {
            "entity": {each.entity_type: each.entity_name for each in entry.entity},
            "values": {each.key: each.value for each in entry.values},
        }
        for entry in answer.entries or ()
    ]
    return sorted(rows, key=lambda row: sorted((kind, str(name)) for kind, name in row["entity"].items()))


def create_acls(raw: RawClient, rows: Collection[Mapping[str, Any]]) -> None:
    """Add access lists, in the form of `acls`. Those that exist stay. Raises AccessDenied, InvalidRequest."""
    kind = CreateAclsRequest.AclCreation
    creations = [
        kind(
            resource_type=row["resource_type"],
            resource_name=row["name"],
            resource_pattern_type=row["pattern_type"],
            principal=row["principal"],
            host=row["host"],
            operation=row["operation"],
            permission_type=row["permission"],
        )
        for row in rows
    ]
    request = CreateAclsRequest(creations=creations, min_version=1, max_version=3)
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    for row, result in zip(rows, answer.results, strict=True):
        check(result.error_code, needs="ALTER on the cluster", principal=row["principal"], resource=row["name"])


def set_quotas(raw: RawClient, rows: Collection[Mapping[str, Any]]) -> None:
    """Set quotas, in the form of `quotas`. Other values of an entity stay. Raises AccessDenied, InvalidRequest."""
    kind = AlterClientQuotasRequest.EntryData
    entries = [
        kind(
            entity=[kind.EntityData(entity_type=one, entity_name=name) for one, name in row["entity"].items()],
            ops=[kind.OpData(key=key, value=value, remove=False) for key, value in row["values"].items()],
        )
        for row in rows
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=False, min_version=0, max_version=1)
    answer = raw.on_any(lambda broker: raw.ask(broker, request))
    for row, result in zip(rows, answer.entries, strict=True):
        check(result.error_code, needs="ALTER_CONFIGS on the cluster", entity=row["entity"])

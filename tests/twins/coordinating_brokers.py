"""A `RawClient` of brokers that coordinate groups without members: Metadata, ListGroups, OffsetFetch, descriptions.

As Kafka does since 4.0, a coordinator that has just moved is active at once, but shows its groups only when followers
have confirmed what it read. OffsetFetch with ``require_stable`` waits for that, and fails in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from tierstate.broker.answers import RawMetadata, metadata_of
from tierstate.broker.coordinators import OFFSETS_TOPIC
from tierstate.state.errors import BrokerUnavailable

UNKNOWN_TOPIC, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, TOPIC_REFUSED = 3, 15, 16, 29
DESCRIBE_ALLOWED = {8}


@dataclass(slots=True)
class TwinCoordinator:
    """The coordinator of one partition of the offsets topic. ``kind``: of its only group."""

    broker: int
    group: str
    kind: str = "Classic"
    epoch: int = 7
    confirmed: bool = True


class CoordinatingBrokers:
    """``coordinators``: by partition. ``topic_errors``: codes by broker. ``before_list``: called before a listing."""

    def __init__(self, *coordinators: TwinCoordinator, brokers: Sequence[int] = (1, 2)) -> None:
        self.coordinators, self._brokers = coordinators, brokers
        self.topic_errors: dict[int, int] = {}
        self.before_list: Callable[[int], None] = lambda broker: None
        self.requests: list[str] = []

    def metadata(self, topics: object = ()) -> RawMetadata:
        return metadata_of(self._metadata(self._brokers[0] if self._brokers else 0))

    def on_any(self, call: object) -> Any:
        raise BrokerUnavailable("no broker creates the topic")

    def ask(self, broker: int, request: Any) -> Any:
        self.requests.append(type(request).__name__)
        if isinstance(request, MetadataRequest):
            return self._metadata(broker)
        groups: list[Any] = []
        if isinstance(request, ListGroupsRequest):
            self.before_list(broker)
            own = [each for each in self.coordinators if each.broker == broker and each.confirmed]
            groups = [SimpleNamespace(group_id=each.group, group_type=each.kind) for each in own]
        elif isinstance(request, OffsetFetchRequest):
            groups = [
                SimpleNamespace(group_id=each.group_id, error_code=code, topics=[])
                for each in request.groups
                for code in [self._code(broker, each.group_id, request.require_stable)]
            ]
        return SimpleNamespace(error_code=0, groups=groups, authorized_operations=DESCRIBE_ALLOWED)

    def _code(self, broker: int, group: str, require_stable: bool) -> int:
        coordinator = self.coordinators[ord(group[0]) % len(self.coordinators)] if self.coordinators else None
        if coordinator is None or coordinator.broker != broker:
            return NOT_COORDINATOR
        return 0 if coordinator.confirmed or not require_stable else COORDINATOR_NOT_AVAILABLE

    def _metadata(self, broker: int) -> Any:
        code = self.topic_errors.get(broker, 0)
        partitions = [
            SimpleNamespace(
                partition_index=number,
                leader_id=each.broker,
                leader_epoch=each.epoch,
                replica_nodes=self._brokers,
                isr_nodes=self._brokers,
            )
            for number, each in enumerate(self.coordinators)
        ]
        topic = SimpleNamespace(
            name=OFFSETS_TOPIC,
            topic_id=UUID(int=5),
            is_internal=True,
            error_code=code,
            partitions=[] if code else partitions,
            authorized_operations=(),
        )
        brokers = [SimpleNamespace(node_id=each, host="broker", port=each) for each in self._brokers]
        return SimpleNamespace(cluster_id="twin", brokers=brokers, topics=[topic])

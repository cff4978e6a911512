"""The answers about the log that the node of `replica.py` gives, as kafka-python's messages.

request                 answer
Fetch                   no records; below the end of the remote tier OFFSET_OUT_OF_RANGE, and the relay adds them
ListOffsets             the end, or no record for a time; the relay adds earlier offsets
OffsetForLeaderEpoch    the newest epoch, which ends at the end; the relay adds earlier epochs
Metadata                one node, and the topics that the user may read
DescribeCluster         one node
DescribeConfigs         no settings: the bucket has none

Versions that name topics by their ids are not offered, because old topics have their ids as names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.protocol import admin, consumer, metadata

from ..fetch.piece import LogicalBounds
from ..fetch.reader import LogReader
from ..state.errors import AccessDenied, TierstateError, UnknownTopic
from . import codes
from .apis import Key
from .group_offsets import GroupOffsets
from .older_offsets import BROKERS_OWN, EARLIEST, NO_EPOCH
from .principals import Principals

NODE, HOST, PORT = 0, "the-bucket", 1
"""The node and its own address. Every answer with the address passes a relay, which replaces it."""
UNKNOWN_TOPIC, TOPIC_DENIED = 3, 29
_TOPIC_CONFIG = 2
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bucket:
    """The log as every session sees it. ``rights`` None: all users may read all topics. ``offsets``: of groups.
    ``warn`` gets all errors that are not the client's."""

    reader: LogReader
    cluster_id: str
    offsets: GroupOffsets
    rights: Principals | None
    warn: Callable[..., object]

    def may_read(self, user: str, topic: str) -> bool:
        return self.rights is None or self.rights.may_read(user, topic)

    def require(self, user: str, topic: str) -> None:
        if not self.may_read(user, topic):
            raise AccessDenied("no right to read this topic", topic=topic, user=user)

    def epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of the newest term."""
        leader = self.reader.view(topic, partition).leader
        return NO_EPOCH if leader is None else leader.epoch

    def code_of(self, error: TierstateError) -> int:
        """Return the code for an entry. Errors that are not the client's are logged."""
        if isinstance(error, AccessDenied) and "user" in error.facts:
            return TOPIC_DENIED
        if isinstance(error, UnknownTopic):
            return UNKNOWN_TOPIC
        self.warn("a partition cannot be read", reason=str(error))
        return codes.code_of(error)

    def entry(self, user: str, topic: str, partition: int, fields: Callable[[LogicalBounds], Fields]) -> Fields:
        """Return the fields for a partition with these bounds, or its error code."""
        try:
            self.require(user, topic)
            return {"error_code": codes.NONE, **fields(self.reader.bounds(topic, partition))}
        except TierstateError as error:
            return {"error_code": self.code_of(error)}


def fetch(bucket: Bucket, user: str, request: Any) -> Any:
    topic_kind = consumer.FetchResponse.FetchableTopicResponse

    def partition(topic: str, wanted: Any) -> Any:
        def fields(bounds: LogicalBounds) -> Fields:
            end = bounds.high_watermark
            code = codes.NONE if wanted.fetch_offset == end else codes.OFFSET_OUT_OF_RANGE
            return {"error_code": code, "high_watermark": end, "last_stable_offset": end, "log_start_offset": end}

        entry = bucket.entry(user, topic, wanted.partition, fields)
        empty = {"aborted_transactions": [], "preferred_read_replica": -1, "records": b""}
        return topic_kind.PartitionData(partition_index=wanted.partition, **entry, **empty)

    return consumer.FetchResponse(responses=entries_of(request, topic_kind, "topic", partition))


def list_offsets(bucket: Bucket, user: str, request: Any) -> Any:
    topic_kind = consumer.ListOffsetsResponse.ListOffsetsTopicResponse

    def partition(topic: str, wanted: Any) -> Any:
        def fields(bounds: LogicalBounds) -> Fields:
            if wanted.timestamp not in (*BROKERS_OWN, EARLIEST):
                return {}
            return {"offset": bounds.high_watermark, "leader_epoch": bucket.epoch(topic, wanted.partition_index)}

        entry = bucket.entry(user, topic, wanted.partition_index, fields)
        return topic_kind.ListOffsetsPartitionResponse(partition_index=wanted.partition_index, **entry)

    return consumer.ListOffsetsResponse(topics=entries_of(request, topic_kind, "name", partition))


def epochs(bucket: Bucket, user: str, request: Any) -> Any:
    topic_kind = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

    def partition(topic: str, wanted: Any) -> Any:
        def fields(bounds: LogicalBounds) -> Fields:
            entries = bucket.reader.view(topic, wanted.partition).lineage.entries
            below = [each.epoch for each in entries if each.epoch <= wanted.leader_epoch]
            if not below or wanted.leader_epoch > bucket.epoch(topic, wanted.partition):
                return {}
            return {"leader_epoch": below[-1], "end_offset": bounds.high_watermark}

        entry = bucket.entry(user, topic, wanted.partition, fields)
        return topic_kind.EpochEndOffset(partition=wanted.partition, **entry)

    return consumer.OffsetForLeaderEpochResponse(topics=entries_of(request, topic_kind, "topic", partition))


def entries_of(request: Any, kind: Any, name: str, partition: Callable[[str, Any], Any]) -> list[Any]:
    """Return the entries of an answer, one for each partition of the request. ``name``: the field with the topic."""
    entries = []
    for topic in request.topics:
        text = getattr(topic, name)
        entries.append(kind(partitions=[partition(text, each) for each in topic.partitions], **{name: text}))
    return entries


def topics(bucket: Bucket, user: str, request: Any) -> Any:
    answer = metadata.MetadataResponse
    names = [each.name for each in request.topics or ()]
    if request.topics is None or (request.API_VERSION == 0 and not names):
        names = [name for name in bucket.reader.topics() if bucket.may_read(user, name)]
    return answer(
        brokers=[answer.MetadataResponseBroker(node_id=NODE, host=HOST, port=PORT, rack=None)],
        cluster_id=bucket.cluster_id,
        controller_id=NODE,
        topics=[_topic(bucket, user, name) for name in names],
    )


def _topic(bucket: Bucket, user: str, name: str) -> Any:
    kind, node = metadata.MetadataResponse.MetadataResponseTopic, [NODE]
    partitions: list[Any] = []
    code = codes.NONE
    try:
        bucket.require(user, name)
        for number in range(bucket.reader.topic(name).partitions):
            fields = {"leader_id": NODE, "replica_nodes": node, "isr_nodes": node, "offline_replicas": []}
            fields |= {"partition_index": number, "leader_epoch": bucket.epoch(name, number)}
            partitions.append(kind.MetadataResponsePartition(error_code=codes.NONE, **fields))
    except TierstateError as error:
        code, partitions = bucket.code_of(error), []
    return kind(error_code=code, name=name, is_internal=False, partitions=partitions)


def configs(bucket: Bucket, user: str, request: Any) -> Any:
    answer = admin.DescribeConfigsResponse

    def result(resource: Any) -> Any:
        kind, name, code = resource.resource_type, resource.resource_name, codes.NONE
        if kind == _TOPIC_CONFIG:
            code = _topic(bucket, user, name).error_code
        return answer.DescribeConfigsResult(
            error_code=code, error_message=None, resource_type=kind, resource_name=name, configs=[]
        )

    return answer(results=[result(each) for each in request.resources])


def cluster(bucket: Bucket, user: str, request: Any) -> Any:
    answer = admin.DescribeClusterResponse
    node = answer.DescribeClusterBroker(broker_id=NODE, host=HOST, port=PORT, rack=None, is_fenced=False)
    kind = {"endpoint_type": request.endpoint_type, "cluster_id": bucket.cluster_id, "controller_id": NODE}
    return answer(error_code=codes.NONE, error_message=None, brokers=[node], **kind)


class Offer(NamedTuple):
    """A request that the node answers, up to version ``newest``, and the function that answers it."""

    request: Any
    newest: int
    answer: Callable[[Bucket, str, Any], Any]


OFFERS: dict[int, Offer] = {
    Key.FETCH: Offer(consumer.FetchRequest, 12, fetch),
    Key.LIST_OFFSETS: Offer(consumer.ListOffsetsRequest, 11, list_offsets),
    Key.METADATA: Offer(metadata.MetadataRequest, 9, topics),
    Key.OFFSET_FOR_LEADER_EPOCH: Offer(consumer.OffsetForLeaderEpochRequest, 4, epochs),
    32: Offer(admin.DescribeConfigsRequest, 4, configs),
    Key.DESCRIBE_CLUSTER: Offer(admin.DescribeClusterRequest, 2, cluster),
}

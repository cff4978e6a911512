"""The requests and versions that the proxy supports, and how it changes them: the source of a table in docs/proxy.md.

Other requests are not offered to clients: a new request may contain addresses or records that must not pass unchanged.
Numbers, names and versions are from the message definitions of Apache Kafka 4.3 (`clients/src/main/resources`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from ..broker.wire import Frame, length_of

PASSED = "passed as it is"


class Key(IntEnum):
    """The API keys whose requests or answers the proxy reads or changes."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DELETE_RECORDS = 21
    OFFSET_FOR_LEADER_EPOCH = 23
    SASL_AUTHENTICATE = 36
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79


@dataclass(frozen=True, slots=True)
class Api:
    """One request type. Versions ``oldest`` to ``newest`` are offered if the broker supports them.

    ``flexible``: the first flexible version (KIP-482), if any. ``changes``: a read-only proxy does not offer it.
    """

    key: int
    name: str
    newest: int
    flexible: int | None
    oldest: int = 0
    done: str = PASSED
    changes: bool = False

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


_ADDRESSES = "host and port of every broker become those of the proxy's listeners"
_TABLE = (
    Api(0, "Produce", 13, 9, 3, "the address of a new leader is hidden; acks=0 has no answer; read-only: 31"),
    Api(
        1,
        "Fetch",
        18,
        12,
        4,
        "session id 0 and epoch -1 in the request; records that the broker no longer has are added to the answer; "
        "the address of a new leader is hidden",
    ),
    Api(2, "ListOffsets", 11, 6, 1, "earliest, by time, max timestamp and last tiered are those of both tiers"),
    Api(3, "Metadata", 13, 9, 0, _ADDRESSES),
    Api(8, "OffsetCommit", 10, 8),
    Api(9, "OffsetFetch", 10, 6),
    Api(10, "FindCoordinator", 6, 3, 0, _ADDRESSES),
    Api(11, "JoinGroup", 9, 6),
    Api(12, "Heartbeat", 4, 4),
    Api(13, "LeaveGroup", 5, 4),
    Api(14, "SyncGroup", 5, 4),
    Api(15, "DescribeGroups", 6, 5),
    Api(16, "ListGroups", 5, 3),
    Api(17, "SaslHandshake", 1, None, 1, "0 is followed by frames without a header"),
    Api(18, "ApiVersions", 4, 3, 0, "only what this table has is offered"),
    Api(19, "CreateTopics", 7, 5, changes=True),
    Api(20, "DeleteTopics", 6, 4, changes=True),
    Api(21, "DeleteRecords", 2, 2, 0, "of a tiered topic: 44, and nothing is deleted", changes=True),
    Api(22, "InitProducerId", 6, 2, changes=True),
    Api(23, "OffsetForLeaderEpoch", 4, 4, 2, "epochs that the broker has forgotten are answered from the lineage"),
    Api(24, "AddPartitionsToTxn", 5, 3, changes=True),
    Api(25, "AddOffsetsToTxn", 4, 3, changes=True),
    Api(26, "EndTxn", 5, 3, changes=True),
    Api(28, "TxnOffsetCommit", 5, 3, changes=True),
    Api(29, "DescribeAcls", 3, 2),
    Api(30, "CreateAcls", 3, 2, changes=True),
    Api(31, "DeleteAcls", 3, 2, changes=True),
    Api(32, "DescribeConfigs", 4, 4),
    Api(33, "AlterConfigs", 2, 2, changes=True),
    Api(34, "AlterReplicaLogDirs", 2, 2, changes=True),
    Api(35, "DescribeLogDirs", 5, 2),
    Api(36, "SaslAuthenticate", 2, 2, done="passed; the user's name is read for the access log"),
    Api(37, "CreatePartitions", 3, 2, changes=True),
    Api(38, "CreateDelegationToken", 3, 2, changes=True),
    Api(39, "RenewDelegationToken", 2, 2, changes=True),
    Api(40, "ExpireDelegationToken", 2, 2, changes=True),
    Api(41, "DescribeDelegationToken", 3, 2),
    Api(42, "DeleteGroups", 2, 2, changes=True),
    Api(43, "ElectLeaders", 2, 2, changes=True),
    Api(44, "IncrementalAlterConfigs", 1, 1, changes=True),
    Api(45, "AlterPartitionReassignments", 1, 0, changes=True),
    Api(46, "ListPartitionReassignments", 0, 0),
    Api(47, "OffsetDelete", 0, None, changes=True),
    Api(48, "DescribeClientQuotas", 1, 1),
    Api(49, "AlterClientQuotas", 1, 1, changes=True),
    Api(50, "DescribeUserScramCredentials", 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, changes=True),
    Api(55, "DescribeQuorum", 1, 0, done="2 carries addresses of controllers"),
    Api(57, "UpdateFeatures", 2, 0, changes=True),
    Api(60, "DescribeCluster", 2, 0, 0, _ADDRESSES),
    Api(61, "DescribeProducers", 0, 0),
    Api(65, "DescribeTransactions", 0, 0),
    Api(66, "ListTransactions", 2, 0),
    Api(68, "ConsumerGroupHeartbeat", 1, 0),
    Api(69, "ConsumerGroupDescribe", 1, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0),
    Api(72, "PushTelemetry", 0, 0),
    Api(74, "ListConfigResources", 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 0, 1),
    Api(77, "ShareGroupDescribe", 1, 0, 1),
    Api(78, "ShareFetch", 2, 0, 1, f"max bytes of at most 8 MiB in the request; {_ADDRESSES}"),
    Api(79, "ShareAcknowledge", 2, 0, 1, _ADDRESSES),
    Api(88, "StreamsGroupHeartbeat", 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0),
    Api(90, "DescribeShareGroupOffsets", 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, changes=True),
    Api(92, "DeleteShareGroupOffsets", 0, 0, changes=True),
)
APIS = {api.key: api for api in _TABLE}
UNSUPPORTED_VERSION = 35
_RANGE = struct.Struct(">hhh")


def offered(body: bytes, version: int, *, read_only: bool) -> bytes:
    """Return the body of an ApiVersions answer, reduced to the supported versions. Raises Malformed.

    ``version`` is the request's version. A broker that does not support it answers in version 0, with an error.
    """
    frame = Frame(body)
    error = frame.int16()
    flexible = version >= 3 and error != UNSUPPORTED_VERSION
    begin = frame.at
    ranges = []
    for _ in range(frame.count(flexible, _RANGE.size)):
        at = frame.skip(_RANGE.size)
        key, oldest, newest = _RANGE.unpack_from(body, at)
        tags = frame.at
        frame.tags(flexible)
        api = APIS.get(key)
        if api is None or (read_only and api.changes):
            continue
        oldest, newest = max(oldest, api.oldest), min(newest, api.newest)
        if oldest <= newest:
            ranges.append(_RANGE.pack(key, oldest, newest) + body[tags : frame.at])
    return body[:begin] + length_of(len(ranges), flexible) + b"".join(ranges) + body[frame.at :]

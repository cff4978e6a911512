"""The answers to consumers' groups of a proxy that reads the bucket alone. Used by the proxy's event loop only.

A request that waits (JoinGroup, SyncGroup) looks at its group every `LOOK_S` seconds, and so do all others of the
group, so that nothing else has to watch for silent members. Transactions are not offered. `replica.py` refuses groups
of KIP-848.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from cachetools import LRUCache
from kafka.protocol import admin, consumer, metadata

from ..runtime.clock import Clock
from ..runtime.id_source import system_random
from ..runtime.pool import Pool
from ..state.errors import TierstateError
from ..state.ids import TopicId, TopicIdPartition
from .apis import Key
from .group import NONE, REBALANCE, UNKNOWN_MEMBER, Group, Member, Phase
from .group_offsets import Committed, GroupId
from .older_offsets import NO_EPOCH
from .replica_answers import HOST, NODE, PORT, Bucket, entries_of

LOOK_S = 0.05
MOST_GIVEN = 10_000
FIRST_OF_SEVERAL_KEYS, FIRST_OF_SEVERAL_MEMBERS, FIRST_OF_SEVERAL_GROUPS = 4, 3, 8
"""The first versions of FindCoordinator, LeaveGroup and OffsetFetch for several at once (KIP-699, 345, 709)."""
FIRST_WITH_MEMBER_ID = 4
"""The first version of JoinGroup in which a new member joins with an id that it was given (KIP-394)."""
MEMBER_ID_REQUIRED, TRANSACTIONS_DENIED, GROUP_KEY = 79, 53, 0
NOTHING = Committed(-1, NO_EPOCH, "")
DEAD, NO_SUCH_GROUP, FIRST_WITH_NO_SUCH_GROUP = "Dead", 69, 6
"""How DescribeGroups answers for a group without members and offsets: by a state, from version 6 on by an error."""
CLASSIC = "classic"
STATES = {
    Phase.EMPTY: "Empty",
    Phase.JOINING: "PreparingRebalance",
    Phase.SYNCING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}
"""The names of Kafka's protocol."""


class Call(NamedTuple):
    """A request of a user, in a version."""

    user: str
    version: int
    request: Any

    @property
    def group(self) -> GroupId:
        return self.user, self.request.group_id


class Groups:
    """All groups. ``metadata``: threads that use the file of offsets."""

    def __init__(self, bucket: Bucket, metadata: Pool, clock: Clock) -> None:
        self._bucket, self._metadata, self._now = bucket, metadata, clock.monotonic
        self._groups: dict[GroupId, Group] = {}
        self._given: LRUCache[str, None] = LRUCache(MOST_GIVEN)
        """Ids of members that were given, and did not join yet."""

    def _group(self, call: Call) -> Group:
        return self._group_of(call.group)

    def _group_of(self, group_id: GroupId) -> Group:
        group = self._groups.get(group_id) or Group()
        group.step(self._now())
        return group

    async def find(self, call: Call) -> Any:
        answer, request = metadata.FindCoordinatorResponse, call.request
        node = {"node_id": NODE, "host": HOST, "port": PORT, "error_code": NONE, "error_message": None}
        if request.key_type != GROUP_KEY:
            node |= {"node_id": -1, "host": "", "port": -1, "error_code": TRANSACTIONS_DENIED}
        if call.version < FIRST_OF_SEVERAL_KEYS:
            return answer(**node)
        return answer(coordinators=[answer.Coordinator(key=key, **node) for key in request.coordinator_keys])

    async def join(self, call: Call) -> Any:
        request, group = call.request, self._group(call)
        member_id, instance = request.member_id, request.group_instance_id
        if not member_id:
            member_id = f"{request.header.client_id or 'member'}-{system_random(16).hex()}"
            if call.version >= FIRST_WITH_MEMBER_ID and instance is None:
                self._given[member_id] = None
                return _joined(MEMBER_ID_REQUIRED, member_id)
        elif member_id not in group.members and member_id not in self._given:
            return _joined(UNKNOWN_MEMBER, member_id)
        self._given.pop(member_id, None)
        self._groups[call.group] = group
        rebalance_ms = request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms
        protocols = {each.name: each.metadata for each in request.protocols}
        times = request.session_timeout_ms / 1000, rebalance_ms / 1000, self._now()
        code = group.join(Member(member_id, instance, protocols, *times), request.protocol_type, self._now())
        if code != NONE:
            return _joined(code, member_id)
        await self._wait(group, member_id, Phase.JOINING)
        if member_id not in group.members:
            return _joined(UNKNOWN_MEMBER, member_id)
        members = [
            consumer.JoinGroupResponse.JoinGroupResponseMember(
                member_id=each.id, group_instance_id=each.instance, metadata=each.protocols[group.protocol]
            )
            for each in (group.members.values() if member_id == group.leader else ())
        ]
        return _joined(NONE, member_id, group, members)

    async def sync(self, call: Call) -> Any:
        request, group = call.request, self._group(call)
        member_id, generation = request.member_id, request.generation_id
        code = group.check(member_id, generation, self._now())
        if code == NONE and group.phase is Phase.SYNCING:
            if member_id == group.leader:
                group.assign({each.member_id: each.assignment for each in request.assignments})
            await self._wait(group, member_id, Phase.SYNCING)
            code = group.check(member_id, generation, self._now())
        return consumer.SyncGroupResponse(
            error_code=code,
            protocol_type=group.kind,
            protocol_name=group.protocol,
            assignment=group.members[member_id].assignment if code == NONE else b"",
        )

    async def _wait(self, group: Group, member_id: str, phase: Phase) -> None:
        """Wait until the group has left ``phase``, or the member has left the group."""
        while group.phase is phase and (member := group.members.get(member_id)) is not None:
            member.waits += 1
            try:
                await asyncio.sleep(LOOK_S)
            finally:
                member.waits -= 1
            group.step(self._now())

    async def heartbeat(self, call: Call) -> Any:
        request, group = call.request, self._group(call)
        code = group.check(request.member_id, request.generation_id, self._now())
        return consumer.HeartbeatResponse(error_code=code)

    async def leave(self, call: Call) -> Any:
        answer, request, group = consumer.LeaveGroupResponse, call.request, self._group(call)
        if call.version < FIRST_OF_SEVERAL_MEMBERS:
            return answer(error_code=group.leave(request.member_id, self._now()))
        members = []
        for each in request.members:
            code = group.leave(each.member_id or group.member_of(each.group_instance_id), self._now())
            fields = {"member_id": each.member_id, "group_instance_id": each.group_instance_id, "error_code": code}
            members.append(answer.MemberResponse(**fields))
        return answer(error_code=NONE, members=members)

    async def commit(self, call: Call) -> Any:
        request, group, kind = call.request, self._group(call), consumer.OffsetCommitResponse.OffsetCommitResponseTopic
        generation, refused = request.generation_id_or_member_epoch, NONE
        if generation >= 0 or group.members:
            refused = group.check(request.member_id, generation, self._now())
            refused = NONE if refused == REBALANCE else refused  # members commit before they join again

        def written() -> list[Any]:
            rows: list[tuple[TopicIdPartition, Committed]] = []
            code_of: dict[str, int] = {}
            for topic in request.topics:
                topic_id, code_of[topic.name] = self._topic_id(call.user, topic.name)
                if topic_id is not None:
                    rows += [(TopicIdPartition(topic_id, each.partition_index), _of(each)) for each in topic.partitions]
            failed = refused or self._written(call.group, rows)

            def entry(topic: str, each: Any) -> Any:
                code = failed or code_of[topic]
                return kind.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)

            return entries_of(request, kind, "name", entry)

        return consumer.OffsetCommitResponse(topics=await self._metadata.run(written, goes_on=True))

    def _written(self, group: GroupId, rows: list[tuple[TopicIdPartition, Committed]]) -> int:
        try:
            self._bucket.offsets.commit(group, rows)
        except TierstateError as error:
            return self._bucket.code_of(error)
        return NONE

    def _topic_id(self, user: str, topic: str) -> tuple[TopicId | None, int]:
        try:
            self._bucket.require(user, topic)
            return self._bucket.reader.topic(topic).topic_id, NONE
        except TierstateError as error:
            return None, self._bucket.code_of(error)

    async def fetch(self, call: Call) -> Any:
        answer, request = consumer.OffsetFetchResponse, call.request
        if call.version < FIRST_OF_SEVERAL_GROUPS:
            kind = answer.OffsetFetchResponseTopic
            topics = await self._fetched(call.group, request.topics, kind, kind.OffsetFetchResponsePartition)
            return answer(topics=topics, error_code=NONE)
        of_group, groups = answer.OffsetFetchResponseGroup, []
        kind = of_group.OffsetFetchResponseTopics
        for each in request.groups:
            group = call.user, each.group_id
            topics = await self._fetched(group, each.topics, kind, kind.OffsetFetchResponsePartitions)
            groups.append(of_group(group_id=each.group_id, topics=topics, error_code=NONE))
        return answer(groups=groups)

    async def _fetched(self, group: GroupId, wanted: Any, kind: Any, part: Any) -> list[Any]:
        """Return the offsets of a group in the classes ``kind`` for a topic and ``part`` for a partition."""

        def fetched() -> list[Any]:
            kept = self._bucket.offsets.of(group)
            topics = []
            for topic, partitions in self._wanted(wanted, kept):
                topic_id, code = self._topic_id(group[0], topic)
                entries = []
                for number in partitions:
                    committed = kept.get((str(topic_id), number), NOTHING)
                    fields = {"partition_index": number, "error_code": code, "metadata": committed.metadata}
                    fields |= {"committed_offset": committed.offset, "committed_leader_epoch": committed.epoch}
                    entries.append(part(**fields))
                topics.append(kind(name=topic, partitions=entries))
            return topics

        return await self._metadata.run(fetched, goes_on=True)

    async def list_all(self, call: Call) -> Any:
        kind = admin.ListGroupsResponse.ListedGroup
        states = {text.lower() for text in call.request.states_filter or ()}
        types = {text.lower() for text in call.request.types_filter or ()}
        groups = []
        for name in sorted(await self._names(call.user)):
            group = self._group_of((call.user, name))
            state = STATES[group.phase]
            if (not states or state.lower() in states) and (not types or CLASSIC in types):
                fields = {"group_state": state, "group_type": CLASSIC}
                groups.append(kind(group_id=name, protocol_type=group.kind, **fields))
        return admin.ListGroupsResponse(error_code=NONE, groups=groups)

    async def describe(self, call: Call) -> Any:
        names = await self._names(call.user)
        groups = [self._described(call, name, name in names) for name in call.request.groups]
        return admin.DescribeGroupsResponse(groups=groups)

    def _described(self, call: Call, name: str, exists: bool) -> Any:
        kind, group = admin.DescribeGroupsResponse.DescribedGroup, self._group_of((call.user, name))
        code = NO_SUCH_GROUP if not exists and call.version >= FIRST_WITH_NO_SUCH_GROUP else NONE
        stable = group.phase is Phase.STABLE
        members = [
            kind.DescribedGroupMember(
                member_id=each.id,
                group_instance_id=each.instance,
                client_id=each.client_id,
                client_host="",
                member_metadata=each.protocols[group.protocol] if stable else b"",
                member_assignment=each.assignment if stable else b"",
            )
            for each in group.members.values()
        ]
        return kind(
            error_code=code,
            error_message=None,
            group_id=name,
            group_state=STATES[group.phase] if exists else DEAD,
            protocol_type=group.kind,
            protocol_data=group.protocol if stable else "",
            members=members,
        )

    async def _names(self, user: str) -> set[str]:
        """Return the names of the user's groups that have members or offsets."""
        names = await self._metadata.run(lambda: self._bucket.offsets.groups(user), goes_on=True)
        return names | {name for (of, name), group in self._groups.items() if of == user and group.members}

    def _wanted(self, topics: Any, kept: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
        """Return the topics of a request with their partitions; ``topics`` None: all that have offsets."""
        if topics is not None:
            return [(each.name, each.partition_indexes) for each in topics]
        names = self._bucket.reader.topic_names()
        of_topic = defaultdict(list)
        for topic_id, number in kept:
            of_topic[names.get(TopicId(topic_id), topic_id)].append(number)
        return list(of_topic.items())


def _joined(code: int, member_id: str, group: Group | None = None, members: Any = ()) -> Any:
    return consumer.JoinGroupResponse(
        error_code=code,
        generation_id=-1 if group is None else group.generation,
        protocol_type=None if group is None else group.kind,
        protocol_name="" if group is None else group.protocol,
        leader="" if group is None else group.leader,
        skip_assignment=False,
        member_id=member_id,
        members=list(members),
    )


def _of(partition: Any) -> Committed:
    return Committed(partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or "")


class GroupOffer(NamedTuple):
    """A request of groups, offered from version ``oldest`` to ``newest``, and the method that answers it."""

    request: Any
    newest: int
    answer: Callable[[Groups, Call], Awaitable[Any]]


GROUP_OFFERS: dict[int, GroupOffer] = {
    8: GroupOffer(consumer.OffsetCommitRequest, 9, Groups.commit),
    9: GroupOffer(consumer.OffsetFetchRequest, 9, Groups.fetch),
    Key.FIND_COORDINATOR: GroupOffer(metadata.FindCoordinatorRequest, 6, Groups.find),
    11: GroupOffer(consumer.JoinGroupRequest, 9, Groups.join),
    12: GroupOffer(consumer.HeartbeatRequest, 4, Groups.heartbeat),
    13: GroupOffer(consumer.LeaveGroupRequest, 5, Groups.leave),
    14: GroupOffer(consumer.SyncGroupRequest, 5, Groups.sync),
    15: GroupOffer(admin.DescribeGroupsRequest, 6, Groups.describe),
    16: GroupOffer(admin.ListGroupsRequest, 5, Groups.list_all),
}

"""Recovery of the tier-state topic from the bucket: plan the facts to write, show why others are left out, write.

If the topic diverged from its archive: find where, and what only the lost history had; begin a new history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import urllib3

from ...broker.control import BrokerControl
from ...follower.archive_chain import chain_of, read_header
from ...follower.archives import (
    Archives,
    Parting,
    begin_history,
    find_parting,
    has_parted,
    left_behind,
    newest_history,
    places,
)
from ...follower.rocksdb_view import ViewIdentity
from ...follower.time_travel import archived_entries
from ...follower.view_identity import Shelf
from ...leader.recover import RecoverTools, add_lost_facts, check_target, recover_all, recover_partition
from ...leader.recover_scan import Bucket, Found, continued, read_history, scan_bucket, sort_out
from ...rules.lost_facts import Aftermath, LostFacts, aftermath_of
from ...rules.recovery import ArchivedPartition, FoundSegment, PartitionPlan, Verdict, plan_partitions
from ...runtime.id_source import RandomIds
from ...state.errors import Fenced, HistoryBroken, InvalidRequest
from ...state.facts import LeaderElected
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.keys import tier_partition_of
from ...state.offsets import Offset
from ...storage.object_store import ObjectStore
from ..looking.lost_state import look_at_lost
from ..opening.connection import Connection
from ..opening.partitions import bounds_if_known
from .prefix import take_from_the_dead
from .prefix_lock import PrefixLock
from .topic_stores import require_every_store

AGENT_TIMEOUT_S = 2.0
AGENTS_METRIC = b"remote_copy_lag_segments"
AGENT_RUNS = "an agent still runs: stop every agent first"


@dataclass(frozen=True, slots=True)
class Recovery:
    """A plan. ``names``: the cluster's topics, by id. ``addresses``: those of agents, from archived terms. ``hosts``:
    those of the brokers, where agents may run, too.

    ``archived_to``: the position after the last archived one, by "topic id/tier-state partition"; None: no archive.
    """

    cluster_id: str
    bucket: Bucket
    plans: tuple[PartitionPlan, ...]
    names: Mapping[TopicId, str]
    archived_to: Mapping[str, int] | None
    addresses: frozenset[str]
    hosts: tuple[str, ...] = ()
    added: Mapping[TopicIdPartition, LostFacts] = field(default_factory=dict)
    """Facts to add, by partition. Only `plan_lost_facts` sets it."""

    @property
    def all_gone(self) -> bool:
        """Return whether the cluster has none of these topics, so that no running agent leads a partition of them."""
        return bool(self.plans) and not any(plan.partition.topic_id in self.names for plan in self.plans)

    @property
    def writing(self) -> int:
        return len(self.added) or sum(plan.writes for plan in self.plans)

    @property
    def corrupt(self) -> int:
        """Return the number of damaged manifests, missing segments, and refused partitions that have not ended."""
        refused = sum(plan.refused is not None and not plan.ended for plan in self.plans)
        return len(self.bucket.damaged) + refused + sum(len(plan.missing) for plan in self.plans)

    @property
    def gaps(self) -> int:
        return sum(len(plan.gaps) for plan in self.plans)

    @property
    def left_out(self) -> int:
        """Return the number of lost or unproven segments, complete but without facts, and of unproven ranges."""
        segments = sum(len(plan.of(Verdict.LOST)) + len(plan.of(Verdict.UNPROVEN)) for plan in self.plans)
        return segments + sum(len(plan.unproven) for plan in self.plans)


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """The segments to recover. ``topic_ids``: lost tier-state topics, oldest first; empty: all in the bucket.
    ``cluster_id``: None means the cluster that answers. ``history``: that of the archive; None means the newest.
    ``from_archive``: True requires an archive, False ignores it, None uses it if there is one.
    """

    topic_ids: tuple[TopicId, ...] = ()
    cluster_id: str | None = None
    from_archive: bool | None = None
    history: int | None = None


def plan_recovery(connection: Connection, request: RecoveryRequest) -> Recovery:
    """Return a plan from every manifest and, unless it is to be ignored, the archive. Writes nothing."""
    require_every_store(connection)
    store, broker = connection.store, connection.broker.control
    here = broker.cluster()
    cluster = request.cluster_id or here.cluster_id
    names = {described.topic_id: described.name for described in broker.topics()}
    with connection.progress("reading manifests") as advance:

        def counted() -> Iterator[Found]:
            for item in scan_bucket(store):
                advance(1)
                yield item

        bucket = sort_out(counted(), cluster, request.topic_ids)
    lost = request.topic_ids or tuple({each.tier_state_topic_id for each in bucket.ours})
    archive: Mapping[TopicIdPartition, ArchivedPartition] = {}
    archived_to: dict[str, int] | None = None
    if request.from_archive is not False:
        archive, archived_to = archived_partitions(
            store, lost, cluster, request.history, demanded=request.from_archive is True
        )
    left = frozenset[RemoteSegmentId]().union(*(left_behind(store, topic_id, request.history) for topic_id in lost))
    plans = plan_partitions(bucket.ours, archive, _local_starts(broker, bucket.ours, names), left)
    addresses = frozenset(address for each in archive.values() for address in each.addresses)
    return Recovery(cluster, bucket, plans, names, archived_to, addresses, here.hosts)


def archived_partitions(
    store: ObjectStore, lost: tuple[TopicId, ...], cluster_id: str, history: int | None, *, demanded: bool
) -> tuple[Mapping[TopicIdPartition, ArchivedPartition], dict[str, int] | None]:
    """Return the archived partitions of the lost topics, read oldest first, and the end position of each archive."""
    archive: Mapping[TopicIdPartition, ArchivedPartition] = {}
    ends: dict[str, int] = {}
    if history is None:
        for topic_id in lost:
            require_whole(store, topic_id)
    every = places(store, history)
    for topic_id in lost:
        partitions: dict[TopicIdPartition, ArchivedPartition] = {}
        for place in (each for each in every if each.topic_id == topic_id):
            chain = chain_of(store, place)
            if not chain.names:
                continue
            header = read_header(store, place, chain.names[-1])
            identity = ViewIdentity(cluster_id, topic_id, header.partitions, history=place.history)
            partitions.update(read_history(archived_entries(Shelf(store, identity, place.tier_partition))))
            ends[f"{topic_id}/{place.tier_partition}"] = chain.end
        archive = continued(archive, partitions)
    if demanded and not ends:
        raise InvalidRequest("there is no archive of this tier-state topic in the bucket", ids=", ".join(lost) or None)
    return archive, ends or None


def require_whole(store: ObjectStore, topic_id: TopicId) -> None:
    """Raise HistoryBroken if the topic had diverged from its archive and no person decided which of them counts."""
    newest = newest_history(store, topic_id)
    parted = has_parted(store, topic_id, newest)
    if parted is not None:
        raise HistoryBroken(
            "the lost topic had parted from its archive, and nobody said which counts: name --history to restore what "
            "was archived of the history that was lost, or restore --without-archive",
            topic_id=topic_id,
            history=newest,
            said=parted.message,
        )


def plan_lost_facts(connection: Connection, partitions: Iterable[tuple[str, int | None]]) -> Recovery:
    """Return a plan for partitions that lost a part of their facts in the present topic. Writes nothing.

    Each plan covers its whole partition, but restores only segments whose facts are lost. Raises HistoryBroken
    while the topic has diverged from its archive.
    """
    require_whole(connection.store, TopicId(connection.topic.topic_id))
    partitions_lost = [each for topic, number in partitions for each in look_at_lost(connection, topic, number)]
    plans = tuple(replace(each.lost.plan, restored=each.lost.segments) for each in partitions_lost)
    here = connection.control.cluster()
    addresses = {
        live.fact.management_address
        for each in partitions_lost
        for live in each.view.others
        if isinstance(live.fact, LeaderElected) and live.fact.management_address
    }
    numbers = {each.view.partition: each for each in partitions_lost}
    tier = {number: tier_partition_of(number, connection.topic.mapped_partitions) for number in numbers}
    ends = {f"{connection.topic.topic_id}/{tier[at]}": each.archived_to for at, each in numbers.items()}
    return Recovery(
        here.cluster_id,
        Bucket(tuple(segment for each in partitions_lost for segment in each.lost.segments), (), (), ()),
        plans,
        {plan.partition.topic_id: plan.topic for plan in plans},
        {name: end for name, end in ends.items() if end is not None} or None,
        frozenset(addresses),
        here.hosts,
        {each.view.partition: each.lost for each in partitions_lost if each.lost.segments},
    )


def write_lost_facts(connection: Connection, recovery: Recovery, lock: PrefixLock) -> None:
    """Write the facts of ``recovery.added``, partition by partition. ``lock`` must be held since before the plan.

    Raises Fenced if an agent runs, or if another recovery took the lock over.
    """
    require_stopped(connection, recovery)
    follower = connection.view(list(recovery.added))
    tools = RecoverTools(connection.topic, follower, connection.clock, RandomIds())
    steps = sum(3 + 2 * len(each.segments) for each in recovery.added.values())
    with connection.progress("writing facts", steps) as advance:
        for partition, lost in recovery.added.items():
            # a partition without facts gets all facts of its plan, as in a fresh topic
            some = bool(follower.facts(partition))
            for _ in add_lost_facts(lost, tools) if some else recover_partition(lost.plan, tools):
                advance(1)
                lock.require()


def _local_starts(
    broker: BrokerControl, segments: tuple[FoundSegment, ...], names: Mapping[TopicId, str]
) -> dict[TopicIdPartition, Offset]:
    """Return the local log start of each partition whose broker answers."""
    starts: dict[TopicIdPartition, Offset] = {}
    for partition in sorted({each.segment.partition for each in segments}):
        bounds = bounds_if_known(broker, names.get(partition.topic_id), partition)
        if bounds is not None:  # else a gap above the restored segments is not detected
            starts[partition] = bounds.local_start
    return starts


def write_recovery(connection: Connection, recovery: Recovery, lock: PrefixLock, *, resume: bool) -> bool:
    """Write the plan. Return True if the topic had all of it already. ``lock`` must be held since before the plan.

    Raises Fenced if an agent runs, the topic is not a fresh one, or another recovery took the lock over.
    """
    lock.require()
    if not recovery.all_gone:
        require_stopped(connection, recovery)
    steps = sum(1 + 2 * len(plan.restored) for plan in recovery.plans)
    follower = connection.view()
    if check_target(connection.topic, follower, recovery.plans, resume=resume):
        return True
    take_from_the_dead(connection)
    tools = RecoverTools(connection.topic, follower, connection.clock, RandomIds())
    with connection.progress("writing facts", steps) as advance:
        for _ in recover_all(recovery.plans, tools):
            advance(1)
            lock.require()
    return False


def require_stopped(connection: Connection, recovery: Recovery) -> None:
    """Raise Fenced if an agent answers: at an address of a term, or at the agent's port of a broker's host."""
    require_silent(recovery.addresses)
    port = connection.settings.management.of("agent").port
    require_no_agent(f"{host}:{port}" for host in recovery.hosts if port)


def require_silent(addresses: Iterable[str]) -> None:
    """Raise Fenced if an agent answers, with any status, at one of these addresses from archived terms."""
    for address in sorted(addresses):
        if _answer(f"http://{address}/healthz") is not None:
            raise Fenced(AGENT_RUNS, address=address)


def require_no_agent(addresses: Iterable[str]) -> None:
    """Raise Fenced if an agent's metrics are served at one of these addresses: brokers' hosts with an agent's port.

    Another program may use that port, so the content of the answer is checked.
    """
    for address in addresses:
        if AGENTS_METRIC in (_answer(f"http://{address}/metrics") or b""):
            raise Fenced(AGENT_RUNS, address=address)


def _answer(url: str) -> bytes | None:
    """Return the body of an answer of any status. Returns None without an answer."""
    try:
        return urllib3.PoolManager(retries=False).request("GET", url, timeout=AGENT_TIMEOUT_S).data
    except urllib3.exceptions.HTTPError:
        return None


@dataclass(frozen=True, slots=True)
class Break:
    """A divergence. ``history``: the history to leave. ``why``: the evidence. ``after``: partitions after that."""

    topic_id: str
    history: int
    why: str
    partings: tuple[Parting, ...]
    after: tuple[Aftermath, ...]


def find_break(connection: Connection) -> Break:
    """Compare the complete topic with its archive. Raises InvalidRequest if they have not diverged."""
    store, topic = connection.store, connection.topic
    identity = connection.identity
    archives, numbers = Archives(topic, store, identity, connection.clock), range(topic.mapped_partitions)
    with connection.progress("comparing topic and archive", len(numbers)) as advance:
        for number in numbers:
            try:
                archives.check(number)
            except HistoryBroken:
                pass  # the break is what we are looking for
            advance(1)
    if archives.broken is None:
        raise InvalidRequest("topic and archive have not parted: there is nothing to settle", history=identity.history)
    partings = tuple(find_parting(topic, Shelf(store, identity, number)) for number in numbers)
    # the bucket is read before the view, so the view names each segment that is copied between the two reads
    bucket = sort_out(scan_bucket(store), connection.cluster_id, (TopicId(topic.topic_id),))
    follower = connection.view()
    after = tuple(aftermath_of([follower.partition(each) for each in follower.partitions()], bucket.ours))
    return Break(topic.topic_id, identity.history, str(archives.broken), partings, after)


def begin_after(connection: Connection, break_: Break) -> None:
    """Begin a new history: the topic is now authoritative. Segments that only the lost history had are no longer used.

    Raises Fenced while a process that this topic does not know writes to the bucket.
    """
    take_from_the_dead(connection)
    left = [segment.segment_id for each in break_.after for segment in each.left]
    begin_history(connection.store, break_.topic_id, break_.history + 1, connection.clock.now_ms(), break_.why, left)

"""Wiring: make an agent from the settings and the parts that the caller already has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..broker.control import BrokerControl
from ..broker.tier_topic import TierTopic
from ..broker.topics import TopicDescription
from ..log.local_log import LocalLog
from ..rules.decide import Policy, excluded, internal
from ..rules.observed import PROVEN, PrefixProof
from ..rules.sweep import ArchivedDeletes, no_archived_deletes
from ..runtime.clock import Clock
from ..runtime.id_source import IdSource
from ..runtime.listener import Listener
from ..runtime.quota import ByteQuota
from ..runtime.settings import Settings
from ..state.errors import Unavailable
from ..state.ids import COPIER, TopicId, TopicIdPartition
from ..state.object_keys import ObjectKeys
from ..state.retention import TopicConfig
from ..state.view import TierView
from ..storage.object_store import ObjectStore
from ..storage.segment.encryption import KeyWrapper
from ..storage.segment.keyring import KeyRingFile
from .agent import Agent, HostedPartitions, NewWorker
from .copier import CopyTools, FormatPolicy
from .discovery import Choice, Discovery
from .expirer import Quarantine
from .lost_facts import LeftBehind, LostFactsTools, LostFactsWatch
from .object_proof import ObjectProof
from .observe import ArchiveProblem, GroupPolicy, Observer
from .other_replicas import ask_by_http, lineages_elsewhere
from .partition_worker import ArchivedTo, PartitionWorker, WorkerTools
from .schedule import Schedule
from .status import StatusBoard
from .sweeper import OrphanSweeps, SweepTools
from .term import TermContext


@dataclass(frozen=True, slots=True)
class LeaderRole:
    """An agent that is ready to run, with its parts. ``hosted`` lists the disks again at each call."""

    agent: Agent
    board: StatusBoard
    context: TermContext
    hosted: HostedPartitions
    new_worker: NewWorker
    quota: ByteQuota
    unseen: Callable[[], Sequence[str]]
    """Returns led partitions that are in no known log folder (`Discovery.unseen`)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that an agent works with: one cluster, its tier-state topic, a view of that topic, its store."""

    broker: BrokerControl
    topic: TierTopic
    view: TierView
    store: ObjectStore
    clock: Clock
    ids: IdSource


@dataclass(frozen=True, slots=True)
class Beside:
    """Optional parts that run next to an agent's own work. ``schedule``: one that already listens to the view's events.

    ``quota`` limits everything that is uploaded. If None, a quota of ``copy.quota`` limits the copies alone.
    """

    archived_to: ArchivedTo = lambda tier_partition: None
    archived_deletes: ArchivedDeletes = no_archived_deletes
    archive_problem: ArchiveProblem = lambda partition: None
    prefix: Callable[[], PrefixProof] = lambda: PROVEN
    quota: ByteQuota | None = None
    schedule: Schedule | None = None
    left_behind: LeftBehind = lambda: ()
    heartbeats_lost: Callable[[], int] = lambda: 0


NOTHING_BESIDE = Beside()


def open_leader(
    settings: Settings,
    log: LocalLog,
    parts: Parts,
    listener: Listener,
    management_address: str,
    beside: Beside = NOTHING_BESIDE,
) -> LeaderRole:
    """Return an agent that is ready to run. ``management_address``: its management port's address for others.

    Raises InvalidRequest for a key ring that cannot be used.
    """
    broker, topic, view, store, clock = parts.broker, parts.topic, parts.view, parts.store, parts.clock
    cluster = broker.cluster()
    keyring = settings.encryption.keyring
    keys = ObjectKeys.minting(settings.format.key_prefix, cluster.cluster_id, settings.format.salt_bits)
    context = TermContext(log.agent_id, management_address, topic, view, broker, log, clock, parts.ids, store, keys)
    if log.agent_id != COPIER:
        context = replace(context, other_replicas=partial(lineages_elsewhere, log.agent_id, view, ask_by_http))
    schedule = beside.schedule or Schedule(clock, view.tier_partition)
    quota = beside.quota or ByteQuota(clock, settings.copy_.quota)
    keyring_file = None if keyring is None else KeyRingFile(keyring, listener)
    tools = CopyTools(
        store=store,
        proof=ObjectProof(store, settings.trim.proof == "read", keyring_file),
        keys=keys,
        format=format_policy(settings, cluster.cluster_id, TopicId(topic.topic_id), keyring_file),
        throttle=while_allowed(quota.take, beside.prefix),
        listener=listener,
        longest_s=settings.sweep.grace / 2,
    )
    observe = Observer(
        context,
        GroupPolicy(
            settings.trim.respect_groups and settings.trim.enabled,
            settings.trim.exclude_groups,
            settings.trim.group_hold_max,
        ),
        lambda name, config: overridden(settings, name, config),
        topic.problems,
        schedule.wait_for_it,
        beside.archive_problem,
        beside.prefix,
    )
    policy = Policy(
        copy_lag_ms=round(settings.copy_.lag * 1000),
        trim_delay_ms=round(settings.trim.delay * 1000),
        allow_unclean=settings.trim.allow_unclean,
        expire_grace_ms=round(settings.expire.grace * 1000),
        sweep_grace_s=settings.sweep.grace,
        trims=settings.trim.enabled,
    )
    quarantine = Quarantine(settings.sweep.quarantine_prefix, quota.take)
    sweep = SweepTools(store, tools.keys, beside.archived_deletes, settings.sweep.grace, listener, quarantine)
    lost = LostFactsTools(
        store, tools.keys, cluster.cluster_id, beside.archived_deletes, beside.left_behind, beside.heartbeats_lost
    )
    board = StatusBoard()
    workers = WorkerTools(context, observe, tools, policy, board, listener, beside.archived_to)

    def new_worker(partition: TopicIdPartition, name: str) -> PartitionWorker:
        orphans = OrphanSweeps(context, partition, name, sweep)
        watch = LostFactsWatch(context, partition, name, lost, listener, orphans.look_soon)
        return PartitionWorker(workers, partition, name, orphans, watch)

    hosted = hosted_partitions(settings, context, schedule)
    agent = Agent(hosted, new_worker, board, settings.copy_.concurrency, schedule, observe.ahead)
    return LeaderRole(agent, board, context, hosted.afresh, new_worker, quota, hosted.unseen)


def format_policy(
    settings: Settings, cluster_id: str, tier_state_topic_id: TopicId, keys: KeyWrapper | None
) -> FormatPolicy:
    """Return the form of new objects by section ``[format]``."""
    section = settings.format
    form = section.compression, section.zstd_level, section.chunk_bytes
    return FormatPolicy(*form, cluster_id, tier_state_topic_id, keys)


def while_allowed(take: Callable[[int], object], proof: Callable[[], PrefixProof]) -> Callable[[int], None]:
    """Return ``take`` that raises Unavailable if nothing may be copied now. A copy calls it before each piece, and
    right before copy-finished*.
    """

    def throttle(size: int) -> None:
        if (why := proof().copy) is not None:
            raise Unavailable(f"nothing is changed in the bucket: {why}")
        take(size)

    return throttle


def hosted_partitions(settings: Settings, context: TermContext, schedule: Schedule) -> Discovery:
    """Return a discovery of the partitions that the settings include, under the topic ids that the cluster has now.

    Excluded partitions stay while facts name them, so that their remote segments still expire. Internal topics that
    match the settings' patterns are hosted but refused, so that the status shows the reason.
    """

    def choose(described: TopicDescription) -> Choice | None:
        covered = settings.tiering.covers(described.name)
        if described.internal or described.name == settings.tier_state.topic:
            return Choice(True, internal(described.name)) if covered else None
        return Choice(covered, None if covered else excluded(described.name))

    return Discovery(context, choose, schedule)


def overridden(settings: Settings, name: str, config: TopicConfig) -> TopicConfig:
    """Return Kafka's configuration with tierstate's retention where it is shorter: the broker obeys only its own.

    The remote tier of an archive has a retention of its own, which may also be longer.
    """
    archive = settings.expire.of(name, trims=settings.trim.enabled)
    if archive is not None:
        config = replace(config, remote_ms=archive.ms, remote_bytes=archive.bytes)
    own = settings.tiering.topics.get(name)
    if own is None:
        return config

    def shorter(kafka: int, ours: float | None) -> int:
        return round(ours) if ours is not None and (kafka == -1 or ours < kafka) else kafka

    def local(kafka: int, total: int, ours: float | None) -> int:
        return kafka if ours is None else shorter(total if kafka == -2 else kafka, ours)

    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1000

    total_ms = shorter(config.retention_ms, ms(own.retention))
    total_bytes = shorter(config.retention_bytes, own.retention_bytes)
    return replace(
        config,
        retention_ms=total_ms,
        retention_bytes=total_bytes,
        local_retention_ms=local(config.local_retention_ms, total_ms, ms(own.local_retention)),
        local_retention_bytes=local(config.local_retention_bytes, total_bytes, own.local_retention_bytes),
    )

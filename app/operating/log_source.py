"""Where an agent reads logs: in the folders of its broker, or by Fetch from all leaders of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from ...broker.topics import TopicDescription
from ...follower.heartbeat import Claimant
from ...leader.custody import led_by
from ...log.local_log import LocalLog, LogDirs
from ...rules.decide import refusal
from ...state.errors import CorruptData, InvalidRequest, ObjectNotFound
from ...state.retention import TopicConfig
from ...state.segment import RemoteSegment
from ...storage.object_store import ObjectReads
from ...storage.segment.encryption import KeyUnwrapper
from ...storage.segment.manifest import IndexKind
from ...storage.segment.reader import SegmentReader
from ...tail.fetch_log import SMALLEST_PART_BYTES, FetchLog, RollPolicy, SnapshotOf
from ...tail.ownership import Ownership
from ...tail.probe import probe_leaders
from ..looking.copied_folders import FolderWatch, require_own_folders
from ..opening.connection import Connection
from .prefix import agent_claimant, fetching_claimant


@dataclass(frozen=True, slots=True)
class LogSource:
    """``led``: asks for the tier-state partitions that this agent cares for. ``folders`` is None without folders.

    ``group`` shares the work between agents that copy by Fetch; None for an agent that reads disks.
    """

    log: LocalLog
    claimant: Claimant
    led: Callable[[], Collection[int]]
    folders: FolderWatch | None = None
    group: Ownership | None = None

    def problems(self) -> list[str]:
        """Return why the agents' group does not share out work; empty if it does, or if there is no group."""
        return [self.group.problem] if self.group is not None and self.group.problem else []


@contextmanager
def disk_source(connection: Connection, log: LogDirs) -> Iterator[LogSource]:
    """Yield the source of an agent that reads disks. Raises InvalidRequest for the folders of another broker."""
    settings, control, mapped = connection.settings, connection.control, connection.topic.mapped_partitions
    require_own_folders(log, control)
    led = led_by(control, settings.tier_state.topic, log.node_id, mapped)
    yield LogSource(log, agent_claimant(settings, control, log), led, FolderWatch(log, control))


def chosen_topics(connection: Connection) -> list[TopicDescription]:
    """Return the topics that the settings choose, without Kafka's own."""
    covers = connection.settings.tiering.covers
    return [each for each in connection.control.topics() if covers(each.name) and not each.internal]


def topics_to_fetch(connection: Connection) -> list[TopicDescription]:
    """Return the topics that agents by Fetch copy. Raises InvalidRequest if the settings do not fit."""
    settings, control = connection.settings, connection.control
    if settings.agent.log_dirs:
        raise InvalidRequest("agent.log_dirs is set, and agent.source is fetch: an agent reads one of both")
    topics = chosen_topics(connection)
    configs = control.configs([each.name for each in topics], broker=min(control.cluster().brokers))
    fit = [each for each in topics if isinstance(config := configs[each.name], TopicConfig) and not refusal(config)]
    partitions = sum(len(each.partitions) for each in fit)
    if settings.agent.spool < partitions * SMALLEST_PART_BYTES:
        raise InvalidRequest(
            "agent.spool is too small for so many partitions", partitions=partitions, spool=settings.agent.spool
        )
    return fit


def leaders_that_fence(connection: Connection) -> tuple[int, int]:
    """Return the numbers of leaders that were tried, and of partitions that would be copied by Fetch.

    Raises the errors of `topics_to_fetch` and `probe_leaders`.
    """
    topics = topics_to_fetch(connection)
    return len(probe_leaders(connection.broker.raw, topics)), sum(len(each.partitions) for each in topics)


def producer_snapshots(store: ObjectReads, keys: KeyUnwrapper | None) -> SnapshotOf:
    """Return a function that reads the producer snapshot of a copied segment. ``keys``: as in `SegmentReader.open`."""

    def snapshot_of(segment: RemoteSegment) -> bytes | None:
        try:
            return SegmentReader.open(store, segment.object_key, keys=keys).indexes(IndexKind.PRODUCER_SNAPSHOT)
        except (CorruptData, InvalidRequest, ObjectNotFound):  # an agent with public keys cannot read it
            return None

    return snapshot_of


@contextmanager
def fetch_source(connection: Connection) -> Iterator[LogSource]:
    """Yield the source of the agent that copies by Fetch. Raises InvalidRequest if the settings do not fit."""
    topics_to_fetch(connection)
    settings, control, mapped = connection.settings, connection.control, connection.topic.mapped_partitions
    group = Ownership(connection.kafka, settings.tier_state.topic, connection.clock)

    def owned() -> Collection[int]:
        return [each for each in group.owned() if each < mapped]

    log = FetchLog(
        connection.broker.raw,
        control,
        owned,
        mapped,
        settings.state_dir / "agent" / "spool",
        RollPolicy(settings.copy_.roll_bytes, settings.copy_.roll_after, settings.agent.spool),
        connection.clock,
        producer_snapshots(connection.store, connection.keys),
    )
    with closing(group), log:
        yield LogSource(log, fetching_claimant(settings, control), owned, group=group)

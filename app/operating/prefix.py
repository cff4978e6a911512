"""Which cluster may write below the bucket prefix: claims of agents and of commands, and decisions of people."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from ...broker.control import BrokerControl
from ...broker.tier_topic import KafkaTierTopic, TierTopic
from ...follower.heartbeat import (
    BY_A_PERSON,
    WAY_OUT,
    Claimant,
    Decision,
    Heartbeat,
    Keeper,
    OtherTopics,
    chosen_of,
    is_signed_here,
    keep_prefix,
    read_heartbeat,
    read_keeper,
)
from ...follower.movable_claim import MovableClaim
from ...follower.object_names import ROOT, agents_prefix, is_heartbeat, kept_number
from ...log.local_log import LogDirs
from ...runtime.id_source import RandomIds
from ...runtime.listener import HeartbeatsAwaited
from ...runtime.settings import Settings
from ...runtime.units import counted
from ...runtime.watchdog import inherited
from ...state.errors import Fenced, InvalidRequest, PrefixContested
from ...state.ids import COPIER, FactId, TopicId
from ...state.offsets import TimestampMs
from ...storage.object_store import ObjectStore
from ...storage.wrapped_stores import claimed
from ..opening.connection import Connection
from .orders import issuer
from .topic_stores import require_every_store

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux creates a new id at each boot."""


@dataclass(frozen=True, slots=True)
class Side:
    """One heartbeat. ``ours``: whether a tier-state topic of this cluster contains its signature."""

    beat: Heartbeat
    written_at: TimestampMs
    ours: bool


@dataclass(frozen=True, slots=True)
class Sides:
    """Heartbeats, and decisions in ascending order (``keepers``). ``kept_here``: `keeper` chose this cluster."""

    sides: tuple[Side, ...]
    keepers: tuple[Keeper, ...]
    kept_here: bool

    @property
    def keeper(self) -> Keeper | None:
        return chosen_of(self.keepers)

    @property
    def strange(self) -> list[Side]:
        """Return the heartbeats of other clusters that no decision names."""
        disowned = {process for keeper in self.keepers for process in keeper.others.split()}
        return [side for side in self.sides if not side.ours and side.beat.process not in disowned]


def agent_claimant(settings: Settings, control: BrokerControl, log: LogDirs) -> Claimant:
    """Return the claimant for a broker's agent. Its place is made of the broker's address and its log folders."""
    cluster = control.cluster()
    at = ":".join(map(str, cluster.addresses.get(log.node_id, ())))
    folders = settings.agent.log_dirs
    place = f"{at} {','.join(map(str, folders))} {folders_id(folders)}"
    return _claimant(settings, cluster.cluster_id, log.node_id, place)


def fetching_claimant(settings: Settings, control: BrokerControl) -> Claimant:
    """Return the claimant for the agent that copies by Fetch. It may run anywhere: its place is its cluster's."""
    cluster = control.cluster()
    place = ",".join(":".join(map(str, address)) for address in sorted(cluster.addresses.values()))
    return _claimant(settings, cluster.cluster_id, COPIER, place)


def folders_id(folders: Iterable[Path]) -> str:
    """Return an id of folders, from their inodes and the host's boot id. A copy of the folders has another id.

    A host that boots again may be a copy of its image, so a reboot changes the id, too.
    """
    boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
    stats = [os.stat(folder) for folder in folders]
    numbers = "".join(f" {each.st_dev}:{each.st_ino}" for each in stats)
    return sha256(f"{boot.strip()}{numbers}".encode()).hexdigest()[:12]


def _claimant(settings: Settings, cluster_id: str, broker_id: int, place: str) -> Claimant:
    section = settings.prefix
    return Claimant(cluster_id, broker_id, socket.gethostname(), place, section.heartbeat, section.trial)


def other_topics(connection: Connection) -> OtherTopics:
    """Return a function that opens any other tier-state topic of this cluster, which may share the prefix."""

    @contextmanager
    def opened(topic_id: str) -> Iterator[TierTopic | None]:
        name = next((each.name for each in connection.control.topics() if each.topic_id == topic_id), None)
        if name is None:
            yield None
            return
        other = KafkaTierTopic(connection.kafka, name, topic_id, 1)
        try:
            yield other
        finally:
            other.close()

    return opened


def claim_of(connection: Connection, store: ObjectStore, claimant: Claimant) -> MovableClaim:
    """Return the claim on ``store``, the default store: no store of topics has heartbeats, and it may be away."""
    return MovableClaim(connection.topic, store, claimant, connection.clock, RandomIds(), other_topics(connection))


@contextmanager
def changing(connection: Connection) -> Iterator[ObjectStore]:
    """Yield the store for a command that changes it. Agents answer the command within one heartbeat.

    Raises PrefixContested if another cluster writes below this prefix. Without settings of Kafka, raises InvalidRequest
    if agents write to the bucket.
    """
    connection.followed.stay()
    require_every_store(connection)
    if not connection.settings.kafka:
        if next(iter(connection.store.list(f"{ROOT}agents/")), None) is not None:
            raise InvalidRequest("agents write to this bucket: kafka.bootstrap.servers is needed to ask whose they are")
        yield connection.store
        return
    claimant = _claimant(connection.settings, connection.cluster_id, BY_A_PERSON, "")
    claim = claim_of(connection, connection.stores[0], claimant)
    stop = threading.Event()
    thread = threading.Thread(target=inherited(claim.run), args=(stop,), name="heartbeat", daemon=True)
    thread.start()
    try:
        claim.wait(stop)
        yield claimed(connection.store, claim.require, ROOT)
    finally:
        stop.set()
        thread.join()
        claim.leave()


def look_at_sides(connection: Connection) -> Sides:
    """Read every heartbeat and every decision. Raises the errors of the store and of the brokers."""
    store, cluster_id = connection.store, connection.cluster_id
    is_here = partial(is_signed_here, connection.topic, other_topics(connection))
    sides, numbers = list[Side](), list[int]()
    for listed in store.list(agents_prefix(cluster_id)):
        number = kept_number(cluster_id, listed.key)
        if number is not None:
            numbers.append(number)
        elif is_heartbeat(cluster_id, listed.key) and (beat := read_heartbeat(store, listed.key)) is not None:
            sides.append(Side(beat, listed.modified_at, is_here(beat)))
    keepers = tuple(read_keeper(store, cluster_id, number) for number in sorted(numbers))
    keeper = chosen_of(keepers)
    kept = keeper is not None and any(side.ours and side.beat.kept >= keeper.number for side in sides)
    return Sides(tuple(sides), keepers, keeper is not None and (kept or is_here(keeper)))


def check_prefix(connection: Connection) -> str:
    """Return a summary. Raises PrefixContested if another cluster writes or wrote below this prefix, or owns it."""
    sides = look_at_sides(connection)
    if sides.keeper is not None and not sides.kept_here:
        raise PrefixContested(f"{sides.keeper.by} gave this prefix to another cluster: give this one another store.url")
    if sides.strange:
        raise PrefixContested(
            f"another cluster writes below this prefix: {_names(side.beat for side in sides.strange)}; {WAY_OUT}"
        )
    ours = sum(side.ours and not side.beat.stopped for side in sides.sides)
    return f"{counted(ours, 'agent')} of this cluster, no others"


def require_one_source(connection: Connection) -> None:
    """Raise InvalidRequest if agents of this cluster run that read logs from the other ``agent.source``.

    Does nothing if the settings are not an agent's.
    """
    settings = connection.settings
    if settings.agent.source == "fetch" or settings.agent.log_dirs:
        ours = _beating(
            connection, lambda sides: [side for side in sides.sides if side.ours and _other_source(settings, side.beat)]
        )
        refuse_sources(settings, [side.beat for side in ours])


def refuse_sources(settings: Settings, running: Iterable[Heartbeat]) -> None:
    """Raise InvalidRequest if one of the running processes is an agent that reads logs from the other ``agent.source``.

    Both would copy every partition, and take each other's terms.
    """
    if others := [beat for beat in running if _other_source(settings, beat)]:
        raise InvalidRequest(
            f'agents with another agent.source than "{settings.agent.source}" run for this tier-state topic: '
            "stop them first",
            agents=_names(others),
        )


def _other_source(settings: Settings, beat: Heartbeat) -> bool:
    return beat.broker_id >= 0 and (beat.broker_id == COPIER) != (settings.agent.source == "fetch")


def take_prefix(connection: Connection, sides: Sides, *, chosen: bool = True) -> None:
    """Give the prefix to this cluster: from now on every process of another cluster stops.

    ``chosen`` False: the decision only disowns ended processes of other clusters, and takes the prefix from no cluster.
    Raises InvalidRequest if a person gave the prefix to another cluster.
    """
    if sides.keeper is not None and not sides.kept_here and _is_signed_in_a_topic(connection, sides.keeper):
        raise InvalidRequest(
            f"{sides.keeper.by} gave this prefix to another cluster: give this cluster another store.url",
            number=sides.keeper.number,
        )
    others = [side.beat.process for side in sides.sides if not side.ours]
    number = sides.keepers[-1].number + 1 if sides.keepers else 1
    process = FactId.of(RandomIds().uuid())
    decision = Decision(number, process, others, chosen, issuer(), connection.clock.now_ms())
    keep_prefix(connection.store, connection.topic, connection.cluster_id, decision)


def _beating(connection: Connection, suspects: Callable[[Sides], list[Side]]) -> list[Side]:
    """Return the suspects that write heartbeats: if there are any, wait for two periods, and look again."""
    running = [side for side in suspects(look_at_sides(connection)) if not side.beat.stopped]
    if not running:
        return []
    before, wait_s = {side.beat.token for side in running}, 2 * connection.settings.prefix.heartbeat
    connection.listener(HeartbeatsAwaited(_names(side.beat for side in running), wait_s))
    connection.clock.sleep(wait_s)
    now = suspects(look_at_sides(connection))
    return [side for side in now if not side.beat.stopped and side.beat.token not in before]


def _names(beats: Iterable[Heartbeat]) -> str:
    return ", ".join(f"{beat.writer} at {beat.host}" for beat in beats)


def _is_signed_in_a_topic(connection: Connection, keeper: Keeper) -> bool:
    """Return whether this cluster still has the topic that signed the decision.

    A copy of the cluster has the topic, with the same id. If it was deleted, this cluster lost the decision's record.
    """
    control = connection.control
    return control.topic_exists(TopicId(keeper.topic_id), broker=min(control.cluster().brokers))


def take_from_the_dead(connection: Connection) -> None:
    """Disown the agents of the lost topic if all of them have ended: the topic of a recovery does not know them.

    No person has confirmed that no copy of the cluster runs, so agents are on trial. Raises Fenced if a process of
    another topic still writes, and InvalidRequest if a person gave the prefix to another cluster.
    """
    if alive := _beating(connection, lambda sides: sides.strange):
        raise Fenced(
            "an agent still runs, or another cluster writes below this prefix: stop it first",
            agents=_names(side.beat for side in alive),
        )
    sides = look_at_sides(connection)
    if sides.strange or (sides.keeper is not None and not sides.kept_here):
        take_prefix(connection, sides, chosen=False)

"""One agent process of a generated history: production's worker, view and operations.

A killed process leaves nothing but its view.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tests.histories.cluster import NAME, HistoryControl
from tests.histories.disk import HistoryLog
from tests.histories.groups import POLICY
from tests.histories.topic import DAY, TOPIC_ID, ProcessTopic
from tests.twins.counting_ids import CountingIds
from tierstate.follower.follower import Follower
from tierstate.follower.following import Following
from tierstate.follower.generations import InMemory
from tierstate.leader.copier import CopyTools, FormatPolicy
from tierstate.leader.custody import ClusterEvidence, Custodian, CustodyTools
from tierstate.leader.object_proof import ObjectProof
from tierstate.leader.observe import Observer
from tierstate.leader.partition_worker import PartitionWorker, WorkerTools
from tierstate.leader.status import StatusBoard
from tierstate.leader.term import TermContext
from tierstate.log.local_log import LocalLog
from tierstate.rules.custody import CustodyPolicy
from tierstate.rules.decide import Policy
from tierstate.runtime.clock import Clock
from tierstate.runtime.operation import Operation
from tierstate.state.errors import TierStateLost, Unavailable
from tierstate.state.ids import TopicId
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.retention import TopicConfig
from tierstate.state.view import ViewStore

if TYPE_CHECKING:
    from tests.histories.world import World


def follow(world: World, who: int, store: ViewStore | None = None, *, kind: bool = False) -> Follower:
    """Return production's follower, started, over the history's topic. It reads only when called, not on a thread."""
    memory = InMemory(1)
    topic = ProcessTopic(world.topic, who, kind=kind)
    return Follower(
        topic, store or memory.fresh(), memory, world.clock, Following(tail=False, listener=world.tell)
    ).start()


class Process:
    """The agent of one broker. ``age`` counts its restarts."""

    trims = True

    def __init__(self, world: World, broker: int, age: int, store: ViewStore | None) -> None:
        self.world, self.broker, self.age = world, broker, age
        self.follower = follow(world, broker, store)
        clock = world.clocks.of_agent(broker)
        control, log = self._open_log(clock)
        topic = ProcessTopic(world.topic, broker)
        ids = CountingIds(1 + broker + 3 * age)
        context = TermContext(
            log.agent_id, f"b{broker}:1", topic, self.follower, control, log, clock, ids, world.store, ObjectKeys()
        )
        tools = CopyTools(
            store=world.store,
            proof=ObjectProof(world.store),
            keys=ObjectKeys(),
            format=FormatPolicy("none", 3, 32_768, "histories", TopicId(TOPIC_ID)),
            throttle=lambda size: None,
            listener=world.tell,
            longest_s=900.0,
        )
        observe = Observer(context, POLICY, self._configured, topic.problems)
        rules, board = Policy(0, 0, allow_unclean=True, sweep_grace_s=1800.0, trims=self.trims), StatusBoard()
        shared = WorkerTools(context, observe, tools, rules, board, world.tell, world.archived_to)
        self.worker = PartitionWorker(shared, world.cluster.partition, NAME, lost=world.cut_tail.watch(context))
        look = ClusterEvidence(control, "histories", 3, topic.problems, clock)
        policy = CustodyPolicy(grace_ms=DAY, reader_grace_ms=60_000)
        custody = CustodyTools(context, look, policy, world.store, world.tell, world.archived_to)
        self._custodian = Custodian(custody, self._cares_for)
        self._act: Operation[bool] | None = None
        self._looks_in: tuple[int, int] | None = None
        """Epoch and `Cluster.changes` when the worker's operation began. None: it did not lead, or its view was old."""
        self.next_step = ""
        self._believes = False
        self.stopped_by: tuple[str, ...] = ()
        """Facts of a later release that the view had when the current operation began, and still has."""

    @property
    def busy(self) -> bool:
        """Return whether an operation is in progress; the process is right before an irreversible step then."""
        return self._act is not None

    def step(self) -> None:
        """Run up to the next irreversible step."""
        self.world.acting = self.broker
        later = self.follower.store.state(self.world.cluster.partition).view().later
        if self._act is None or not later:
            self.stopped_by = later
        often = 0.2 if self.world.forger.active else 0.03
        if self._act is None and self.world.rnd.random() < (often if self.world.cluster.exists else 0.8):
            self._act, self._looks_in = self._custodian.steps(), None
        elif self._act is None:
            if not self.world.cluster.exists:
                return
            if self.world.rnd.random() < 0.85:  # otherwise its metadata is old
                self._believes = self._leads()
            if not self._believes:
                self.worker.rest()
                return
            self._act, self._looks_in = self.worker.steps(), self._leads_in()
        try:
            self.next_step = next(self._act)
        except StopIteration:
            self._act, self.next_step = None, ""
            # an agent that a later release's fact stops begins no term, so it does not record what it saw
            stopped = self.stopped_by or self.follower.store.state(self.world.cluster.partition).view().later
            done = not self.worker.failures and not stopped
            if done and self._looks_in is not None and self._looks_in == self._leads_in():
                self.world.cluster.looked = self._looks_in[0]
        except (Unavailable, TierStateLost):  # also raised by a custodian that reaches no broker
            self._act, self.next_step = None, ""

    def _open_log(self, clock: Clock) -> tuple[HistoryControl, LocalLog]:
        """Return what the process learns from brokers, and the log that it copies."""
        cluster = self.world.cluster
        return HistoryControl(cluster, self.world.groups.freeze), HistoryLog(cluster, cluster.brokers[self.broker])

    def _cares_for(self) -> Collection[int]:
        """Return the tier-state partitions of whose custody this process takes care."""
        return {0} if self.world.keeper == self.broker else ()

    def _configured(self, name: str, config: TopicConfig) -> TopicConfig:
        return config

    def _leads(self) -> bool:
        """Return whether the process finds, in new metadata, that it works for the partition."""
        return self.world.cluster.leader.number == self.broker

    def _leads_in(self) -> tuple[int, int] | None:
        cluster = self.world.cluster
        told = self.follower.store.state(cluster.partition).view().settled_lineages
        heard = told == self.world.promises.live.view().settled_lineages  # else the view has not read them yet
        return (cluster.epoch, cluster.changes) if heard and self._leads_now() else None

    def _leads_now(self) -> bool:
        """Return whether the log that the process copies is the leader's."""
        return self.world.cluster.leader.number == self.broker

    def kill(self) -> ViewStore:
        """End the process, and return its view, which is on disk."""
        if self._act is not None:
            self._act.close()
        return self.follower.store

"""The agents of a story: one for each broker, in this process; each takes one irreversible step when asked to."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.leader.real import Job, RealTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec
from tierstate.leader.custody import ClusterEvidence, Custodian, CustodyTools, led_by
from tierstate.leader.partition_worker import PartitionWorker
from tierstate.leader.status import PartitionStatus
from tierstate.rules.custody import CustodyPolicy
from tierstate.runtime.clock import Clock
from tierstate.runtime.operation import Operation, run
from tierstate.runtime.settings import Settings
from tierstate.state.errors import TierstateError
from tierstate.state.ids import TopicIdPartition
from tierstate.storage.object_store import ObjectStore

PATIENCE_S = 60.0
LOST_FOR_MS = 1_000
"""The custodian's grace."""
BETWEEN_TRIES_S = 0.2


@dataclass
class StoryCluster(RealTopic):
    """All topics of a story, whose names begin with its ``name``. ``overrides`` are tables of the settings file."""

    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    folders: dict[int, list[Path]] = field(default_factory=dict)
    given_clock: Clock | None = None
    given_store: ObjectStore | None = None
    """Used by agents and readers opened from now on; None: the system's clock, and the story's folder."""

    @property
    def clock(self) -> Clock:
        return self.given_clock or super().clock

    @property
    def store(self) -> ObjectStore:
        return self.given_store or super().store

    @property
    def spec(self) -> TierTopicSpec:
        return TierTopicSpec(f"_tiers-{self.name}", 2, min(3, len(self.sandbox.brokers)))

    def settings(self, **trim: Any) -> Settings:
        tables: dict[str, dict[str, Any]] = {
            "kafka": self.sandbox.client_config,
            "store": {"url": self.store_folder.as_uri()},
            "tiering": {"include": [f"{self.name}-.*"]},
            "tier_state": {"topic": self.spec.name, "partitions": 2},
            "trim": {"delay": 0, **trim},
            "expire": {"grace": 0},
        }
        for name, table in self.overrides.items():
            tables[name] = tables.get(name, {}) | table
        return Settings.model_validate(tables)

    def log_folders(self, index: int) -> list[Path]:
        return self.folders.get(index) or super().log_folders(index)


class StoryAgent:
    """The agent of one broker, opened at its first use, until it `dies`."""

    def __init__(self, cluster: StoryCluster, index: int) -> None:
        self.cluster, self.index = cluster, index
        self.stops_reached = 0
        self._opened = ExitStack()
        self.job: Job = self._opened.enter_context(cluster.agent(index))
        self._workers: dict[TopicIdPartition, PartitionWorker] = {}
        self._held: Operation[bool] | None = None
        self._custodian: Custodian | None = None

    # --- what it does --------------------------------------------------------------------------------------------

    def works(self, seconds: float = PATIENCE_S) -> StoryAgent:
        """Work until nothing is left to do. Failed operations are tried again, until it takes too long."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._turn()
                failing = [each.last_error for each in self._workers.values() if each.failures]
            except TierstateError as error:  # the broker does not answer which partitions it leads
                failing = [str(error)]
            if not failing:
                return self
            assert time.monotonic() < deadline, f"the agent of broker {self.index} cannot end its work: {failing[0]}"
            time.sleep(BETWEEN_TRIES_S)

    def turn(self) -> StoryAgent:
        """Do one round over all partitions of this leader; each goes on until it has nothing to do, or fails."""
        with suppress(TierstateError):
            self._turn()
        return self

    def _turn(self) -> None:
        for worker in self._led():
            while worker.advance():
                pass

    def copies_all(self) -> StoryAgent:
        """Copy every rolled segment, without trimming and expiring."""
        for worker in self._led():
            while self._advance_while_copying(worker):
                pass
            assert not worker.failures, worker.last_error
        return self

    def stops_before(self, step: str, nth: int = 1) -> StoryAgent:
        """Work until just before an irreversible step of this name (the ``nth``), and stay there, as if frozen.

        `resumes` lets it go on; `dies` ends all of it.
        """
        left = nth
        for worker in self._led():
            more = True
            while more:
                more, act = False, worker.steps()
                for name in act:
                    left -= name == step
                    if not left:
                        self._held, self.stops_reached = act, self.stops_reached + 1
                        return self
                    more = True
        raise AssertionError(f"the agent of broker {self.index} never came to: {step}")

    def resumes(self) -> StoryAgent:
        """Let the stopped operation go on to its end; its errors are the agent's own business."""
        assert self._held is not None, "it was not stopped"
        for _ in self._held:
            pass
        self._held = None
        return self

    def looks_after_lost_topics(self) -> None:
        """Take every custodian's step that is due now, for the tier-state partitions that its broker leads."""
        if self._custodian is None:
            self._custodian = self._new_custodian()
        while run(self._custodian.steps()):
            pass

    def dies(self) -> None:
        """End as its process would: without another step, and without a last word."""
        self._held = None
        self._opened.close()

    # --- what it says --------------------------------------------------------------------------------------------

    def status(self, topic: str, partition: int) -> PartitionStatus:
        """Return the status that `describe` shows, after another look; nothing irreversible is done."""
        with suppress(TierstateError):  # while the broker is away it reports its last knowledge
            for worker in self._led() if self._held is None else ():
                if (worker.name, worker.partition.partition) == (topic, partition):
                    for _ in worker.steps():
                        break
        statuses = [each for each in self.job.leader.board.all() if (each.topic, each.partition) == (topic, partition)]
        assert statuses, f"the agent of broker {self.index} knows nothing of {topic}-{partition}"
        return statuses[0]

    def says(self, topic: str, partition: int, **sentences: str) -> StoryAgent:
        """Require sentences, as ``not_copied="…"``: a pattern that the sentence contains."""
        status = self.status(topic, partition)
        for what, pattern in sentences.items():
            sentence = str(getattr(status, what) or "")
            assert re.search(pattern, sentence), f"{what}: {sentence!r}, not {pattern!r}"
        return self

    # -------------------------------------------------------------------------------------------------------------

    def _led(self) -> list[PartitionWorker]:
        """Return the workers of partitions that its broker leads; the others rest, as in the agent's loop.

        Raises TierstateError when the broker does not answer which they are.
        """
        assert self._held is None, "it is stopped before a step: let it go on, or die"
        leader = self.job.leader
        hosted = leader.hosted()
        for partition in [*self._workers]:
            if partition not in hosted or not hosted[partition].leads:
                self._workers.pop(partition).rest()
        for partition, hosting in hosted.items():
            if hosting.leads and partition not in self._workers:
                self._workers[partition] = leader.new_worker(partition, hosting.name)
        return [self._workers[each] for each in sorted(self._workers)]

    def _new_custodian(self) -> Custodian:
        job, cluster = self.job, self.cluster
        context, control = job.leader.context, job.broker.control
        ours, replicas = cluster.sandbox.cluster_id, cluster.spec.replication_factor
        look = ClusterEvidence(control, ours, replicas, context.topic.problems, context.clock)
        policy = CustodyPolicy(LOST_FOR_MS, 0)
        custody = CustodyTools(context, look, policy, cluster.store, job.events.append)
        return Custodian(
            custody, led_by(control, cluster.spec.name, context.broker_id, context.topic.mapped_partitions)
        )

    def _advance_while_copying(self, worker: PartitionWorker) -> bool:
        act = worker.steps()
        for _ in act:
            status = self.job.leader.board.by_partition()[worker.partition]
            if status.term is not None and status.not_copied is not None:
                return False
            for _ in act:
                pass
            return True
        return False

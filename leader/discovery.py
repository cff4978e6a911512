"""Find the partitions on the disks, those of them that this broker leads, and those that changed.

The operating system reports when a file appears or disappears on the disks. Metadata is requested every `METADATA_S`
seconds, so a partition that lost its leadership rests after about that time. A result is reused while nothing changed.
Disks are listed again every `DISKS_S` seconds, whatever was reported. Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..broker.topics import TopicDescription
from ..log.local_log import LocalLog
from ..rules.reasons import Why
from ..state.epochs import LeaderEpoch
from ..state.errors import AccessDenied
from ..state.ids import BrokerId, TopicId, TopicIdPartition
from .schedule import BLIND_S, LONGEST_S, Schedule
from .term import TermContext

METADATA_S = 2.0
DISKS_S = 30.0
FACTS_S = 10.0
"""The greatest age, in seconds, of the list of partitions that have facts; it decides for excluded partitions."""
UNSEEN_S = 60.0
"""A led partition that is in no known log folder after this time must be in a folder that the agent does not know."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A partition on this broker's disks that the settings include or included. ``barred``: why it is not tiered.

    ``epoch``: the epoch in which this broker leads the partition, by the metadata. A new epoch makes a look due at
    once*: a term must begin in every epoch before the records of that epoch can be deleted.
    """

    name: str
    leads: bool
    barred: Why | None = None
    epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice for a topic. If not ``covered``, it is hosted while facts name it. ``barred``: as in `Hosted`."""

    covered: bool
    barred: Why | None = None


def led_unseen(topic: TopicDescription, broker: BrokerId, here: Collection[TopicIdPartition]) -> list[str]:
    """Return the topic's partitions (``topic-3``) that this broker leads and that are not in ``here``."""
    return [
        f"{topic.name}-{each.partition}"
        for each in topic.partitions
        if each.leader == broker and TopicIdPartition(topic.topic_id, each.partition) not in here
    ]


class Discovery:
    """Returns the hosted partitions to the agent at every reconcile. Used by one thread, except `unseen`."""

    def __init__(
        self, context: TermContext, choose: Callable[[TopicDescription], Choice | None], schedule: Schedule
    ) -> None:
        """``choose`` returns None for a topic that is of no interest at all."""
        self._log, self._broker = context.log, context.broker
        self._choose, self._with_facts, self._schedule = choose, context.view.partitions, schedule
        self._clock = context.clock
        self._uncovered = False
        self._left: frozenset[TopicIdPartition] = frozenset()
        self._looked = float("-inf")
        self._local: Mapping[TopicIdPartition, str] = {}
        self._folders: dict[str, TopicIdPartition] = {}
        self._touched: set[str] = set()
        self._topics: tuple[TopicDescription, ...] = ()
        self._away: frozenset[TopicIdPartition] = frozenset()
        self._hidden: frozenset[TopicIdPartition] = frozenset()
        self._hosted: dict[TopicIdPartition, Hosted] = {}
        self._unseen: dict[str, float] = {}
        self._listed = self._asked_at = float("-inf")

    def __call__(self) -> Mapping[TopicIdPartition, Hosted]:
        """Return the hosted partitions, as the same object while nothing changed. Call for looks at changed ones.

        Raises the errors of the disks and the cluster.
        """
        changes = self._log.touched()
        self._touched |= changes.names
        self._schedule.longest_s = BLIND_S if changes.blind else LONGEST_S
        # a folder that was no partition yet when it was listed may have become one
        disks_changed = self._list(changes.folders or not self._touched <= self._folders.keys())
        cluster_changed = self._ask(disks_changed)
        if cluster_changed or disks_changed:
            self._hosted = self._compose()
        if self._look():
            self._hosted = self._compose()
        self._schedule.call(self._folders[name] for name in self._touched if name in self._folders)
        self._touched.clear()
        return self._hosted

    def afresh(self) -> Mapping[TopicIdPartition, Hosted]:
        """Return the hosted partitions from a new listing of the disks and new metadata."""
        self._listed = self._asked_at = float("-inf")
        return self()

    def unseen(self) -> tuple[str, ...]:
        """Return partitions (``topic-3``) to be tiered that this broker leads, but that are in no known log folder.

        Both were true for `UNSEEN_S`. These partitions are not copied: a disk is not mounted here, or
        ``agent.log_dirs`` lacks a folder. Thread-safe.
        """
        now = self._clock.monotonic()
        return tuple(sorted(name for name, since in self._unseen.items() if now - since >= UNSEEN_S))

    def _list(self, at_once: bool) -> bool:
        now = self._clock.monotonic()
        if not at_once and now - self._listed < DISKS_S:
            return False
        self._listed = float("-inf")  # a listing that fails is repeated at the next call
        local = self._log.partitions()
        self._listed = now
        if local is self._local:
            return False
        changed, self._local = local != self._local, local
        self._folders = {f"{name}-{partition.partition}": partition for partition, name in local.items()}
        return changed

    def _ask(self, at_once: bool) -> bool:
        now = self._clock.monotonic()
        if not at_once and now - self._asked_at < METADATA_S:
            return False
        self._asked_at = float("-inf")
        topics = self._broker.topics()
        changed = self._look_for_hidden(topics) or topics != self._topics
        self._asked_at, self._topics = now, topics
        return changed

    def _look_for_hidden(self, topics: Collection[TopicDescription]) -> bool:
        """Find partitions on the disks that should be tiered but that the cluster hides. Return whether they changed.

        A topic that the agent may not describe is missing from the metadata, like a deleted topic.
        """
        topic_ids = {described.topic_id for described in topics}
        away = {each: name for each, name in self._local.items() if each.topic_id not in topic_ids}
        chosen = frozenset(each for each, name in away.items() if self._is_chosen(each.topic_id, name))
        if chosen == self._away:
            return False
        hidden = {each for each in {partition.topic_id for partition in chosen} if self._is_hidden(each)}
        before, self._away = self._hidden, chosen
        self._hidden = frozenset(each for each in chosen if each.topic_id in hidden)
        return before != self._hidden

    def _is_chosen(self, topic_id: TopicId, name: str) -> bool:
        choice = self._choose(TopicDescription(name, topic_id, name.startswith("__"), ()))
        return choice is not None and choice.covered and choice.barred is None

    def _is_hidden(self, topic_id: TopicId) -> bool:
        try:
            self._broker.topic_exists(topic_id, broker=self._log.broker)
        except AccessDenied:
            return True
        return False

    def _look(self) -> bool:
        """Return whether other partitions than before have facts. Checked only if some topic is not covered."""
        now = self._clock.monotonic()
        if not self._uncovered or now - self._looked < FACTS_S:
            return False
        self._looked = now
        before, self._left = self._left, frozenset(self._with_facts())
        return before != self._left

    def _compose(self) -> dict[TopicIdPartition, Hosted]:
        """Return the hosted partitions, under the topic id that each name has in the cluster now."""
        # the leader of a hidden partition is unknown: a look at it fails and shows which permission is missing
        hosted = {each: Hosted(self._local[each], leads=True) for each in self._hidden if each in self._local}
        unseen = list[str]()
        self._uncovered = False
        for described in self._topics:
            choice = self._choose(described)
            if choice is None:
                continue
            if choice.covered and choice.barred is None:
                unseen += led_unseen(described, self._log.agent_id, self._local)
            for metadata in described.partitions:
                partition = TopicIdPartition(described.topic_id, metadata.partition)
                if partition not in self._local:
                    continue
                self._uncovered = self._uncovered or not choice.covered
                if choice.covered or partition in self._left:
                    leads = metadata.leader == self._log.broker_of(partition)
                    epoch = metadata.leader_epoch if leads else None
                    hosted[partition] = Hosted(described.name, leads, choice.barred, epoch)
        now = self._clock.monotonic()
        self._unseen = {name: self._unseen.get(name, now) for name in unseen}
        return hosted


class FactsKept:
    """The facts to keep, as of the last `refresh`; none before it. Thread-safe: sets are replaced, never changed."""

    def __init__(self, log: LocalLog, led: Callable[[], Collection[int]], *, everything: bool = False) -> None:
        """``everything``: keep all facts, because this process may have to work for any partition at any time."""
        self._log, self._led, self._everything = log, led, everything
        self._listed: Mapping[TopicIdPartition, str] | None = None
        self._hosted: frozenset[TopicIdPartition] = frozenset()
        self.leads: frozenset[int] = frozenset()
        """The tier-state partitions that this broker led at the last `refresh`."""

    def keep(self, tier_partition: int, partition: TopicIdPartition) -> bool:
        """Return whether to keep facts. The custodian of a tier-state partition needs those of all partitions in it."""
        return self._everything or tier_partition in self.leads or partition in self._hosted

    def refresh(self) -> bool:
        """Update the selection and return whether it changed. Raises the errors of the disks and the cluster."""
        # the agent lists the disks whenever a folder appears or disappears; listing 2,000 folders takes 10 ms
        partitions = self._log.partitions() if self._listed is None else self._log.listed()
        leads = frozenset(self._led())
        hosted = self._hosted if partitions is self._listed else frozenset(partitions)
        changed = (hosted, leads) != (self._hosted, self.leads)
        self._listed, self._hosted, self.leads = partitions, hosted, leads
        return changed

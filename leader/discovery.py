"""Which partitions are on the disks, which of them this broker leads, and which of them something happened to.

The system tells when a file comes or goes on the disks. The metadata is asked for at most every `METADATA_S` seconds,
which is how long it takes at most until a partition whose leadership went rests, and what was learnt is kept while the
answers stay the same. Disks are listed anew every `DISKS_S` seconds, whatever was told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..broker.topics import TopicDescription
from ..rules.reasons import Why
from ..state.epochs import LeaderEpoch
from ..state.errors import AccessDenied
from ..state.ids import BrokerId, TopicId, TopicIdPartition
from .attention import BLIND_S, LONGEST_S, Attention
from .term import Seat

METADATA_S = 2.0
DISKS_S = 30.0
FACTS_S = 10.0
"""How old what the view knows of excluded partitions may be."""
UNSEEN_S = 60.0
"""A partition that this broker leads is in one of its folders by then, or in none that the agent knows."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """A partition on this broker's disks that the settings include, or did: ``barred`` says why it is not tiered.

    ``epoch``: in which this broker leads it, as the metadata has it; that it changed calls for a look*, however seldom
    they are: a term is to begin in every epoch before its records can be gone.
    """

    name: str
    leads: bool
    barred: Why | None = None
    epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Of a topic. One that is not ``covered`` stays hosted as long as facts name it; ``barred``: why not tiered."""

    covered: bool
    barred: Why | None = None


def led_unseen(topic: TopicDescription, broker: BrokerId, here: Collection[TopicIdPartition]) -> list[str]:
    """Partitions of it (``topic-3``) that this broker leads and that are not ``here``."""
    return [
        f"{topic.name}-{each.partition}"
        for each in topic.partitions
        if each.leader == broker and TopicIdPartition(topic.topic_id, each.partition) not in here
    ]


class Discovery:
    """What an agent asks at every turn. One thread."""

    def __init__(self, seat: Seat, choose: Callable[[TopicDescription], Choice | None], attention: Attention) -> None:
        """``choose``: None for a topic of no interest whatsoever."""
        self._log, self._broker, self._broker_id = seat.log, seat.broker, seat.broker_id
        self._choose, self._with_facts, self._attention = choose, seat.view.partitions, attention
        self._clock = seat.clock
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
        self._listed = self._asked = float("-inf")

    def __call__(self) -> Mapping[TopicIdPartition, Hosted]:
        """The very same object while nothing changed. Raises what the disks and the cluster raise."""
        told = self._log.touched()
        self._touched |= told.names
        self._attention.longest_s = BLIND_S if told.blind else LONGEST_S
        # a folder that was no partition yet when it was listed may have become one
        listed = self._list(told.folders or not self._touched <= self._folders.keys())
        asked = self._ask(listed)
        if asked or listed:
            self._hosted = self._compose()
        if self._look():
            self._hosted = self._compose()
        self._attention.call(self._folders[name] for name in self._touched if name in self._folders)
        self._touched.clear()
        return self._hosted

    def afresh(self) -> Mapping[TopicIdPartition, Hosted]:
        """The same, with the disks and the cluster asked now, however lately they were."""
        self._listed = self._asked = float("-inf")
        return self()

    def unseen(self) -> tuple[str, ...]:
        """Partitions (``topic-3``) to be tiered that this broker has led for `UNSEEN_S` and that are in no log folder.

        Nobody copies them. A disk is not mounted here, or ``agent.log_dirs`` lacks one. Any thread.
        """
        now = self._clock.monotonic()
        return tuple(sorted(name for name, since in self._unseen.items() if now - since >= UNSEEN_S))

    def _list(self, told: bool) -> bool:
        now = self._clock.monotonic()
        if not told and now - self._listed < DISKS_S:
            return False
        self._listed = float("-inf")  # a listing that fails comes again at once
        local = self._log.partitions()
        self._listed = now
        if local is self._local:
            return False
        changed, self._local = local != self._local, local
        self._folders = {f"{name}-{partition.partition}": partition for partition, name in local.items()}
        return changed

    def _ask(self, at_once: bool) -> bool:
        now = self._clock.monotonic()
        if not at_once and now - self._asked < METADATA_S:
            return False
        self._asked = float("-inf")
        topics = self._broker.topics()
        changed = self._look_for_hidden(topics) or topics != self._topics
        self._asked, self._topics = now, topics
        return changed

    def _look_for_hidden(self, topics: Collection[TopicDescription]) -> bool:
        """Return whether other partitions than before are on the disks, to be tiered, and hidden by the cluster.

        A topic that the agent may not describe is in no metadata, as one that was deleted.
        """
        seen = {described.topic_id for described in topics}
        away = {each: name for each, name in self._local.items() if each.topic_id not in seen}
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
            self._broker.topic_exists(topic_id, broker=self._broker_id)
        except AccessDenied:
            return True
        return False

    def _look(self) -> bool:
        """Whether facts came or went of partitions that are not covered (any more)."""
        now = self._clock.monotonic()
        if not self._uncovered or now - self._looked < FACTS_S:
            return False
        self._looked = now
        before, self._left = self._left, frozenset(self._with_facts())
        return before != self._left

    def _compose(self) -> dict[TopicIdPartition, Hosted]:
        """Under the topic id that the cluster gives the name now."""
        # nobody tells who leads a hidden one: a look at it fails with the right that lacks, and that is shown
        found = {each: Hosted(self._local[each], leads=True) for each in self._hidden if each in self._local}
        unseen = list[str]()
        self._uncovered = False
        for described in self._topics:
            choice = self._choose(described)
            if choice is None:
                continue
            if choice.covered and choice.barred is None:
                unseen += led_unseen(described, self._broker_id, self._local)
            for each in described.partitions:
                partition = TopicIdPartition(described.topic_id, each.partition)
                if partition not in self._local:
                    continue
                self._uncovered = self._uncovered or not choice.covered
                if choice.covered or partition in self._left:
                    leads = each.leader == self._broker_id
                    epoch = each.leader_epoch if leads else None
                    found[partition] = Hosted(described.name, leads, choice.barred, epoch)
        now = self._clock.monotonic()
        self._unseen = {name: self._unseen.get(name, now) for name in unseen}
        return found

"""The heartbeat of a process that may change the bucket: one small object, written again every few seconds.

A copy of a cluster has the same cluster id, topic ids, folders and keys. After the copy, each of the two clusters
lacks the records that are appended to the other cluster's tier-state topic. So a heartbeat names a record of its
writer's topic, the *signature*. A reader of the heartbeat looks for that record in the topics of the reader's cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..state.errors import CorruptData, InvalidRequest, ObjectExists, UnknownOutcome
from ..state.ids import writer_of
from ..state.keys import SIGNATURES, signature_key
from ..state.offsets import Position, TimestampMs
from ..state.view import Anchor
from ..storage.object_store import ObjectReader, ObjectWriter
from .envelope import MAX_BYTES, read_sealed, seal, unseal
from .move import Move
from .object_names import ROOT, kept_key

KIND = "heartbeat"
NO_PROOF_YET = -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``process``: a random id that the process draws when it starts. ``token``: a random id of each write, so that a
    process that was copied with its memory writes a different heartbeat.

    ``place``: the broker's address, the folders, and values that differ in a copy of the folders. An equal place shows
    a restart. ``topic_id``, ``position`` and ``sha256`` are the signature. ``answers``: ids of the processes whose
    heartbeats the writer had read before it signed, separated by spaces. ``stopped`` is 1 after a clean stop.
    ``trial_s``: seconds for which the process will delete nothing, or `NO_PROOF_YET`. ``kept``: number of the newest
    decision that gave the prefix to this cluster, or 0.
    """

    process: str
    broker_id: int
    token: str
    host: str
    place: str
    topic_id: str
    position: Position
    sha256: str
    answers: str
    stopped: int
    trial_s: int
    kept: int

    def sealed(self) -> bytes:
        return seal(KIND, self)

    @property
    def writer(self) -> str:
        return writer_of(self.broker_id)


@dataclass(frozen=True, slots=True)
class Claimant:
    """The process that claims the prefix; ``broker_id`` -1 is a command. ``period_s``: seconds between heartbeats."""

    cluster_id: str
    broker_id: int
    host: str
    place: str
    period_s: float
    trial_s: float


@dataclass(slots=True)
class SeenHeartbeat:
    """A heartbeat of another process. ``mark``: its modification time and size in the listing, to detect a new write.

    ``is_older``: it was first seen before this process had a proof. ``changed_s``: when this process last saw a change.
    """

    beat: Heartbeat
    ours: bool
    answered: bool
    is_older: bool
    mark: tuple[int, int]
    changed_s: float


def sign(topic: TierTopic, process: str) -> Anchor:
    """Append a signature to the topic and return the record's anchor. Raises UnknownOutcome and BrokerUnavailable."""
    position = topic.append(SIGNATURES, signature_key(process), None)
    record = topic.anchor_at(SIGNATURES, position)
    if record is None:
        raise UnknownOutcome("the signature is not in the tier-state topic", position=position)
    return record


OtherTopics = Callable[[str], AbstractContextManager[TierTopic | None]]
"""Opens another tier-state topic of the same cluster by its id; None if the cluster has none with this id."""


@contextmanager
def no_other_topics(topic_id: str) -> Iterator[None]:
    """Yield None. Used for a cluster with only one tier-state topic."""
    yield None


def is_signed_here(topic: TierTopic, others: OtherTopics, signed: Heartbeat | Keeper | Move) -> bool:
    """Return whether the signature is in a tier-state topic of this cluster. Raises BrokerUnavailable."""
    if signed.topic_id == topic.topic_id:
        return topic.anchor_at(SIGNATURES, signed.position) == Anchor(signed.position, signed.sha256)
    with others(signed.topic_id) as other:
        return other is not None and is_signed_here(other, no_other_topics, signed)


def read_heartbeat(store: ObjectReader, key: str) -> Heartbeat | None:
    """Return the heartbeat, or None if it was deleted. A damaged heartbeat counts as another cluster's."""
    try:
        return read_sealed(store, key, KIND, Heartbeat)
    except (CorruptData, InvalidRequest) as error:
        process = key.rsplit("/", 1)[-1]
        return Heartbeat(process, -1, "", f"unreadable: {error}", "", "", Position(0), "", "", 0, 0, 0)


KEPT = "kept"
WAY_OUT = (
    "tierstate keep-prefix shows both sides, and gives the prefix to one (docs/operations.md#a-copy-of-the-cluster)"
)
BY_A_PERSON = -1
"""Used in place of a broker id for a person's command."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """A person's decision about which cluster keeps the prefix: an object that is put once and never replaced.

    It names a signature in the topic of the cluster that keeps the prefix. From then on the other clusters neither copy
    nor delete, and their new processes write no heartbeat. ``others``: ids of their processes, separated by spaces.
    ``chosen`` is 1 if a person gave the prefix to the signature's cluster. It is 0 if a recovery only listed processes
    that had ended: no cluster loses the prefix.
    """

    number: int
    topic_id: str
    position: Position
    sha256: str
    others: str
    chosen: int
    by: str
    at: TimestampMs


def chosen_of(keepers: Iterable[Keeper]) -> Keeper | None:
    """Return the newest decision that gave the prefix to a cluster, or None. ``keepers`` must be in ascending order."""
    return next((each for each in reversed(list(keepers)) if each.chosen), None)


def read_keeper(store: ObjectReader, cluster_id: str, number: int) -> Keeper:
    """Return the decision with this number. Raises CorruptData and ObjectNotFound."""
    key = kept_key(cluster_id, number)
    return unseal(store.get(key, MAX_BYTES), KEPT, Keeper, source=key)[0]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision before it is signed and written."""

    number: int
    process: str
    others: Collection[str]
    chosen: bool
    by: str
    at: TimestampMs


def keep_prefix(store: ObjectWriter, topic: TierTopic, cluster_id: str, decision: Decision) -> Keeper:
    """Sign and write the decision. Raises InvalidRequest if another decision has the same number already."""
    record = sign(topic, decision.process)
    others, chosen = " ".join(sorted(decision.others)), int(decision.chosen)
    keeper = Keeper(
        decision.number, topic.topic_id, record.position, record.sha256, others, chosen, decision.by, decision.at
    )
    try:
        store.put_if_absent(kept_key(cluster_id, decision.number), seal(KEPT, keeper))
    except ObjectExists as error:
        raise InvalidRequest(
            "another decision has just been made about which cluster keeps the prefix: look again"
        ) from error
    return keeper


def is_empty(store: ObjectReader) -> bool:
    """Return whether the bucket has no objects outside `ROOT`."""
    outside = (next(iter(store.list("", after)), None) for after in (None, ROOT[:-1] + "0"))
    return all(each is None or each.key.startswith(ROOT) for each in outside)

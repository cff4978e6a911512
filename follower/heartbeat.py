"""The heartbeat of a process that may change the bucket: one small object, written again every few seconds.

A copy of the cluster has the same cluster id, topic ids, folders and keys. It lacks the records that were appended to
the other cluster's tier-state topic after the copy. So a heartbeat names a record of that topic, the *signature*,
and a reader of the heartbeat looks for that record in the topics of its own cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from ..broker.tier_topic import TierTopic
from ..state.anchor import Anchor
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound, UnknownOutcome
from ..state.keys import SIGNATURES, signature_key
from ..state.offsets import Position
from ..storage.object_store import ObjectReader
from .envelope import seal, unseal

KIND = "heartbeat"
NO_PROOF_YET = -1
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``process`` is drawn by the process when it starts, ``token`` for each write: a process that was copied with its
    memory draws another one.

    ``place``: the broker's address, the folders, and what differs in a copy of them: it identifies a restart.
    ``topic_id``, ``position`` and ``sha256`` are the signature; ``answers`` are the processes whose heartbeats its
    writer had read before it signed, separated by spaces. ``stopped`` is 1 after a clean stop. ``trial_s``: for so
    many seconds the process deletes nothing yet, or `NO_PROOF_YET`. ``kept``: the newest decision that gave the prefix
    to this cluster, or 0.
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


@dataclass(frozen=True, slots=True)
class Claimant:
    """The process that claims. ``broker_id`` -1: a command. ``place``: see `Heartbeat`. ``period_s``: of heartbeats."""

    cluster_id: str
    broker_id: int
    host: str
    place: str
    period_s: float
    trial_s: float


@dataclass(slots=True)
class SeenHeartbeat:
    """A heartbeat of another process. ``mark``: changes in the listing when it is written again."""

    beat: Heartbeat
    ours: bool
    answered: bool
    is_older: bool
    mark: tuple[int, int]
    changed_s: float


def sign(topic: TierTopic, process: str) -> Anchor:
    """Append a signature and return the record. Raises UnknownOutcome, BrokerUnavailable."""
    position = topic.append(SIGNATURES, signature_key(process), None)
    record = topic.anchor_at(SIGNATURES, position)
    if record is None:
        raise UnknownOutcome("the signature is not in the tier-state topic", position=position)
    return record


class Signed(Protocol):
    """A heartbeat, or a decision."""

    @property
    def topic_id(self) -> str: ...
    @property
    def position(self) -> Position: ...
    @property
    def sha256(self) -> str: ...


OtherTopics = Callable[[str], AbstractContextManager[TierTopic | None]]
"""Opens another tier-state topic of the same cluster by its id; None if the cluster has none with this id."""


@contextmanager
def no_other_topics(topic_id: str) -> Iterator[None]:
    """Yield None: for a cluster with one tier-state topic."""
    yield None


def is_signed_here(topic: TierTopic, others: OtherTopics, signed: Signed) -> bool:
    """Return whether the signature is in a tier-state topic of this cluster. Raises BrokerUnavailable."""
    if signed.topic_id == topic.topic_id:
        return topic.anchor_at(SIGNATURES, signed.position) == Anchor(signed.position, signed.sha256)
    with others(signed.topic_id) as other:
        return other is not None and is_signed_here(other, no_other_topics, signed)


def read_heartbeat(store: ObjectReader, key: str) -> Heartbeat | None:
    """Return the heartbeat, or None if it was deleted. A damaged one counts as another cluster's."""
    try:
        return unseal(store.get(key, MAX_BYTES), KIND, Heartbeat, source=key)[0]
    except ObjectNotFound:
        return None
    except (CorruptData, InvalidRequest) as error:
        process = key.rsplit("/", 1)[-1]
        return Heartbeat(process, -1, "", f"unreadable: {error}", "", "", Position(0), "", "", 0, 0, 0)

"""The heartbeat of a process that may change the bucket: one small object, written again every few seconds.

A copy of the cluster has the same cluster id, topic ids, folders and keys. What it does not have is what was appended
to the other cluster's tier-state topic after the copy. So a heartbeat names a record of that topic, the *signature*,
and whoever reads the heartbeat looks for that record in the topic of its own cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..state.anchor import Anchor
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound, UnknownOutcome
from ..state.keys import SIGNATURES, signature_key
from ..state.offsets import Position
from ..storage.object_store import ObjectReader
from .envelope import seal, unseal

KIND = "heartbeat"
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``process`` is drawn by the process when it starts, ``token`` for each write: a process that was copied with its
    memory draws another one. ``predecessor`` is the process before it, or empty.

    ``place``: host, folders and broker address, by which a restart is known from a copy. ``topic_id``, ``position``
    and ``sha256`` are the signature. ``stopped`` is 1 after a clean stop. ``trial_s``: for so many seconds the process
    deletes nothing yet. ``kept``: the newest decision about the prefix that gave it to this cluster, or 0.
    """

    process: str
    broker_id: int
    token: str
    host: str
    place: str
    topic_id: str
    position: Position
    sha256: str
    predecessor: str
    stopped: int
    trial_s: int
    kept: int

    def sealed(self) -> bytes:
        return seal(KIND, self)


def sign(topic: TierTopic, broker_id: int, process: str) -> Anchor:
    """Append a signature and return the record. Raises UnknownOutcome, BrokerUnavailable."""
    position = topic.append(SIGNATURES, signature_key(broker_id, process), None)
    record = topic.anchor_at(SIGNATURES, position)
    if record is None:
        raise UnknownOutcome("the signature is not in the tier-state topic", position=position)
    return record


def is_signed_here(topic: TierTopic, topic_id: str, position: Position, sha256: str) -> bool:
    """Return whether this record stands in this cluster's topic. Raises BrokerUnavailable."""
    if topic_id != topic.topic_id:
        return False
    return topic.anchor_at(SIGNATURES, position) == Anchor(position, sha256)


def read_heartbeat(store: ObjectReader, key: str) -> Heartbeat | None:
    """Return the heartbeat, or None if it was deleted. One that cannot be read is of a process that nobody knows."""
    try:
        return unseal(store.get(key, MAX_BYTES), KIND, Heartbeat, source=key)[0]
    except ObjectNotFound:
        return None
    except (CorruptData, InvalidRequest) as error:
        process = key.rsplit("/", 1)[-1]
        return Heartbeat(process, -1, "", f"unreadable: {error}", "", "", Position(0), "", "", 0, 0, 0)

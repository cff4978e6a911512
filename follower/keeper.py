"""A person's decision which cluster keeps the prefix: an object that both sides read, put once and never replaced.

It names a signature in the topic of the cluster that keeps the prefix, and the processes of others. The others neither
copy nor delete from then on, and no new process of theirs writes a heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..broker.tier_topic import TierTopic
from ..state.errors import InvalidRequest, ObjectExists
from ..state.offsets import Position, TimestampMs
from ..storage.object_store import ObjectReader, ObjectWriter
from .envelope import seal, unseal
from .heartbeat import sign
from .object_names import kept_key

KIND = "kept"
MAX_BYTES = 64 * 1024
BY_A_PERSON = -1
"""Instead of a broker id."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """``others``: processes of other clusters, separated by spaces. ``chosen`` is 1 if a person gave the prefix to the
    cluster of the signature, and 0 if a recovery left behind processes that had ended: that takes it from no cluster.
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
    """Return the newest decision that gave the prefix to a cluster. ``keepers``: in ascending order."""
    return next((each for each in reversed(list(keepers)) if each.chosen), None)


def read_keeper(store: ObjectReader, cluster_id: str, number: int) -> Keeper:
    """Return one decision. Raises CorruptData, ObjectNotFound."""
    key = kept_key(cluster_id, number)
    return unseal(store.get(key, MAX_BYTES), KIND, Keeper, source=key)[0]


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
    """Give the prefix to this cluster. Raises InvalidRequest if another person decided first."""
    record = sign(topic, decision.process)
    others, chosen = " ".join(sorted(decision.others)), int(decision.chosen)
    keeper = Keeper(
        decision.number, topic.topic_id, record.position, record.sha256, others, chosen, decision.by, decision.at
    )
    try:
        store.put_if_absent(kept_key(cluster_id, decision.number), seal(KIND, keeper))
    except ObjectExists as error:
        raise InvalidRequest(
            "another decision has just been made about which cluster keeps the prefix: look again"
        ) from error
    return keeper

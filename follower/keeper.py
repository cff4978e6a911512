"""A person's decision about which cluster keeps the prefix: an object that is put once and never replaced.

The decision names a signature in the topic of the cluster that keeps the prefix, and the processes of other clusters.
From then on the other clusters neither copy nor delete, and their new processes write no heartbeat.
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
WAY_OUT = (
    "tierstate keep-prefix shows both sides, and gives the prefix to one (docs/operations.md#a-copy-of-the-cluster)"
)
BY_A_PERSON = -1
"""Used in place of a broker id for a person's command."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """``others``: ids of other clusters' processes, separated by spaces. ``chosen`` is 1 if a person gave the prefix to
    the signature's cluster. It is 0 if a recovery only listed processes that had ended: no cluster loses the prefix.
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
    """Sign and write the decision. Raises InvalidRequest if another decision has the same number already."""
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

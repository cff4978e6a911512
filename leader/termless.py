"""Facts and tombstones without a term: holds, missing partitions, and what a person orders. Nothing can fence them.

So callers check a fresh view before they append one. After an unknown outcome they search the view for the fact.
"""

from __future__ import annotations

from ..broker.tier_topic import TierTopic
from ..schemas.codec import encode_fact
from ..state.facts import Fact
from ..state.ids import TopicIdPartition
from ..state.keys import key_of
from ..state.view import TierView
from .term import APPLY_TIMEOUT_S


def say(topic: TierTopic, view: TierView, partition: TopicIdPartition, fact: Fact) -> None:
    """Append a fact that no term writes, and wait until the view has applied it.

    Raises InvalidRequest if the fact is too large. After UnknownOutcome, search the view before appending it again.
    """
    _append(topic, view, partition, key_of(fact), encode_fact(fact))


def unsay(topic: TierTopic, view: TierView, partition: TopicIdPartition, key: str) -> None:
    """Append the tombstone of a key, and wait until the view has applied it. May be repeated: no key is reused."""
    _append(topic, view, partition, key, None)


def _append(topic: TierTopic, view: TierView, partition: TopicIdPartition, key: str, value: bytes | None) -> None:
    tier_partition = view.tier_partition(partition)
    position = topic.append(tier_partition, key, value)
    view.wait_applied(tier_partition, position, APPLY_TIMEOUT_S)

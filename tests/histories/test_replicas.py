"""Records that followers can read when they change from one replica of the tier-state topic to another."""

from __future__ import annotations

from random import Random

from tests.histories.topic import DAY, MAX_COMPACTION_LAG, HistoryTopic, Replica
from tests.twins.manual_clock import ManualClock

KEY = "some/key"


def erased_long_ago(max_compaction_lag: int | None) -> HistoryTopic:
    """Return a topic with an old tombstone. Replica 0 was cleaned daily, the others only when they had to be."""
    clock = ManualClock()
    topic = HistoryTopic(Random(0), clock)
    topic.land(KEY, b"value")
    topic.land(KEY, None)
    topic.land("another/key", b"value")
    for _ in range(80):
        clock.advance(DAY / 1000)
        for number, replica in enumerate(topic.replicas):
            late = max_compaction_lag is not None and clock.now_ms() - replica.cleaned_at > max_compaction_lag
            if number == 0 or late:
                topic.clean(replica, whole=True)
    return topic


def left(replica: Replica) -> list[bool]:
    """Return whether the replica still has the value, and whether it has the tombstone."""
    return [position not in replica.gone for position in (0, 1)]


def test_a_replica_whose_cleaner_never_ran_shows_what_the_others_have_forgotten() -> None:
    """A counterexample: a view that reads the value there and the rest from replica 0 keeps the value for ever."""
    topic = erased_long_ago(None)
    assert left(topic.replicas[0]) == [False, False]
    assert left(topic.replicas[1]) == [True, True]


def test_with_max_compaction_lag_no_replica_has_a_value_whose_tombstone_is_gone_elsewhere() -> None:
    topic = erased_long_ago(MAX_COMPACTION_LAG)
    values, tombstones = zip(*(left(replica) for replica in topic.replicas), strict=True)
    assert not any(values)
    assert not all(tombstones)

"""A new tier-state topic with a full bucket: no reader takes the records that the broker has left for the whole log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fetch.two_tiers import Golden, OneTopic, TwoTiers, rows_of
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.fetch.plan import plan
from tierstate.fetch.reader import LogReader
from tierstate.fetch.remote import RemoteTier
from tierstate.follower.following import Following
from tierstate.follower.open import open_view
from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import OffsetOutOfRange, TierStateLost
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset
from tierstate.storage.memory import MemoryStore
from tierstate.storage.segment.cache import ChunkCache

Make = Callable[..., Golden]
LOST = r"no fact speaks of this partition, but the bucket has segments of it; .*tierstate recover"


class Lost:
    """The state after ``tierstate init`` alone, once the topic was lost; ``lists``: how often the store was listed."""

    def __init__(self, golden: Golden, prefix: str = "") -> None:
        self.golden, self.lists = golden, 0
        golden.local.local_start = golden.folder.bases[2]
        tiers = golden.tiers
        self.topic = MemoryTierTopic()
        self.view = open_view(self.topic, "cluster", SystemClock())
        store: Any = tiers.store
        self.store: MemoryStore = store
        self.store._faults = self._count
        remote = RemoteTier(store, ChunkCache(1 << 20), SystemClock(), names=ObjectKeys(prefix))
        control: Any = OneTopic("t", tiers.partition.topic_id)
        self.reader = LogReader(self.view, control, golden.local, remote, SystemClock())

    def _count(self, operation: str, key: str, writes: int) -> None:
        self.lists += operation == "list"

    def close(self) -> None:
        self.reader.close()
        self.view.close()


@pytest.fixture
def lost(golden_log: Make) -> Iterator[Lost]:
    state = Lost(golden_log())
    yield state
    state.close()


@pytest.mark.parametrize("face", ["extent", "bounds", "scan", "fetch below", "fetch local", "by time", "plan"])
def test_every_read_reports_the_loss_and_the_way_out(lost: Lost, face: str) -> None:
    reader, start, end = lost.reader, lost.golden.local.local_start, lost.golden.local.high_watermark
    faces: dict[str, Callable[[], object]] = {
        "extent": lambda: reader.extent("t", 0),
        "bounds": lambda: reader.bounds("t", 0),
        "scan": lambda: rows_of(reader.scan("t", 0, start, end)),
        "fetch below": lambda: reader.fetch("t", 0, 0),
        "fetch local": lambda: reader.fetch("t", 0, start),
        "by time": lambda: reader.offset_for_time("t", 0, 0),
        "plan": lambda: plan(reader, {("t", 0): (Offset(start), Offset(end))}),
    }
    for _ in range(2):
        with pytest.raises(TierStateLost, match=LOST):
            faces[face]()


def test_once_it_is_recovered_reading_goes_on(lost: Lost) -> None:
    with pytest.raises(TierStateLost):
        lost.reader.extent("t", 0)
    again = TwoTiers(lost.golden.tiers.partition, "t", lost.store, lost.topic)
    again.elect(lost.golden.folder.lineage())
    again.start_log_at(0)
    assert lost.reader.extent("t", 0)[0] == 0
    again.view.close()


def test_a_view_that_is_only_behind_is_made_fresh_before_an_error(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[2]
    tail = open_view(golden.tiers.topic, "cluster", SystemClock(), Following(tail=False))  # it has read nothing so far
    control: Any = OneTopic("t", golden.tiers.partition.topic_id)
    reader = LogReader(tail, control, golden.local, golden.remote, SystemClock())
    start, end = reader.extent("t", 0)
    assert start == 0
    assert rows_of(reader.scan("t", 0, start, end)) == rows_of(golden.reader.scan("t", 0, start, end))
    tail.close()


@pytest.mark.parametrize("prefix", ["", "other/"])
def test_a_partition_that_was_never_tiered_is_the_brokers_and_its_bucket_is_asked_once(
    golden_log: Make, prefix: str
) -> None:
    state = Lost(golden_log(copies=0 if not prefix else None), prefix)
    start, end = state.reader.extent("t", 0)
    assert start == state.golden.local.local_start
    assert rows_of(state.reader.scan("t", 0, start, end))
    with pytest.raises(OffsetOutOfRange):
        state.reader.fetch("t", 0, 0)
    assert state.lists == 1
    state.close()


def test_a_broker_that_has_everything_needs_no_bucket(lost: Lost) -> None:
    lost.golden.local.local_start = 0
    assert lost.reader.extent("t", 0)[0] == 0
    assert lost.lists == 0

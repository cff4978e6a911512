"""A topic that the cluster no longer has is read by its topic id, from the remote tier alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fetch.two_tiers import Golden, golden_rows, rows_of
from tierstate.app.opening.partitions import find_partition
from tierstate.state.errors import LogGap, OffsetOutOfRange, UnknownTopic
from tierstate.state.ids import TopicIdPartition
from tierstate.state.offsets import TimestampMs
from tierstate.state.routing import Isolation, Tier

Make = Callable[..., Golden]


@pytest.fixture
def gone(golden_log: Make) -> Golden:
    golden = golden_log()
    golden.control.deleted = True
    golden.local.answers = [_nobody_asks] * 100
    return golden


def _nobody_asks() -> None:
    raise AssertionError("a broker was asked for a topic that it does not have")


def by_id(golden: Golden) -> str:
    return str(golden.tiers.partition.topic_id)


@pytest.mark.parametrize("isolation", Isolation)
def test_everything_that_was_copied_is_read(gone: Golden, isolation: Isolation) -> None:
    end = gone.segments[-1].offsets.end + 1
    assert gone.reader.extent(by_id(gone), 0, isolation=isolation) == (0, end)
    assert gone.reader.extent(by_id(gone), 0, isolation=isolation, tier=Tier.REMOTE) == (0, end)
    read = rows_of(gone.reader.scan(by_id(gone), 0, 0, end, isolation=isolation))
    assert read == [row for row in golden_rows("transactions", isolation) if row[0] < end]


def test_records_that_were_never_copied_are_out_of_range_and_not_empty(gone: Golden) -> None:
    end = gone.segments[-1].offsets.end + 1
    with pytest.raises(OffsetOutOfRange):
        gone.reader.scan(by_id(gone), 0, 0, end + 1)
    assert gone.reader.fetch(by_id(gone), 0, end).data == b""


def test_a_gap_in_what_was_copied_is_named(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    bases = golden.folder.bases
    golden.tiers.copy(golden.folder, bases[2], bases[3])
    golden.tiers.view.require_fresh(0, 0)
    golden.control.deleted = True
    with pytest.raises(LogGap):
        golden.reader.fetch(by_id(golden), 0, bases[1])


def test_a_time_is_found_in_it(gone: Golden) -> None:
    first = golden_rows("transactions", Isolation.READ_UNCOMMITTED)[0]
    assert gone.reader.offset_for_time(by_id(gone), 0, TimestampMs(first[1])) == (first[0], first[1])
    assert gone.reader.offset_for_time(by_id(gone), 0, TimestampMs(2**60)) is None


def test_the_id_of_a_topic_that_is_there_is_refused_with_its_name(golden_log: Make) -> None:
    """Its log goes on at the broker: without the broker it would end too early."""
    golden = golden_log()
    with pytest.raises(UnknownTopic, match=r"name it by its name. topic=t "):
        golden.reader.topic(by_id(golden))


def test_an_id_without_facts_and_a_name_without_a_topic_are_unknown(gone: Golden) -> None:
    for name in ("t", "AAAAAAAAAAAAAAAAAAAAAQ"):
        with pytest.raises(UnknownTopic):
            gone.reader.topic(name)


def test_a_partition_is_placed_by_name_while_there_is_one_and_by_id_afterwards(golden_log: Make) -> None:
    golden = golden_log()
    control: Any = golden.control
    place = golden.tiers.partition
    assert find_partition(control, "t", 0) == place
    with pytest.raises(UnknownTopic, match="no such partition"):
        find_partition(control, "t", 1)
    golden.control.deleted = True
    assert find_partition(control, by_id(golden), 7) == TopicIdPartition(place.topic_id, 7)
    with pytest.raises(UnknownTopic):
        find_partition(control, "t", 0)

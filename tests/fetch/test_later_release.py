"""Readers of a partition to which a later release wrote facts answer what the facts of this release show. An error that
asks for an upgrade covers what the unreadable facts may explain; it is never called a gap or a lost state.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fetch.two_tiers import NOW, Golden, golden_rows, rows_of
from tests.later_release import LATER, later_kind, later_version
from tierstate.schemas.codec import RELEASE
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import LogGap, TierStateLost, UpgradeNeeded
from tierstate.state.facts import DeleteReason, LogStartAdvanced, SegmentDeleteStarted
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import Isolation, Tier
from tierstate.storage.segment.writer import delete_segment

Make = Callable[..., Golden]


def say_later(golden: Golden, number: int = 1, ignorable_since: str | None = None) -> None:
    golden.tiers.topic.append(0, *later_kind(golden.tiers.partition, number, ignorable_since))
    golden.tiers.view.require_fresh(0, 0)


def test_questions_that_the_facts_of_this_release_decide_are_answered(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    say_later(golden)
    committed = Isolation.READ_COMMITTED
    assert rows_of(
        golden.reader.scan("t", 0, Offset(0), Offset(golden.folder.end()), isolation=committed)
    ) == golden_rows("transactions", committed)


def test_a_gap_that_a_later_fact_may_explain_asks_for_an_upgrade(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    bases = golden.folder.bases
    golden.local.local_start = bases[2]
    say_later(golden)
    with pytest.raises(UpgradeNeeded, match=LATER):
        golden.reader.fetch("t", 0, bases[1] + 5)
    with pytest.raises(UpgradeNeeded, match="upgrade this process"):
        golden.reader.offset_for_time("t", 0, TimestampMs(2**60))


def test_a_gap_next_to_an_ignorable_fact_is_a_gap(golden_log: Make) -> None:
    golden = golden_log(copies=1)
    bases = golden.folder.bases
    golden.local.local_start = bases[2]
    say_later(golden, ignorable_since=RELEASE)
    with pytest.raises(LogGap):
        golden.reader.fetch("t", 0, bases[1] + 5)


def test_a_missing_object_that_a_later_deletion_may_explain_asks_for_an_upgrade(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    segment = golden.segments[0]
    delete_segment(golden.tiers.store, segment)
    deletion = SegmentDeleteStarted(segment, golden.tiers.term, 9, DeleteReason.RETENTION_TIME, NOW)
    golden.tiers.topic.append(0, key_of(deletion), later_version(deletion))
    with pytest.raises(UpgradeNeeded, match=LATER):
        golden.reader.fetch("t", 0, 0)


def test_a_log_start_of_a_later_version_is_no_lost_fact(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    term = golden.tiers.term
    for live in golden.tiers.view.facts(golden.tiers.partition):
        if isinstance(live.fact, LogStartAdvanced):
            golden.tiers.topic.append(0, live.key, None)
    moved = LogStartAdvanced(golden.tiers.partition, Offset(0), term, 99, "retention-time", NOW)
    golden.tiers.topic.append(0, key_of(moved), later_version(moved))
    golden.tiers.view.require_fresh(0, 0)
    with pytest.raises(UpgradeNeeded, match=LATER) as error:
        golden.reader.fetch("t", 0, 0)
    assert TierStateLost.WAY_OUT not in str(error.value)


def test_a_term_of_a_later_version_is_no_missing_agent(golden_log: Make) -> None:
    golden = golden_log()
    golden.local.local_start = golden.folder.bases[-1]
    golden.local.elect(9, end=golden.folder.bases[-1])
    golden.local.epochs = [(9, golden.folder.bases[-1])]
    golden.local.epoch = LeaderEpoch(9)
    say_later(golden)
    with pytest.raises(UpgradeNeeded, match=LATER):
        golden.reader.fetch("t", 0, 0, tier=Tier.REMOTE)

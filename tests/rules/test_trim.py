"""The trim rule, one condition at a time: each alone keeps local data, and is the reason given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.state.conftest import NOW, Build
from tierstate.rules.observed import NO_GROUPS, GroupsSeen, Observed
from tierstate.rules.reasons import Reason, Why
from tierstate.rules.trim import NoTrim, TrimBefore, TrimPolicy, trim_before
from tierstate.state.epochs import Lineage
from tierstate.state.facts import IntegrityHold, LiveFact
from tierstate.state.ids import BrokerId
from tierstate.state.local_segments import LocalSegment
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.partition_view import PartitionView
from tierstate.state.retention import TopicConfig, TopicRetention
from tierstate.state.routing import LocalBounds

build = Build()
TERM = build.term(1, 0)
LINEAGE = Lineage.of((0, 0))
RETENTION = TopicRetention(-1, -1, 0, -1)
POLICY = TrimPolicy(delay_ms=1000, allow_unclean=False, unclean_elections=False)
BOUNDS = LocalBounds(Offset(0), Offset(450), Offset(450), None)
LATER = TimestampMs(NOW + 1000)
SEGMENTS = tuple(
    LocalSegment(Offset(base), Offset(min(base + 100, 400)), 1000, TimestampMs(NOW - 1)) for base in range(0, 500, 100)
)
"""0..99, 100..199, 200..299, 300..399 and the active one."""


def copied(*ranges: tuple[int, int], extra: tuple[LiveFact, ...] = (), log_start: int = 0) -> PartitionView:
    facts = [build.leader(0, 1, lineage=LINEAGE), build.log_start(1, TERM, log_start)]
    for number, (start, end) in enumerate(ranges):
        facts += [
            build.started(2 + 2 * number, number, TERM, start, end),
            build.finished(3 + 2 * number, number, TERM, start, end),
        ]
    return build.view(*facts, *extra)


ALL = copied((0, 99), (100, 199), (200, 299), (300, 399))


def why(found: TrimBefore | NoTrim) -> Reason | None:
    return found.why.kind if isinstance(found, NoTrim) else None


def seen(**changes: Any) -> Observed:
    return replace(
        Observed(SEGMENTS, Lineage.of((0, 0)), Lineage.of((0, 0)), BOUNDS, TopicConfig(), NO_GROUPS), **changes
    )


def said(found: TrimBefore | NoTrim) -> str:
    return found.why.text if isinstance(found, NoTrim) else ""


def judge(
    view: PartitionView = ALL,
    bounds: LocalBounds = BOUNDS,
    retention: TopicRetention = RETENTION,
    policy: TrimPolicy = POLICY,
    holds: dict[str, int] | None = None,
    now: int = LATER,
) -> TrimBefore | NoTrim:
    groups = GroupsSeen({group: Offset(offset) for group, offset in (holds or {}).items()})
    return trim_before(view, seen(bounds=bounds, groups=groups), retention, policy, TimestampMs(now))


def test_everything_copied_that_retention_lets_go_is_trimmed() -> None:
    assert judge() == TrimBefore(Offset(400))


def test_the_active_segment_is_never_trimmed() -> None:
    view = copied((0, 99), (100, 199), (200, 299), (300, 399), (400, 449))
    assert judge(view) == TrimBefore(Offset(400))


@pytest.mark.parametrize(
    "retention",
    [TopicRetention(-1, -1, -1, -1), TopicRetention(-1, -1, 10**6, -1), TopicRetention(-1, -1, -1, 10**9)],
)
def test_local_retention_that_keeps_everything(retention: TopicRetention) -> None:
    assert why(judge(retention=retention)) == Reason.LOCAL_RETENTION


def test_local_retention_by_size_keeps_the_newest() -> None:
    assert judge(retention=TopicRetention(-1, -1, -1, 2500)) == TrimBefore(Offset(200))


def test_local_retention_that_lets_go_only_what_is_gone_already() -> None:
    bounds = replace(BOUNDS, local_start=Offset(200))
    retention = TopicRetention(-1, -1, -1, 2500)
    assert why(judge(bounds=bounds, retention=retention)) == Reason.LOCAL_RETENTION


@pytest.mark.parametrize(
    ("ranges", "before"),
    [
        ([(0, 99)], 100),
        ([(0, 99), (200, 299)], 100),
        ([(0, 149)], 100),
        ([(0, 149), (100, 299)], 300),
        ([(0, 399)], 400),
    ],
)
def test_only_a_gap_free_prefix_of_copied_segments_goes_and_only_whole_local_segments(
    ranges: list[tuple[int, int]], before: int
) -> None:
    assert judge(copied(*ranges)) == TrimBefore(Offset(before))


@pytest.mark.parametrize("ranges", [[], [(100, 199)], [(1, 399)], [(0, 98)]])
def test_offsets_that_are_not_copied_from_the_start_on_stay(ranges: list[tuple[int, int]]) -> None:
    assert why(judge(copied(*ranges))) == Reason.NOT_COPIED


def test_the_prefix_begins_at_the_local_start_when_that_is_higher() -> None:
    bounds = replace(BOUNDS, local_start=Offset(200))
    assert judge(copied((200, 299)), bounds) == TrimBefore(Offset(300))
    assert why(judge(copied((0, 99), (300, 399)), bounds)) == Reason.NOT_COPIED


def test_the_prefix_begins_at_the_log_start_when_that_is_higher() -> None:
    assert judge(copied((200, 399), log_start=200)) == TrimBefore(Offset(400))


def test_a_young_copy_stays_local_for_the_delay() -> None:
    assert why(judge(now=LATER - 1)) == Reason.TRIM_DELAY
    assert judge(policy=replace(POLICY, delay_ms=0), now=NOW) == TrimBefore(Offset(400))


@pytest.mark.parametrize(("stable", "before"), [(450, 400), (400, 400), (399, 300), (150, 100)])
def test_nothing_above_the_last_stable_offset_goes(stable: int, before: int) -> None:
    assert judge(bounds=replace(BOUNDS, last_stable_offset=Offset(stable))) == TrimBefore(Offset(before))


def test_a_last_stable_offset_in_the_first_segment_keeps_everything() -> None:
    assert why(judge(bounds=replace(BOUNDS, last_stable_offset=Offset(99)))) == Reason.OPEN_TRANSACTION


@pytest.mark.parametrize(("offset", "before"), [(400, 400), (399, 300), (200, 200), (199, 100)])
def test_a_group_keeps_the_segment_it_reads(offset: int, before: int) -> None:
    held = ("slow",) if offset < 400 else ()
    assert judge(holds={"slow": offset, "done": 450}) == TrimBefore(Offset(before), held)


def test_the_group_furthest_behind_is_the_reason() -> None:
    decision = judge(holds={"b": 99, "a": 40, "c": 500})
    assert isinstance(decision, NoTrim)
    assert decision.held_by == ("a", "b")
    assert decision.why == Why(
        Reason.GROUP_HOLDS,
        "consumer group a still reads there, at offset 40, and 1 more group: 4,000 bytes below 400 could go otherwise",
    )


def test_no_group_loses_records_because_another_group_has_read_further() -> None:
    assert judge(holds={"ahead": 350, "behind": 150}) == TrimBefore(Offset(100), ("ahead", "behind"))


def test_a_reason_has_the_time_of_the_listing_and_only_offsets_of_groups() -> None:
    groups_seen = GroupsSeen({"new": Offset(0), "slow": Offset(40)}, None, {"new"}, TimestampMs(1_000))
    decision = trim_before(ALL, seen(groups=groups_seen), RETENTION, POLICY, LATER)
    assert said(decision).startswith(
        "consumer group new has a member there and committed nothing (asked 1970-01-01T00:00:01Z), and 1 more group: "
    )
    slow = replace(groups_seen, holds={"slow": Offset(40)})
    assert "still reads there, at offset 40 (asked " in said(
        trim_before(ALL, seen(groups=slow), RETENTION, POLICY, LATER)
    )


def test_a_group_that_is_not_what_holds_is_not_blamed() -> None:
    assert judge(copied((0, 99)), holds={"reader": 150}) == TrimBefore(Offset(100))
    assert why(judge(copied(), holds={"reader": 0})) == Reason.NOT_COPIED


def test_a_degraded_view_trims_nothing() -> None:
    view = copied((0, 399), extra=(build.unknown(9, "log-start/1/0/9"),))
    assert why(judge(view)) == Reason.DEGRADED


def test_a_hold_trims_nothing() -> None:
    hold = IntegrityHold(build.partition, build.fact_id(5), BrokerId(2), "two values", "a", "b", NOW)
    view = copied((0, 399), extra=(build.live(9, hold),))
    assert why(judge(view)) == Reason.HELD


def test_a_contradiction_trims_nothing() -> None:
    view = copied((0, 399), extra=(build.finished(9, 7, TERM, 400, 499),))
    assert why(judge(view)) == Reason.CONTRADICTION


def test_an_unknown_lineage_trims_nothing() -> None:
    term = build.term(2, 10)
    leader = build.leader(10, 2, lineage=Lineage.of((1, 100)))
    assert judge(copied((0, 399))) == TrimBefore(Offset(400))
    facts = [build.leader(0, 1), build.log_start(1, TERM, 0), build.started(2, 1, TERM), build.finished(3, 1, TERM)]
    view = build.view(*facts, leader, build.log_start(11, term, 0))
    assert view.lineage_unknown
    assert why(judge(view)) == Reason.LINEAGE_UNKNOWN


def test_without_a_log_start_nothing_is_trimmed() -> None:
    facts = [build.leader(0, 1, lineage=LINEAGE), build.started(2, 1, TERM, 0, 399), build.finished(3, 1, TERM, 0, 399)]
    assert why(judge(build.view(*facts))) == Reason.NO_LOG_START


def test_topics_with_unclean_elections_need_permission() -> None:
    unclean = replace(POLICY, unclean_elections=True)
    assert why(judge(policy=unclean)) == Reason.UNCLEAN_ELECTIONS
    assert judge(policy=replace(unclean, allow_unclean=True)) == TrimBefore(Offset(400))


def test_a_partition_with_one_segment_trims_nothing() -> None:
    decision = trim_before(ALL, seen(segments=SEGMENTS[-1:]), RETENTION, POLICY, LATER)
    assert why(decision) == Reason.ONLY_ACTIVE


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            judge(copied()),
            "offset 0 is not copied yet: 4 rolled segments of 4,000 bytes wait for it",
        ),
        (
            judge(now=LATER - 1),
            "segment 0..99 was copied 1 s ago, within trim.delay 1 s: it goes in 1 s",
        ),
        (
            judge(now=LATER - 2 * 86_400_000, retention=TopicRetention(-1, -1, -1, 0)),
            "a clock was 1 d 23 h ahead when segment 0..99 was copied; trim.delay 1 s: it goes in 2 d",
        ),
        (
            judge(bounds=replace(BOUNDS, last_stable_offset=Offset(99))),
            "a transaction is open: the last stable offset 99 is not past segment 0..99 of 1,000 bytes, "
            "for 0 s at least",
        ),
        (
            judge(retention=TopicRetention(-1, -1, 10**6, 10**9)),
            "local retention keeps the oldest local segment, 0..99: it is 2 s old, not older than local.retention.ms, "
            "16 m 40 s; segments go whole, and without it 3.9 KiB of 4.9 KiB would stay, less than "
            "local.retention.bytes, 953.7 MiB",
        ),
        (
            # more bytes than the setting stay, and the sentence says by which rule
            judge(retention=TopicRetention(-1, -1, -1, 4096)),
            "local retention keeps the oldest local segment, 0..99: segments go whole, and without it 3.9 KiB of "
            "4.9 KiB would stay, less than local.retention.bytes, 4.0 KiB",
        ),
        (
            judge(bounds=replace(BOUNDS, local_start=Offset(400))),
            "only the active segment is left on the broker, from 400 on, 1,000 bytes",
        ),
    ],
)
def test_the_reason_has_numbers(found: TrimBefore | NoTrim, sentence: str) -> None:
    assert said(found) == sentence

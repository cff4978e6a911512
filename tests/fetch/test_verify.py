"""Level 0 of verify: each contradiction of a view has one fault that causes it, and a clean view has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.state.conftest import NOW, Build
from tierstate.fetch.verify import CLOCK_TOLERANCE_MS, Finding, Severity, check_view, overlap_bytes
from tierstate.state.epochs import LeaderEpoch, Lineage
from tierstate.state.facts import (
    DeleteReason,
    IntegrityHold,
    LiveFact,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteStarted,
)
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset, TimestampMs
from tierstate.state.routing import LocalBounds
from tierstate.state.segment import RemoteSegment

BUILD = Build()
TERM = BUILD.term(1, 0)
LINEAGE = Lineage.of((0, 0), (1, 150))


def bounds(local_start: int = 300, high_watermark: int = 500) -> LocalBounds:
    return LocalBounds(Offset(local_start), Offset(high_watermark), Offset(high_watermark), LeaderEpoch(1))


def segment(number: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return BUILD.segment(number, TERM, start, end, Lineage.of(*(epochs or ((1 if start >= 150 else 0, start),))))


CLEAN = (segment(1, 0, 99), segment(2, 100, 199, (0, 100), (1, 150)), segment(3, 200, 299))


def facts(*segments: RemoteSegment) -> Iterator[LiveFact]:
    """Yield a term, its log start 0, and the facts of these copied segments."""
    yield BUILD.leader(0, 1, lineage=LINEAGE)
    yield BUILD.log_start(1, TERM, 0)
    for at, segment in enumerate(segments):
        started = BUILD.attempt(1, TERM, segment.offsets.start, segment.offsets.end)
        started = replace(started, segment_id=segment.segment_id, object_key=segment.object_key)
        yield BUILD.live(2 + 2 * at, SegmentCopyStarted(started))
        yield BUILD.live(3 + 2 * at, SegmentCopyFinished(segment))


def findings(*live: LiveFact, within: LocalBounds | None = None) -> list[Finding]:
    return list(check_view(BUILD.view(*live), within or bounds()))


def only(found: list[Finding], severity: Severity, what: str) -> Finding:
    assert [(finding.severity, what in finding.what) for finding in found] == [(severity, True)], found
    return found[0]


def test_a_clean_view_gives_no_finding() -> None:
    assert not findings(*facts(*CLEAN))
    assert not list(check_view(BUILD.view(*facts(*CLEAN)), None))
    assert not findings()
    assert overlap_bytes(BUILD.view(*facts(*CLEAN))) == 0


def test_a_gap_is_named_by_its_offsets() -> None:
    problems = findings(*facts(CLEAN[0], CLEAN[2]))
    only(problems, Severity.GAP, "offsets 100..199 belong to no tier")
    only(findings(*facts(*CLEAN), within=bounds(local_start=310)), Severity.GAP, "300..309")
    only(list(check_view(BUILD.view(*facts(CLEAN[0], CLEAN[2])), None)), Severity.GAP, "100..199")


def test_a_hole_that_the_local_tier_fills_is_no_gap() -> None:
    problems = findings(*facts(CLEAN[0], CLEAN[2]), within=bounds(local_start=100))
    only(problems, Severity.FINDING, "offsets 100..199 are local only")


def test_overlaps_are_reported_with_their_bytes() -> None:
    again = segment(4, 50, 149)
    live = list(facts(*CLEAN, again))
    problems = findings(*live)
    assert {problem.what for problem in problems} == {"overlaps others: about 500 bytes of it are served by them"}
    assert overlap_bytes(BUILD.view(*live)) == 1000


def test_a_segment_out_of_lineage_is_reported() -> None:
    other = segment(4, 160, 180, (0, 160))
    problems = findings(*facts(*CLEAN, other))
    assert only(problems, Severity.WAITING, "out of lineage").segment_id == other.segment_id


def test_an_unknown_lineage_is_reported() -> None:
    live = [BUILD.leader(0, 1, lineage=Lineage.of((1, 250))), *list(facts(*CLEAN))[1:]]
    problems = findings(*live)
    assert any(problem.what.startswith("lineage unknown") for problem in problems)
    assert any(problem.severity is Severity.GAP for problem in problems)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"leader_epochs": Lineage.of((0, 0), (1, 250))}, "epochs are not of its offsets"),
        ({"leader_epochs": Lineage.of((0, 99))}, "epochs are not of its offsets"),
        ({"record_count": 101}, "101 records do not fit"),
        ({"record_count": -1}, "-1 records do not fit"),
        ({"last_record_offset": Offset(200)}, "last record 200"),
        ({"max_timestamp": TimestampMs(-2)}, "max timestamp is -2"),
    ],
)
def test_a_descriptor_that_contradicts_itself_is_corrupt(change: dict[str, Any], what: str) -> None:
    broken = replace(CLEAN[1], **change)
    problems = [one for one in findings(*facts(CLEAN[0], broken, CLEAN[2])) if one.segment_id == broken.segment_id]
    assert any(problem.severity is Severity.CORRUPT and what in problem.what for problem in problems)


def test_a_log_cut_inside_a_segment_before_it_was_copied_is_clean_from_the_log_start_on() -> None:
    """DeleteRecords takes the epoch below its offset from the broker's checkpoint."""
    cut = replace(CLEAN[0], leader_epochs=Lineage.of((0, 40)))
    live = [*facts(cut, *CLEAN[1:])]
    at = live[-1].position + 1
    assert not findings(*live, BUILD.log_start(at, TERM, 40), within=bounds(local_start=300))
    gaps = findings(*live, BUILD.log_start(at, TERM, 39), within=bounds(local_start=300))
    assert [one.what.split(" belong")[0] for one in gaps] == ["offsets 39..39", "out of lineage: 1 of its offsets"]


def test_an_epoch_later_than_the_term_that_copied_it_is_corrupt() -> None:
    broken = replace(CLEAN[2], leader_epochs=Lineage.of((2, 200)))
    texts = [finding.what for finding in findings(*facts(*CLEAN[:2], broken)) if finding.severity is Severity.CORRUPT]
    assert texts == [f"its epoch 2 is later than the term that copied it, {TERM}"]


def test_a_max_timestamp_of_the_future_is_reported_and_a_little_skew_is_not() -> None:
    ahead = [replace(CLEAN[0], max_timestamp=TimestampMs(NOW + CLOCK_TOLERANCE_MS + more)) for more in (0, 1)]
    assert not findings(*facts(ahead[0], *CLEAN[1:]))
    only(findings(*facts(ahead[1], *CLEAN[1:])), Severity.FINDING, "later than its copy")


def test_a_recovery_restarted_the_copy_without_a_brokers_name() -> None:
    live = list(facts(*CLEAN))
    begun = [
        replace(old, fact=SegmentCopyStarted(replace(old.fact.attempt, broker_id=BrokerId(-1))))
        if isinstance(old.fact, SegmentCopyStarted)
        else old
        for old in live
    ]
    assert begun != live
    assert not findings(*begun)


def test_an_attempt_that_its_descriptor_disagrees_with_is_corrupt() -> None:
    other = replace(CLEAN[0], broker_id=BrokerId(9))
    only(findings(*facts(other, *CLEAN[1:])), Severity.CORRUPT, "broker_id is 9")
    moved = [
        replace(live, fact=SegmentCopyFinished(replace(CLEAN[0], object_key="elsewhere")))
        if live.fact == SegmentCopyFinished(CLEAN[0])
        else live
        for live in facts(*CLEAN)
    ]
    problems = findings(*moved)
    assert any(problem.severity is Severity.CORRUPT and "contradiction" in problem.what for problem in problems)


def test_a_delete_that_stands_and_one_that_describes_another_segment() -> None:
    lone = segment(9, 0, 99)
    deleted = list(facts(*CLEAN, lone))
    fact = SegmentDeleteStarted(lone, TERM, 5, DeleteReason.LOG_START, NOW)
    only(findings(*deleted, BUILD.live(50, fact)), Severity.WAITING, f"a delete stands since {NOW} (log-start)")
    fact = replace(fact, subject=replace(lone, record_count=1))
    problems = findings(*deleted, BUILD.live(50, fact))
    assert [problem.severity for problem in problems] == [Severity.WAITING, Severity.CORRUPT]


def test_a_finished_delete_and_an_abandoned_copy_are_reported() -> None:
    deleted = (BUILD.delete_started(50, 8, TERM, 5), BUILD.delete_finished(51, 8, TERM, 6))
    only(findings(*facts(*CLEAN), *deleted), Severity.WAITING, "wait to be erased")
    abandoned = (BUILD.started(50, 8, TERM), BUILD.leader(51, 1, lineage=LINEAGE))
    only(findings(*facts(*CLEAN), *abandoned), Severity.WAITING, "abandoned")


def test_a_copy_that_goes_on_is_no_finding() -> None:
    assert not findings(*facts(*CLEAN), BUILD.started(50, 8, TERM, 300, 399))


def test_a_hold_an_unreadable_fact_and_a_foreign_key_are_reported() -> None:
    hold = IntegrityHold(BUILD.partition, BUILD.fact_id(5), BrokerId(1), "two values", "a", "b", NOW)
    only(findings(*facts(*CLEAN), BUILD.live(50, hold)), Severity.FINDING, "two values: a / b")
    only(findings(*facts(*CLEAN), BUILD.unknown(50, "novelty")), Severity.CORRUPT, "degraded")


def test_a_log_start_above_the_high_watermark_is_corrupt() -> None:
    problems = findings(*facts(*CLEAN), BUILD.log_start(50, TERM, 501, 9, lineage=LINEAGE))
    only(problems, Severity.CORRUPT, "log start 501 is above the high watermark 500")
    assert not findings(*facts(*CLEAN), BUILD.log_start(50, TERM, 500, 9, lineage=LINEAGE))


def test_segments_above_the_high_watermark_are_corrupt() -> None:
    problems = findings(*facts(*CLEAN), within=bounds(200, 250))
    only(problems, Severity.CORRUPT, "remote offsets reach 299")


def test_both_are_findings_while_the_leaders_epoch_has_no_term() -> None:
    """They may belong to a branch that the leader lost."""
    newer = replace(bounds(200, 250), leader_epoch=LeaderEpoch(2))
    only(findings(*facts(*CLEAN), within=newer), Severity.FINDING, "the leader's epoch has no term yet")


def test_segments_without_a_log_start_are_reported() -> None:
    leader, _, *copied = facts(*CLEAN)
    only(findings(leader, *copied), Severity.FINDING, "no fact names a log start")


def test_a_local_start_above_the_last_trim_is_reported() -> None:
    trim = BUILD.trim(50, TERM, 200, 9)
    only(findings(*facts(*CLEAN), trim), Severity.FINDING, "the local start 300 is above the last trim 200")
    assert not findings(*facts(*CLEAN), trim, within=bounds(200))

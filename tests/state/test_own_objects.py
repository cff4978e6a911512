"""A fact may name only the objects of its own segment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tierstate.rules.trim import doubt_of
from tierstate.state.errors import CorruptData
from tierstate.state.facts import (
    LiveFact,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from tierstate.state.ids import TopicId, TopicIdPartition
from tierstate.state.object_keys import ObjectName, not_own, require_own
from tierstate.state.offsets import Offset
from tierstate.state.segment import SegmentState

if TYPE_CHECKING:
    from tests.state.conftest import Build

EVENTS = TopicIdPartition(TopicId.of(b"e" * 16), 3)


def names(build: Build) -> dict[str, str]:
    """Return the names of everything except segment 1 of the partition from offset 0 on."""
    place, sid = build.partition, build.segment_id(1)
    return {
        "another topic": str(ObjectName("orders", TopicIdPartition(EVENTS.topic_id, 3), Offset(0), sid)),
        "another partition": str(ObjectName("orders", TopicIdPartition(place.topic_id, 4), Offset(0), sid)),
        "another segment": build.object_key(2),
        "another base offset": build.object_key(1, 1),
        "one of the three objects": f"{build.object_key(1)}.log",
        "something below it": f"{build.object_key(1)}/x",
        "no name at all": "x",
        "nothing": "",
    }


def forged(live: LiveFact, key: str) -> LiveFact:
    match live.fact:
        case SegmentCopyStarted(attempt=attempt):
            return replace(live, fact=SegmentCopyStarted(replace(attempt, object_key=key)))
        case SegmentCopyFinished(segment=segment):
            return replace(live, fact=SegmentCopyFinished(replace(segment, object_key=key)))
        case SegmentDeleteStarted() | SegmentDeleteFinished() as fact:
            return replace(live, fact=replace(fact, subject=replace(fact.subject, object_key=key)))
        case _:
            raise AssertionError(live)


def test_a_segments_own_objects_are_its_own_below_any_prefix(build: Build) -> None:
    segment = build.segment(1, build.term(1, 0), 100, 199)
    for prefix in ("", "pfx", "a/b/", "0101/"):
        owner = replace(segment, object_key=f"{prefix}{segment.object_key}")
        assert not_own(owner) is None
        require_own(owner)


def test_every_other_name_is_refused_naming_both(build: Build) -> None:
    for what, key in names(build).items():
        for subject in (build.segment(1, build.term(1, 0)), build.attempt(1, build.term(1, 0))):
            with pytest.raises(CorruptData) as refused:
                require_own(replace(subject, object_key=key))
            assert str(subject.segment_id) in str(refused.value), what
            assert key in str(refused.value), what


def test_a_copy_that_names_anothers_objects_is_never_readable_and_holds_the_partition(build: Build) -> None:
    term = build.term(1, 0)
    begun = [build.leader(0, 1), build.log_start(1, term, 0)]
    for what, key in names(build).items():
        view = build.view(*begun, forged(build.started(2, 1, term), key), forged(build.finished(3, 1, term), key))
        assert view.readable == (), what
        assert view.coverage.owned == (), what
        assert build.state_of(1, view) == SegmentState.ABANDONED, what
        [contradiction] = view.contradictions
        assert contradiction.endswith(f"copy-started at 2: its object key is of another segment: {key!r}"), what
        doubt = doubt_of(view)
        assert doubt is not None, what
        assert doubt.text == f"contradiction: {contradiction}", what


def test_any_fact_that_names_anothers_objects_is_a_contradiction_also_a_fenced_one(build: Build) -> None:
    lower, higher = build.term(1, 0), build.term(2, 10)
    leaders = [build.leader(0, 1), build.leader(10, 2)]
    for term in (lower, higher):
        for live in (
            build.started(11, 1, term),
            build.finished(11, 1, term),
            build.delete_started(11, 1, term),
            build.delete_finished(11, 1, term),
        ):
            [contradiction] = build.view(*leaders, forged(live, build.object_key(2))).contradictions
            assert contradiction.startswith(f"{live.key} at 11: its object key is of another segment"), live.key


def test_other_contradictions_are_named_with_it(build: Build) -> None:
    term = build.term(1, 0)
    going, ended = build.delete_started(1, 1, term), build.finished(2, 1, term)
    [contradiction] = build.view(build.leader(0, 1), forged(going, build.object_key(2)), ended).contradictions
    assert contradiction.startswith(f"{going.key} at 1: its object key")
    assert contradiction.endswith(f"; {ended.key} at 2 after {going.key} at 1")


def test_a_fenced_delete_of_anothers_objects_takes_nothing_from_the_copy(build: Build) -> None:
    zombie, term = build.term(1, 0), build.term(2, 10)
    facts = [build.leader(0, 1), build.leader(10, 2), build.started(11, 1, term), build.finished(12, 1, term)]
    view = build.view(*facts, forged(build.delete_started(13, 1, zombie), build.object_key(2)))
    assert [segment.object_key for segment in view.readable] == [build.object_key(1)]
    assert view.contradictions


def test_own_objects_contradict_nothing(build: Build) -> None:
    term = build.term(1, 0)
    facts = [build.leader(0, 1), build.started(1, 1, term), build.finished(2, 1, term)]
    facts += [build.delete_started(3, 1, term, 1), build.delete_finished(4, 1, term, 2)]
    for many in range(len(facts) + 1):
        assert build.view(*facts[:many]).contradictions == ()

"""Contradictions become holds: once, with both facts quoted, whoever sees them; and nothing goes while one stands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.leader.world import Process, World
from tierstate.leader.act import run, run_until
from tierstate.leader.integrity import IntegrityWatch, contradictions_to_report, quoted
from tierstate.leader.trim_rule import doubt_of
from tierstate.runtime.listener import HoldReported
from tierstate.schemas.codec import MAX_FACT_BYTES, encode_fact
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import UnknownOutcome
from tierstate.state.facts import IntegrityHold, LogStartAdvanced, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.ids import BrokerId, FactId
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.segment import Term
from tierstate.state.view import SecondValue

ME, NOW = BrokerId(1), TimestampMs(17)


@pytest.fixture
def process(world: World) -> Process:
    """One segment is copied."""
    process = world.process()
    process.copy_next(process.begin())
    return process


def contradict(world: World, process: Process) -> None:
    """Somebody erases the copy-started from under its copy-finished."""
    process.view.require_fresh(0, 0)
    started = next(live for live in process.view.facts(world.partition) if isinstance(live.fact, SegmentCopyStarted))
    world.topic.append(0, started.key, None)
    process.view.require_fresh(0, 0)


def watch(process: Process) -> IntegrityWatch:
    return IntegrityWatch(process.seat, process.events.append)


def second_value(world: World, start: int = 7) -> SecondValue:
    term = Term(LeaderEpoch(0), Position(0), FactId.of(bytes(range(16))))
    first = LogStartAdvanced(world.partition, Offset(3), term, 1, "", NOW)
    other = replace(first, log_start=Offset(start))
    return SecondValue(key_of(first), Position(1), Position(2), encode_fact(first), encode_fact(other))


def test_a_contradiction_becomes_one_hold_that_quotes_the_facts(world: World, process: Process) -> None:
    contradict(world, process)
    assert run(watch(process).steps(world.partition, world.name)) == 1
    (hold,) = world.view().holds
    assert "without its copy-started" in hold.reason
    assert json.loads(hold.first)["fact"] == "SegmentCopyFinished"
    assert [event.reason for event in process.events if isinstance(event, HoldReported)] == [hold.reason]


def test_while_a_hold_stands_nothing_is_trimmed(world: World, process: Process) -> None:
    contradict(world, process)
    run(watch(process).steps(world.partition))
    assert f"{doubt_of(world.view())}".startswith("held: ")


def test_the_same_contradiction_is_reported_once_however_many_agents_see_it(world: World, process: Process) -> None:
    contradict(world, process)
    for each in (process, world.process(), world.process()):
        each.view.require_fresh(0, 0)
        for _ in range(2):
            run(watch(each).steps(world.partition))
    assert len(world.view().holds) == 1


def test_two_agents_that_look_at_the_same_moment_say_it_once(world: World, process: Process) -> None:
    contradict(world, process)
    other = world.process()
    other.view.require_fresh(0, 0)
    steps = watch(process).steps(world.partition)
    assert next(steps) == "append hold"
    run(watch(other).steps(world.partition))
    assert list(steps) == []
    assert len(world.view().holds) == 1


def test_a_hold_that_a_person_released_is_not_reported_again_by_who_has_seen_it(world: World, process: Process) -> None:
    contradict(world, process)
    own = watch(process)
    run(own.steps(world.partition))
    world.topic.append(0, key_of(world.view().holds[0]), None)
    process.view.require_fresh(0, 0)
    assert run(own.steps(world.partition)) == 0
    assert doubt_of(world.view()) is not None, "the facts still contradict each other"


def test_a_second_value_is_quoted_beside_the_first_and_told_from_another_one(world: World) -> None:
    view, seconds = world.view(), [second_value(world)]
    (hold,) = contradictions_to_report(view, seconds, ME, NOW)
    assert (json.loads(hold.first)["log_start"], json.loads(hold.second)["log_start"]) == (3, 7)
    standing = replace(view, holds=(hold,))
    assert contradictions_to_report(standing, seconds, ME, NOW) == []
    later = replace(seconds[0], second_position=Position(9))
    assert len(contradictions_to_report(standing, [*seconds, later], ME, NOW)) == 1


def test_values_nobody_can_read_are_quoted_too(world: World) -> None:
    broken = replace(second_value(world), second=b"\xc3\x01 no schema")
    (hold,) = contradictions_to_report(world.view(), [broken], ME, NOW)
    assert "fact" in json.loads(hold.second)
    encode_fact(replace(hold, id=FactId.of(bytes(16))))


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀", '"'])
def test_quotes_of_huge_facts_leave_a_fact_that_can_be_written(world: World, letter: str) -> None:
    term = Term(LeaderEpoch(0), Position(0), FactId.of(bytes(range(16))))
    fact = LogStartAdvanced(world.partition, Offset(3), term, 1, letter * 60_000, NOW)
    quote = quoted(key_of(fact), fact)
    hold = IntegrityHold(world.partition, FactId.of(bytes(16)), ME, "why", quote, quote, NOW)
    assert len(encode_fact(hold)) < MAX_FACT_BYTES
    assert quote.endswith("characters)")


def test_a_process_that_dies_before_it_says_so_leaves_it_to_the_next(world: World, process: Process) -> None:
    contradict(world, process)
    assert run_until(watch(process).steps(world.partition), 0) == []
    assert world.view().holds == ()
    other = world.process()
    other.view.require_fresh(0, 0)
    assert list(watch(other).steps(world.partition)) == ["append hold"]
    assert len(world.view().holds) == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_hold_of_unknown_outcome_stands_once_in_the_end(landed: bool, world: World, process: Process) -> None:
    contradict(world, process)

    def lose(number: int, key: str) -> None:
        world.topic.on_append = world.topic.after_append = lambda number, key: None
        raise UnknownOutcome("the network", key=key)

    if landed:
        world.topic.after_append = lose
    else:
        world.topic.on_append = lose
    own = watch(process)
    if landed:
        assert run(own.steps(world.partition)) == 1
    else:
        with pytest.raises(UnknownOutcome):
            run(own.steps(world.partition))
    run(own.steps(world.partition))
    assert len(world.view().holds) == 1


def test_a_partition_without_contradictions_is_left_alone(world: World, process: Process) -> None:
    said = len(world.topic.keys())
    assert list(watch(process).steps(world.partition)) == []
    assert len(world.topic.keys()) == said
    assert any(isinstance(live.fact, SegmentCopyFinished) for live in process.view.facts(world.partition))


def test_a_second_value_that_really_landed_is_held_and_stays_released(world: World, process: Process) -> None:
    process.view.require_fresh(0, 0)
    start = next(live.fact for live in process.view.facts(world.partition) if isinstance(live.fact, LogStartAdvanced))
    world.topic.append(0, key_of(start), encode_fact(replace(start, reason="another")))
    process.view.require_fresh(0, 0)
    own = watch(process)
    assert run(own.steps(world.partition)) == 1
    (hold,) = world.view().holds
    assert {json.loads(hold.first)["reason"], json.loads(hold.second)["reason"]} == {start.reason, "another"}
    assert run(own.steps(world.partition)) == 0
    assert process.view.second_values(world.partition) == []
    world.topic.append(0, key_of(hold), None)
    process.view.require_fresh(0, 0)
    assert run(watch(process).steps(world.partition)) == 0
    assert doubt_of(world.view()) is None

"""Second values become holds: once, quoting both, whichever agent sees them; nothing is deleted while one stands.

Facts that contradict each other need no hold: they stop everything by themselves, until a person settles them.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.leader.world import Process, World
from tests.operations import run_until
from tierstate.leader.integrity import holds_to_report, quoted, report_second_values
from tierstate.rules.trim import doubt_of
from tierstate.runtime.listener import HoldReported
from tierstate.runtime.operation import Operation, run
from tierstate.schemas.codec import MAX_FACT_BYTES, encode_fact
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.errors import UnknownOutcome
from tierstate.state.facts import (
    ContradictionSettled,
    IntegrityHold,
    LogStartAdvanced,
    SegmentCopyFinished,
    SegmentCopyStarted,
)
from tierstate.state.ids import BrokerId, FactId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.offsets import Offset, Position, TimestampMs
from tierstate.state.segment import Term
from tierstate.state.view import SecondValue

ME, NOW = BrokerId(1), TimestampMs(17)


@pytest.fixture
def process(world: World) -> Process:
    """Return a process that has copied one segment."""
    process = world.process()
    process.copy_next(process.begin())
    return process


def write_twice(world: World, process: Process) -> None:
    """Write another value under the key of the log start."""
    process.view.require_fresh(0, 0)
    start = next(live.fact for live in process.view.facts(world.partition) if isinstance(live.fact, LogStartAdvanced))
    world.topic.append(0, key_of(start), encode_fact(replace(start, reason="another")))
    process.view.require_fresh(0, 0)


def contradict(world: World, process: Process) -> str:
    """Erase the copy-started of a copy-finished. Return the contradiction."""
    process.view.require_fresh(0, 0)
    started = next(live for live in process.view.facts(world.partition) if isinstance(live.fact, SegmentCopyStarted))
    world.topic.append(0, started.key, None)
    process.view.require_fresh(0, 0)
    return world.view().contradictions[0]


def settle(world: World, contradiction: str, *, keep: bool) -> ContradictionSettled:
    fact = ContradictionSettled(world.partition, FactId.of(b"settled by ops.."), contradiction, keep, "ops", NOW)
    world.topic.append(0, key_of(fact), encode_fact(fact))
    return fact


def report(process: Process, partition: TopicIdPartition, topic: str = "") -> Operation[int]:
    return report_second_values(process.context, partition, process.events.append, topic)


def second_value(world: World, start: int = 7) -> SecondValue:
    term = Term(LeaderEpoch(0), Position(0), FactId.of(bytes(range(16))))
    first = LogStartAdvanced(world.partition, Offset(3), term, 1, "", NOW)
    other = replace(first, log_start=Offset(start))
    return SecondValue(key_of(first), Position(1), Position(2), encode_fact(first), encode_fact(other))


def test_a_contradiction_stops_everything_without_a_hold(world: World, process: Process) -> None:
    contradict(world, process)
    assert run(report(process, world.partition, world.name)) == 0
    view = world.view()
    assert (view.holds, f"{doubt_of(view)}".partition(":")[0]) == ((), "contradiction")


def test_a_settled_contradiction_stays_settled_for_every_agent(world: World, process: Process) -> None:
    settle(world, contradict(world, process), keep=False)
    for each in (process, world.process(), world.process()):
        each.view.require_fresh(0, 0)
        assert run(report(each, world.partition)) == 0
    view = world.view()
    assert (view.holds, view.contradictions, doubt_of(view)) == ((), (), None)


def test_another_contradiction_is_not_settled_with_it(world: World, process: Process) -> None:
    settle(world, contradict(world, process), keep=False)
    process.copy_next(process.begin())
    contradict(world, process)
    assert doubt_of(world.view()) is not None


def test_a_second_value_becomes_one_hold_that_quotes_both(world: World, process: Process) -> None:
    write_twice(world, process)
    assert run(report(process, world.partition, world.name)) == 1
    (hold,) = world.view().holds
    assert hold.reason.startswith("second value of ")
    assert json.loads(hold.first)["fact"] == json.loads(hold.second)["fact"] == "LogStartAdvanced"
    assert [event.reason for event in process.events if isinstance(event, HoldReported)] == [hold.reason]


def test_while_a_hold_stands_nothing_is_trimmed(world: World, process: Process) -> None:
    write_twice(world, process)
    run(report(process, world.partition))
    assert f"{doubt_of(world.view())}".startswith("held: ")


def test_the_same_second_value_is_reported_once_however_many_agents_see_it(world: World, process: Process) -> None:
    write_twice(world, process)
    for each in (process, world.process(), world.process()):
        each.view.require_fresh(0, 0)
        for _ in range(2):
            run(report(each, world.partition))
    assert len(world.view().holds) == 1


def test_two_agents_that_look_at_the_same_moment_say_it_once(world: World, process: Process) -> None:
    write_twice(world, process)
    other = world.process()
    other.view.require_fresh(0, 0)
    steps = report(process, world.partition)
    assert next(steps) == "append hold"
    run(report(other, world.partition))
    assert list(steps) == []
    assert len(world.view().holds) == 1


def test_a_second_value_is_quoted_with_the_first_and_identified(world: World) -> None:
    view, seconds = world.view(), [second_value(world)]
    (hold,) = holds_to_report(view, seconds, ME, NOW)
    assert (json.loads(hold.first)["log_start"], json.loads(hold.second)["log_start"]) == (3, 7)
    standing = replace(view, holds=(hold,))
    assert holds_to_report(standing, seconds, ME, NOW) == []
    later = replace(seconds[0], second_position=Position(9))
    assert len(holds_to_report(standing, [*seconds, later], ME, NOW)) == 1


def test_unreadable_values_are_quoted_too(world: World) -> None:
    broken = replace(second_value(world), second=b"\xc3\x01 no schema")
    (hold,) = holds_to_report(world.view(), [broken], ME, NOW)
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


def test_a_process_that_dies_before_its_hold_leaves_it_to_the_next(world: World, process: Process) -> None:
    write_twice(world, process)
    assert run_until(report(process, world.partition), 0) == []
    assert world.view().holds == ()
    other = world.process()
    other.view.require_fresh(0, 0)
    assert list(report(other, world.partition)) == ["append hold"]
    assert len(world.view().holds) == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_hold_of_unknown_outcome_stands_once_in_the_end(landed: bool, world: World, process: Process) -> None:
    write_twice(world, process)

    def lose(number: int, key: str) -> None:
        world.topic.on_append = world.topic.after_append = lambda number, key: None
        raise UnknownOutcome("the network", key=key)

    if landed:
        world.topic.after_append = lose
    else:
        world.topic.on_append = lose
    if landed:
        assert run(report(process, world.partition)) == 1
    else:
        with pytest.raises(UnknownOutcome):
            run(report(process, world.partition))
    run(report(process, world.partition))
    assert len(world.view().holds) == 1


def test_a_partition_without_second_values_is_left_alone(world: World, process: Process) -> None:
    count = len(world.topic.keys())
    assert list(report(process, world.partition)) == []
    assert len(world.topic.keys()) == count
    assert any(isinstance(live.fact, SegmentCopyFinished) for live in process.view.facts(world.partition))


def test_a_second_value_that_really_landed_is_held_and_stays_released(world: World, process: Process) -> None:
    write_twice(world, process)
    assert run(report(process, world.partition)) == 1
    (hold,) = world.view().holds
    assert {json.loads(hold.first)["reason"], json.loads(hold.second)["reason"]} == {"first term", "another"}
    assert run(report(process, world.partition)) == 0
    assert process.view.second_values(world.partition) == []
    world.topic.append(0, key_of(hold), None)
    process.view.require_fresh(0, 0)
    assert run(report(process, world.partition)) == 0
    assert doubt_of(world.view()) is None

"""A recovery that dies, loses appends, or is not alone: resumed to the same result, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.leader.recovery import Target, plan, same_meaning
from tests.leader.world import FaultyTopic, World
from tests.operations import run_until
from tierstate.leader.recover import check_target
from tierstate.leader.term import begin_term
from tierstate.runtime.operation import Operation, run
from tierstate.state.errors import Fenced, IllegalTransition, InvalidRequest, UnknownOutcome
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, Position


def steps_of(world: World) -> list[str]:
    taken: list[str] = []
    Target.fresh(world).process([plan(world)], lambda act: taken.extend(act))
    return taken


def test_the_steps_are_named(world: World) -> None:
    world.process().copy_all()
    pairs = ["append copy-started", "append copy-finished"] * len(world.rolled)
    assert steps_of(world) == ["append leader-elected", "append log-start", "append trim-intended", *pairs]


def test_a_recovery_that_dies_before_any_step_is_resumed_to_the_same_result(world: World) -> None:
    world.process().copy_all()
    recovery_plan, steps = plan(world), steps_of(world)
    for step in range(len(steps)):
        target = Target.fresh(world)
        target.process([recovery_plan], partial(run_until, step=step))
        if step:
            with pytest.raises(InvalidRequest, match="--resume"):
                target.recover([recovery_plan])
        world.clock.advance(60)
        recovered = target.recover([recovery_plan], resume=True)
        assert same_meaning(recovered, world.view())
        assert len(target.keys) == len(set(target.keys)) == len(steps)
        assert target.recover([recovery_plan], resume=True) == recovered  # and once more changes nothing
        assert len(target.keys) == len(steps)


@pytest.mark.parametrize("landed", [True, False])
def test_an_append_of_unknown_outcome_is_waited_for_and_never_repeated(landed: bool, world: World) -> None:
    world.process().copy_all()
    for at in range(4):
        topic = FaultyTopic()
        target = Target(world, topic)

        def lose(number: int, key: str, at: int = at) -> None:
            if number == at:
                raise UnknownOutcome("lost", key=key)

        if landed:
            topic.after_append = lose
            assert same_meaning(target.recover([plan(world)]), world.view())
        else:
            topic.on_append = lose
            with pytest.raises(UnknownOutcome):
                target.recover([plan(world)])
            assert same_meaning(target.recover([plan(world)], resume=True), world.view())
        assert len(target.keys) == len(set(target.keys))


def begin_blindly(world: World) -> None:
    """Begin as an agent under another key prefix, as before decision 0027: it does not see the bucket's objects."""
    context = replace(world.process().context, keys=ObjectKeys("elsewhere/"))
    run(begin_term(context, world.partition, world.name))


def test_a_topic_in_which_an_agent_wrote_is_refused(world: World) -> None:
    world.process().copy_all()
    recovery_plan = plan(world)
    world.topic = FaultyTopic(world.clock)
    begin_blindly(world)
    for resume in (False, True):
        with pytest.raises(Fenced, match="already says something of this partition"):
            Target(world, world.topic).recover([recovery_plan], resume=resume)


@pytest.mark.parametrize("step", [1, 2, 5])
def test_an_agent_that_begins_a_term_during_a_recovery_is_noticed(step: int, world: World) -> None:
    world.process().copy_all()
    recovery_plan = plan(world)
    world.topic = FaultyTopic(world.clock)

    def agent(act: Operation[int]) -> None:
        for number, _ in enumerate(act):
            if number == step:
                begin_blindly(world)

    with pytest.raises(Fenced, match="an agent runs"):
        Target(world, world.topic).process([recovery_plan], agent)


def during(target: Target, step: int, key: str, value: bool) -> Callable[[Operation[int]], None]:
    """Before a step, let the first record of such a key land once more, or erase it."""

    def live(act: Operation[int]) -> None:
        for number, _ in enumerate(act):
            if number == step:
                entries = target.topic.reader({0: Position(0)}).poll(0)[0].entries
                entry_found = next(entry for entry in entries if entry.key.endswith(key))
                target.topic.append(0, entry_found.key, entry_found.value if value else None)

    return live


@pytest.mark.parametrize("kind", ["copy-started", "copy-finished", "log-start"])
def test_a_fact_that_lands_once_more_changes_nothing(kind: str, world: World) -> None:
    world.process().copy_all()
    target = Target.fresh(world)
    key = next(key for key in steps_keys(world) if kind in key)
    assert same_meaning(target.process([plan(world)], during(target, 5, key.split("/", 2)[2], True)), world.view())


def test_a_fact_that_is_erased_during_a_recovery_is_noticed(world: World) -> None:
    world.process().copy_all()
    target = Target.fresh(world)
    with pytest.raises(IllegalTransition, match="use a fresh topic"):
        target.process([plan(world)], during(target, 5, "copy-finished", False))


def steps_keys(world: World) -> list[str]:
    target = Target.fresh(world)
    target.recover([plan(world)])
    return target.keys


def test_a_recovery_that_is_complete_is_not_called_interrupted(world: World) -> None:
    world.process().copy_all()
    target, plans = Target.fresh(world), [plan(world)]
    target.recover(plans)
    keys = target.keys
    follower = target.follower()
    assert check_target(target.topic, follower, plans, resume=False)
    follower.close()
    target.recover(plans)
    assert target.keys == keys
    half = Target.fresh(world)
    half.process(plans, lambda act: run_until(act, 4))
    with pytest.raises(InvalidRequest, match="--resume"):
        half.recover(plans)


def test_a_recovery_of_another_plan_is_not_resumed(world: World) -> None:
    process = world.process()
    session = process.begin()
    process.copy_next(session)
    process.copy_next(session)
    target = Target.fresh(world)
    target.recover([plan(world)])
    with pytest.raises(Fenced, match="another value"):
        target.recover([replace(plan(world), log_start=Offset(1))], resume=True)
    process.copy_next(session)
    with pytest.raises(Fenced, match="another plan"):
        target.recover([plan(world)], resume=True)

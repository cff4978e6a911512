"""The incremental state equals the definition after every step, whichever facts land or go, and wherever they stand."""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tierstate.state.apply import PartitionState
from tierstate.state.epochs import Lineage
from tierstate.state.facts import LiveFact
from tierstate.state.meaning import meaning

if TYPE_CHECKING:
    from tests.state.conftest import Build


def some_fact(build: Build, rnd: random.Random, position: int) -> LiveFact:
    """Return any kind of fact, of few terms and segments, so that they meet."""
    q = rnd.randrange(12)
    term = build.term(rnd.randrange(1, 4), q, rnd.choice([1000 + q] * 4 + [1]))
    segment, start = rnd.randrange(4), rnd.randrange(5) * 10
    lineage = rnd.choice([Lineage.of((0, 0)), Lineage.of((0, 0), (1, 20)), Lineage.of((1, 20)), Lineage()])
    epochs = rnd.choice([Lineage.of((0, start)), Lineage.of((1, start))])
    match rnd.randrange(14):
        case 0 | 1 | 2:
            at = position if rnd.random() < 0.5 else q
            return build.leader(at, rnd.randrange(1, 4), lineage=lineage)
        case 3:
            return build.unknown(position, f"leader/{rnd.randrange(1, 4)}/{build.fact_id(1)}")
        case 4 | 5:
            return build.started(position, segment, term, start, start + 14)
        case 6 | 7:
            return build.finished(position, segment, term, start, start + 14, epochs)
        case 8:
            return build.delete_started(position, segment, term, rnd.randrange(2))
        case 9:
            return build.delete_finished(position, segment, term, rnd.randrange(2))
        case 10:
            return build.log_start(position, term, rnd.randrange(40), rnd.randrange(2))
        case 11:
            return build.trim(position, term, rnd.randrange(40), rnd.randrange(2))
        case 12:
            return rnd.choice([build.order(position, segment), build.lease(position, segment)])
        case _:
            tail = f"segment/{build.segment_id(segment)}/copy-finished"
            return rnd.choice(
                [build.unknown(position, tail), build.unknown(position, "?"), build.deleted(position, term)]
            )


@pytest.mark.parametrize("seed", range(40))
def test_incremental_equals_definition_after_every_step(seed: int, build: Build) -> None:
    rnd = random.Random(seed)
    state, live = PartitionState(build.partition), dict[str, LiveFact]()
    free = list(range(400))  # a position holds one fact: each is used once
    for _ in range(80):
        if live and rnd.random() < 0.35:
            key = rnd.choice(sorted(live))
            state.erase(key)
            del live[key]
        else:
            fact = some_fact(build, rnd, free.pop(rnd.randrange(min(len(free), 30))))
            taken = {each.position for each in live.values() if each.key != fact.key}
            if fact.position in taken:
                continue
            state.insert(fact)
            live[fact.key] = fact
        if rnd.random() < 0.8:  # views are not asked for after every fact: changes pile up
            assert state.view() == meaning(build.partition, live.values())
            assert state.facts() == sorted(live.values(), key=lambda each: each.position)
    assert state.view() == meaning(build.partition, live.values())


def test_any_interleaving_of_landing_erasing_and_looking_agrees_with_the_definition(build: Build) -> None:
    class Steps(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.state = PartitionState(build.partition)
            self.live: dict[str, LiveFact] = {}

        @rule(seed=st.integers(0, 10_000), position=st.integers(0, 60))
        def lands(self, seed: int, position: int) -> None:
            fact = some_fact(build, random.Random(seed), position)
            if fact.position not in {each.position for each in self.live.values()}:
                self.state.insert(fact)
                self.live[fact.key] = fact

        @rule(which=st.integers(0, 1000))
        def is_erased(self, which: int) -> None:
            keys = [*sorted(self.live), "never/there"]
            key = keys[which % len(keys)]
            self.state.erase(key)
            self.live.pop(key, None)

        @invariant()
        def agrees(self) -> None:
            assert self.state.view() == meaning(build.partition, self.live.values())

    run_state_machine_as_test(Steps, settings=settings(max_examples=60, stateful_step_count=30))


def test_the_view_is_the_same_object_until_something_changes(build: Build) -> None:
    state = PartitionState(build.partition)
    state.insert(build.leader(0, 1))
    before = state.view()
    state.erase("never/there")
    assert state.view() is before
    state.insert(build.order(1, 1))
    assert state.view() is not before
    assert before.orders == ()


def test_a_second_value_under_a_key_replaces_the_first_with_its_position(build: Build) -> None:
    state = PartitionState(build.partition)
    term = build.term(1, 0)
    for fact in (build.leader(0, 1), build.finished(2, 1, term), build.leader(4, 2), build.finished(6, 1, term)):
        state.insert(fact)
    assert build.state_of(1, state.view()) == "ABANDONED"
    assert [fact.position for fact in state.facts()] == [0, 4, 6]


def test_readers_may_look_while_a_follower_applies(build: Build) -> None:
    state, term = PartitionState(build.partition), build.term(1, 0)
    state.insert(build.leader(0, 1))
    failures: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                assert state.view().term is not None
                assert state.facts()
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look) for _ in range(3)]
    facts = [build.started(at, at, term, at * 10, at * 10 + 9) for at in range(1, 200)]
    facts += [build.finished(200 + at, at, term, at * 10, at * 10 + 9) for at in range(1, 200)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # let threads meet everywhere
    try:
        for reader in readers:
            reader.start()
        for fact in facts:
            state.insert(fact)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(patience)
    assert failures == []
    assert state.view() == meaning(build.partition, state.facts())
    assert len(state.view().readable) == 199

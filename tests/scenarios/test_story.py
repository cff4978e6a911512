"""The language itself: a scenario without its declared effects fails, even if its assertions hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.story import Effect, Story, observes, telling
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


@observes(Effect.LOCAL_READ)
def test_a_scenario_that_never_reaches_the_remote_tier_fails_though_all_it_asserts_is_true(story: Story) -> None:
    given, _, then = story
    given.topic("orders").with_segments(1)

    @observes(Effect.LOCAL_READ, Effect.REMOTE_READ)
    def reads_all(story: Story) -> None:
        then.reader("orders").reads_from(0, total=11, remote=0)

    with pytest.raises(AssertionError, match=r"never observed.*remote tier"):
        reads_all(story=story)
    story.declared = (Effect.LOCAL_READ,)


def test_a_scenario_that_declares_no_effect_fails(kafka: KafkaSandbox, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="observes"), telling(kafka, tmp_path, "undeclared"):
        pass


@observes(Effect.AGENT_STOPPED)
def test_an_agent_that_never_comes_to_the_step_it_is_to_stop_before_fails_the_scenario(story: Story) -> None:
    given, when, _ = story
    given.topic("orders").with_segments(1)
    when.agent(0).stops_before("put manifest")
    when.agent_dies(0)
    with pytest.raises(AssertionError, match="never came to: put nothing"):
        when.agent(0).stops_before("put nothing")


@observes(Effect.LOCAL_READ)
def test_a_reader_that_reads_anything_but_what_was_written_fails_the_scenario(story: Story) -> None:
    given, _, then = story
    given.topic("orders").with_segments(1)
    then.reader("orders").reads_all()
    lost = story.topic("orders").written[0].pop(4)
    with pytest.raises(AssertionError):
        then.reader("orders").reads_all()
    with pytest.raises(AssertionError):
        then.reader("orders").reads_from(0, total=11, remote=0)
    story.topic("orders").written[0][4] = lost


@observes(Effect.COPIED)
def test_a_remote_tier_that_holds_other_offsets_or_bytes_fails_the_scenario(story: Story) -> None:
    given, when, then = story
    given.topic("orders").with_segments(2)
    when.agent(0).copies_all()
    then.remote("orders").holds(0, 19)
    then.local("orders").starts_at(0)
    for first, last in ((0, 9), (1, 19), (0, 20)):
        with pytest.raises(AssertionError):
            then.remote("orders").holds(first, last)
    story.topic("orders").written[0][3].value = b"another"
    with pytest.raises(AssertionError):
        then.remote("orders").holds(0, 19)
    with pytest.raises(AssertionError):
        then.remote("orders").is_empty()
    then.observed(Effect.COPIED, 2)
    with pytest.raises(AssertionError):
        then.observed(Effect.COPIED, 1)

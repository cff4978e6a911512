"""A leader is killed before each of its steps: the agent that goes on comes to the same end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaException

from tests.leader.real import eventually
from tests.scenarios.interrupted import Interrupted, interrupted, leaders
from tests.scenarios.interrupted_rows import ELSEWHERE, ROWS, Row, steps_in_source
from tests.scenarios.story import Effect, Story, observes

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

FEW = [
    Row("copied", "copier.py", "put indexes", 2),
    Row("copied", "copier.py", "append copy-finished", 2),
    Row("copied", "trimmer.py", "delete-records"),
]
TABLES = [pytest.param(FEW, id="few"), pytest.param(ROWS, id="all", marks=pytest.mark.slow)]


def test_every_step_of_a_leader_is_one_it_is_killed_before() -> None:
    tried = {row.point for row in ROWS}
    assert tried | ELSEWHERE.keys() == steps_in_source()
    assert not tried & ELSEWHERE.keys()


def elected(scene: Interrupted) -> bool:
    try:
        return not leaders(scene) & {0, None}
    except KafkaException:
        return False


@pytest.mark.parametrize("rows", TABLES)
@observes(Effect.AGENT_STOPPED, Effect.BROKER_DOWN, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_broker_that_is_killed_with_its_agent_before_any_step(story_three: Story, rows: Sequence[Row]) -> None:
    with interrupted(story_three, rows) as scene:
        when = story_three.when
        when.broker_is_killed(0).agent_dies(0)
        eventually(lambda: elected(scene), 120)
        (leader,) = leaders(scene)
        assert leader is not None
        scene.works(leader)
        when.broker_starts(0)
        assert not scene.wrong()


@pytest.mark.slow
@observes(Effect.AGENT_STOPPED, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_an_agent_that_is_killed_before_any_step_and_starts_again(story_three: Story) -> None:
    with interrupted(story_three, ROWS) as scene:
        story_three.when.agent_dies(0)
        scene.works(0)

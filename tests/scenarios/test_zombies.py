"""An agent is paused before each of its steps for longer than it leads: when it goes on, it has no effect.

Its proofs from before the pause are stale, and Kafka does not stop it: only the facts and its last looks do.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.house import House, Running, eventually
from tests.scenarios.interrupted import PATIENCE_S, Interrupted, interrupted, leadership_of_all
from tests.scenarios.interrupted_rows import COPIED, EXPIRED, FAILED, ORDERED, SWEPT, Point, Row
from tests.scenarios.story import Effect, Story, observes
from tests.scenarios.story_kafka import ClusterAdmin
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKind, object_key

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

ACTS = [*COPIED, *FAILED, *EXPIRED, *ORDERED]
FEW = [
    Row("copied", "copier.py", "append copy-started", 2),
    Row("copied", "copier.py", "append copy-finished", 2),
    Row("copied", "trimmer.py", "delete-records"),
    Row("expired", "expirer.py", "delete objects"),
]
TABLES = [
    pytest.param(FEW, id="few"),
    pytest.param(ACTS, id="acts", marks=pytest.mark.slow),
    pytest.param(SWEPT, id="sweeps", marks=pytest.mark.slow),
]
BLIND: set[Point] = {
    ("copier.py", "append copy-started"),
    ("copier.py", "append copy-finished"),
    ("copier.py", "delete own objects"),
    ("copier.py", "append delete-started"),
    ("copier.py", "append delete-finished"),
    ("expirer.py", "append delete-finished"),
    ("trimmer.py", "append trim-intended"),
}
"""Steps after which a fact is sent without another look: it reaches the topic, and is fenced there."""
GIVEN_UP: set[Point] = {("copier.py", "put log"), ("copier.py", "put indexes"), ("copier.py", "put manifest")}
"""The attempt fails at its last checks, and reports it, unless the view has seen the higher term by then."""


@dataclass(frozen=True)
class Standing:
    """The visible state of a partition: readers' records, the log start, the objects.

    Where the zombie may be copying, only objects that readers need count: its own are its to remove.
    """

    log_start: int | None
    local_start: int
    readable: tuple[RemoteSegmentId, ...]
    objects: frozenset[str]


def standing(scene: Interrupted, place: tuple[str, int]) -> Standing:
    remote = scene.story.then.remote(*place)
    view, bounds = remote.view, remote.bounds
    objects = {*remote.objects()}
    if place[0] in ("copied", "failed"):
        objects &= {object_key(each.object_key, kind) for each in view.readable for kind in ObjectKind}
    readable = tuple(each.segment_id for each in view.readable)
    return Standing(view.log_start, bounds.local_start, readable, frozenset(objects))


def everywhere(scene: Interrupted) -> dict[str, Standing]:
    return {str(row): standing(scene, place) for place, row in scene.rows.items()}


def fenced(scene: Interrupted) -> set[str]:
    """Return the rows of which a fact came too late."""
    return {str(row) for place, row in scene.rows.items() if scene.story.then.remote(*place).view.fenced}


@pytest.mark.parametrize("rows", TABLES)
@observes(Effect.AGENT_STOPPED, Effect.LEADER_MOVED, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_zombie_has_no_effect_after_another_agent_did_everything(story_three: Story, rows: Sequence[Row]) -> None:
    with interrupted(story_three, rows) as scene:
        leadership_of_all(scene, 1)
        scene.works(1)
        before = everywhere(scene)
        scene.frozen.resume()
        assert everywhere(scene) == before
        late = fenced(scene)
        assert {str(row) for row in rows if row.point in BLIND} <= late
        assert late <= {str(row) for row in rows if row.point in BLIND | GIVEN_UP}
        scene.works(1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", TABLES[1:])
@observes(Effect.AGENT_STOPPED, Effect.LEADER_MOVED, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_zombie_whose_broker_leads_again_by_then_has_no_effect(story_three: Story, rows: Sequence[Row]) -> None:
    """The epoch is a later one: the broker would accept its requests, and its proofs of the earlier one are void."""
    with interrupted(story_three, rows) as scene:
        leadership_of_all(scene, 1)
        scene.works(1)
        leadership_of_all(scene, 0)
        before = everywhere(scene)
        scene.frozen.resume()
        assert everywhere(scene) == before
        scene.works(0)


@pytest.mark.slow
@pytest.mark.parametrize("rows", TABLES[1:])
@observes(Effect.AGENT_STOPPED, Effect.LEADER_MOVED, Effect.COPIED, Effect.TRIMMED, Effect.REMOTE_READ)
def test_a_zombie_deletes_nothing_before_the_new_leaders_first_fact(story_three: Story, rows: Sequence[Row]) -> None:
    """The zombie deletes nothing, although no term fences its facts yet: they may be valid, as if appended in time."""
    with interrupted(story_three, rows) as scene:
        leadership_of_all(scene, 1)
        before = everywhere(scene)
        scene.frozen.resume()
        after = everywhere(scene)
        assert {each: state.local_start for each, state in after.items()} == {
            each: state.local_start for each, state in before.items()
        }
        lost = {each: before[each].objects - state.objects for each, state in after.items()}
        assert not any(lost.values()), lost
        scene.works(1)


# --- a process of its own --------------------------------------------------------------------------------------------


@pytest.fixture
def house(kafka_three: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    """Return a house for two agents: one for broker 0, and one for broker 1."""
    made = House(kafka_three, tmp_path / "house", f"zombie-{uuid.uuid4().hex[:6]}")
    made.run("init")
    yield made
    made.close()


def agent_beside(house: House, index: int, *flags: str) -> Running:
    own, shared = house.folder / f"agent-{index}.toml", house.config
    text = shared.read_text().replace(f'"{house.log_dir}"', f'"{house.kafka.brokers[index].log_dir}"')
    own.write_text(text.replace(f'"{house.folder / "state"}"', f'"{house.folder / f"state-{index}"}"'))
    house.config = own
    try:
        agent = house.start("agent", *flags)
    finally:
        house.config = shared
    agent.says("agent ready")
    return agent


@pytest.mark.slow
def test_an_agent_process_that_slept_through_a_move_of_its_leadership_has_no_effect(house: House) -> None:
    """SIGSTOP in the middle of a copy, like a machine that is suspended or a collector of garbage."""
    topic, admin = f"{house.name}-t", ClusterAdmin(house.kafka)
    config = {"internal_segment_bytes": "100000", "retention_ms": "-1", "local_retention_bytes": "0"}
    admin.create(topic, 1, [0, 1, 2], **config)
    eventually(lambda: admin.leader(topic, 0) == 0)
    house.append(topic, 3_000)

    def local(index: int) -> list[Path]:
        return sorted((house.kafka.brokers[index].log_dir / f"{topic}-0").glob("*.log"))

    sleeper = agent_beside(house, 0, "--set", "copy.quota=60000", "--set", "format.compression=none")
    eventually(lambda: len(house.manifests()) >= 1)
    sleeper.process.send_signal(signal.SIGSTOP)
    assert len(local(0)) > 2, "it was too fast to be stopped in the middle"
    admin.reassign(topic, 0, [1, 0, 2])
    admin.leads(topic, 0, 1)
    other = agent_beside(house, 1)
    eventually(lambda: len(local(1)) == 1, PATIENCE_S)
    readable, start = house.manifests(), int(local(1)[0].stem)

    sleeper.process.send_signal(signal.SIGCONT)
    eventually(lambda: sleeper.events("term ended"), PATIENCE_S)
    assert house.manifests() == readable
    assert int(local(1)[0].stem) == start
    eventually(lambda: {each.stem for each in house.objects()} == {each.stem for each in readable}, PATIENCE_S)
    house.append(topic, 1_500, first=3_000)
    eventually(lambda: len(local(1)) == 1 and int(local(1)[0].stem) > start, PATIENCE_S)
    assert house.holds(topic, 4_500)
    assert sleeper.stop() == 0
    assert other.stop() == 0

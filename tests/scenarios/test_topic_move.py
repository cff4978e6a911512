"""`tierstate migrate --topic` on a real broker, with an agent that copies and deletes, and with what may go wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.scenarios.house import House, eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.storage.directory import DirectoryStore

pytestmark = pytest.mark.kafka
RECORDS = 4_000
MOVE = ("migrate", "--topic", ".*-audit", "--execute")


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, topic_name: str) -> Iterator[House]:
    """Yield a house with copied segments of ``audit``, and then a rule that sends its later ones to another folder."""
    with opened_house(kafka, tmp_path, topic_name) as opened:
        with opened.config.open("a") as file:
            file.write('[custodian]\ngrace = "0s"\n[expire]\ngrace = "0s"\n')
        topic = opened.create("audit", internal_segment_bytes="20000")
        opened.append(topic, RECORDS)
        opened.run("agent", "--once")
        assert len(opened.manifests(topic)) > 20
        DirectoryStore(own_of(opened)).close()
        with opened.config.open("a") as file:
            file.write(f'[store.topics]\n".*-audit" = "{own_of(opened).as_uri()}"\n')
        yield opened


def own_of(house: House) -> Path:
    return house.folder / "own"


def copies(house: House, part: str = "") -> list[str]:
    files = (path for path in own_of(house).rglob("*rsm-manifest") if path.is_file())
    return sorted(path.name for path in files if part in str(path))


def test_a_topic_that_is_deleted_and_created_again_while_it_moves_leaves_nothing_of_its_old_id(house: House) -> None:
    topic = f"{house.name}-audit"
    topic_id = house.manifests(topic)[0].parent.parent.name[-22:]
    with house.agent():
        move = house.start(*MOVE)
        eventually(lambda: len(copies(house)) > 2 or move.process.poll() is not None)
        admin: Any = AdminClient({**house.kafka.client_config, "log_level": 0})
        admin.delete_topics([topic])[topic].result(30)
        house.create("audit", internal_segment_bytes="20000")
        house.append(topic, RECORDS)
        assert move.process.wait(120) == 0, move.err.read_text()
        house.run(*MOVE)
        eventually(lambda: not house.manifests(topic_id) and not copies(house, topic_id), 240.0)
        eventually(lambda: len(house.logs(topic)) == 1)
    house.run(*MOVE, "--finish")
    assert not [path for folder in (house.store, own_of(house)) for path in folder.rglob(f"*{topic_id}/0/*")]
    assert not house.manifests(topic)
    assert house.holds(topic, RECORDS)


def test_a_full_disk_ends_a_move_which_goes_on_when_there_is_room(house: House) -> None:
    topic = f"{house.name}-audit"
    before = house.digests(topic)
    with house.agent():
        full = house.start(*MOVE, file_bytes=1_500)
        assert full.process.wait(120) == 3
        assert "has no room" in full.err.read_text()
        house.append(topic, RECORDS, first=RECORDS)
        eventually(lambda: len(house.logs(topic)) == 1)
        assert house.holds(topic, 2 * RECORDS)
        for flags in ((), ("--finish",)):
            house.run(*MOVE, *flags)
    assert house.digests(topic)[0][1] > before[0][1]
    assert house.holds(topic, 2 * RECORDS)
    assert not house.manifests(topic)


def test_two_moves_at_once_are_refused_and_a_killed_one_is_no_obstacle_although_the_agent_is_killed_too(
    house: House,
) -> None:
    topic = f"{house.name}-audit"
    agent = house.start("agent")
    agent.says("agent ready")
    one, other = house.start(*MOVE), house.start(*MOVE)
    codes = sorted(each.process.wait(120) for each in (one, other))
    refused = one.err.read_text() + other.err.read_text()
    assert codes == [0, 0] or (codes == [0, 5] and "another command has the lock" in refused), (codes, refused)
    finish = house.start(*MOVE, "--finish")
    eventually(lambda: len(house.manifests(topic)) < len(copies(house)) or finish.process.poll() is not None)
    agent.stop(signal.SIGKILL)
    finish.stop(signal.SIGKILL)
    with house.agent():
        house.run(*MOVE, "--finish")
        assert house.holds(topic, RECORDS)
        assert not house.manifests(topic)
    house.run("verify", topic, "--level", "3")
    house.run("sweep")

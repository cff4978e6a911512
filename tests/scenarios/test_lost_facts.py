"""Facts are lost from the tier-state topic, in part or all: no process deletes by the rest, all report why, and
`tierstate recover` brings everything back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.beheading import cut
from tests.scenarios.house import House, eventually, get, opened_house, run, side_by_side
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

RECORDS = 2_500
WAY_OUT = "tierstate recover (docs/operations.md#the-tier-state-topic-is-lost)"


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    made = House(kafka, tmp_path / "house", request.node.name.removeprefix("test_")[:40].strip("_").replace("_", "-"))
    yield made
    made.close()


class Tiered:
    """A topic that is copied and trimmed; no agent runs. ``whole`` is a reader's digest of it."""

    def __init__(self, house: House) -> None:
        self.house = house
        house.run("init")
        self.topic = house.create("t")
        house.append(self.topic, RECORDS)
        self.agent()
        eventually(lambda: len(house.logs(self.topic)) == 1)
        self.whole, self.objects = house.digests(self.topic), house.objects()
        house.append(self.topic, RECORDS, first=RECORDS)  # these are to be copied

    @property
    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.house.kafka.bootstrap, "log_level": 0})

    def agent(self, code: int = 0) -> str:
        """Run an agent without earlier knowledge, until it has nothing to do."""
        shutil.rmtree(self.house.folder / "state", ignore_errors=True)
        return self.house.run("agent", "--once", code=code).stderr

    def lose(self) -> None:
        """Delete the tier-state topic, and wait until brokers know it."""
        admin, name = self.admin, self.house.tier_topic
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        eventually(lambda: name not in admin.list_topics(timeout=60).topics)

    def everybody_says(self, code: int, said: str, *commands: tuple[str, ...]) -> None:
        for done in side_by_side([partial(self.house.run, *each, code=code) for each in commands]):
            assert said in done.stderr, done.args
            assert WAY_OUT in done.stderr, done.args

    def recovers(self) -> None:
        """Recover by the documented commands, into the existing empty topic, and go on."""
        house = self.house
        assert "1 of 1 partition written" in house.run("recover", "--execute", "--agents-are-stopped").stdout
        self.agent()
        assert set(self.objects) <= set(house.objects())
        assert house.holds(self.topic, 2 * RECORDS)


def test_the_head_of_the_topic_is_cut_and_its_policy_repaired(house: House) -> None:
    tiered, topic = Tiered(house), house.tier_topic
    for partition in (0, 1):
        cut(house.kafka, topic, partition, -1)
    shutil.rmtree(house.folder / "state")
    everybody = (
        ("init",),
        ("status",),
        ("agent", "--once"),
        ("describe", tiered.topic),
        ("consume", f"{tiered.topic}:0"),
    )
    tiered.everybody_says(4, "its head is gone", *everybody)
    checked = {each["check"]: each for each in house.json("check", code=4)}
    assert not checked["tier-state topic"]["ok"]
    assert WAY_OUT in checked["tier-state topic"]["detail"]
    assert house.objects() == tiered.objects
    tiered.lose()
    assert WAY_OUT in house.run("init").stderr
    tiered.recovers()


@pytest.mark.slow
def test_the_topic_is_lost_and_made_anew_by_init_alone(house: House) -> None:
    tiered = Tiered(house)
    tiered.lose()
    tiered.everybody_says(2, "does not exist", ("describe", tiered.topic), ("consume", f"{tiered.topic}:0"))
    assert WAY_OUT in house.run("init").stderr
    nothing = "no fact speaks of this partition"
    tiered.everybody_says(4, nothing, ("consume", f"{tiered.topic}:0"), ("digest", tiered.topic))
    assert nothing in tiered.agent(code=3)
    described = house.run("describe", tiered.topic, code=4).stdout
    assert f"FACTS LOST  {nothing}" in described
    assert WAY_OUT in described
    assert [each["trouble"] for each in house.json("status", code=4)] == [["facts lost"]]
    assert house.json("verify", tiered.topic, code=4)["summary"]["corrupt"] == 1
    assert house.run("facts", tiered.topic).stdout == ""
    assert house.objects() == tiered.objects
    tiered.recovers()


def test_a_stray_client_makes_the_topic_anew_under_a_running_agent(house: House) -> None:
    tiered = Tiered(house)
    with house.agent() as agent:
        management = agent.says("agent ready")["management"]
        eventually(lambda: len(house.logs(tiered.topic)) == 1)
        tiered.whole, tiered.objects = house.digests(tiered.topic), house.objects()
        tiered.lose()
        # as auto.create.topics.enable, which the sandbox has turned off: by the broker's defaults
        admin = tiered.admin
        admin.create_topics([NewTopic(house.tier_topic, 1, 1)])[house.tier_topic].result(30)
        answer = eventually(lambda: body if (body := get(f"http://{management}/healthz"))[0] != 200 else None, 60)
        assert b"the tier-state topic was re-created" in answer[1]
        assert get(f"http://{management}/readyz")[0] == 503
        house.append(tiered.topic, 100, first=2 * RECORDS)
    checked = {each["check"]: each["detail"] for each in house.json("check", code=1)}["tier-state topic"]
    assert "was not made by tierstate init but by some client (auto.create.topics.enable)" in checked
    assert WAY_OUT in checked
    tiered.everybody_says(2, "delete it with Kafka's own tools", ("init",), ("describe", tiered.topic))
    assert house.objects() == tiered.objects
    tiered.lose()
    house.run("init")
    house.run("recover", "--execute", "--agents-are-stopped")
    assert house.holds(tiered.topic, 2 * RECORDS + 100)


def test_a_topic_that_is_lost_after_a_person_kept_the_prefix_is_recovered(kafka: KafkaSandbox, tmp_path: Path) -> None:
    """The decision is signed in the lost topic, and is void with it: a copy of the cluster would have it too."""
    with opened_house(kafka, tmp_path / "house", "kept-and-lost") as house:
        topic = house.create("t")
        house.append(topic, RECORDS)
        house.run("agent", "--once")
        house.run("keep-prefix", "--execute")
        admin: Any = AdminClient({**kafka.client_config, "log_level": 0})
        admin.delete_topics([house.tier_topic], operation_timeout=30)[house.tier_topic].result(30)
        eventually(lambda: run("init", "--config", str(house.config)).returncode == 0)
        house.run("recover", "--execute", "--agents-are-stopped")
        house.run("keep-prefix", "--execute")
        house.run("agent", "--once")
        assert house.holds(topic, RECORDS)

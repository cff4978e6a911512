"""The drill of `docs/disasters.md`: each disaster is done to a real broker, and the page's commands are typed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.beheading import cut
from tests.broker.leaders import topic_id_of
from tests.docs.blocks import executed
from tests.scenarios.house import Done, House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

BLOCKS = executed("docs/disasters.md", __file__)
RECORDS = 2_500


def commands(title: str) -> list[list[str]]:
    """Return the commands of the page's section with this title, word by word."""
    (block,) = [each for each in BLOCKS if each.heading == title]
    return [line.split() for line in block.commands()]


class Drill:
    """A topic that is copied and trimmed; no agent runs."""

    def __init__(self, house: House) -> None:
        self.house, self.admin = house, _admin(house)
        house.run("init")
        self.topic = house.create("t")
        house.append(self.topic, RECORDS)
        house.run("agent", "--once")
        eventually(lambda: len(house.logs(self.topic)) == 1)
        self.whole, self.objects = house.digests(self.topic), house.objects()
        self.id = house.json("describe", self.topic)[0]["topic_id"]

    def types(self, title: str, *flags: str, recover: tuple[str, ...] = ()) -> list[Done]:
        """Run every command of a section, each of which ends with 0. ``recover``: flags of that command alone."""
        done = []
        for program, *words in commands(title):
            if program == "kafka-topics.sh":
                assert words[2:] == ["--delete", "--topic", "_tier-state"]
                self.delete(self.house.tier_topic)
                continue
            meant = {"orders": self.topic, "ID:0": f"{self.id}:0"}
            more = (*flags, *recover) if words[0] == "recover" else flags
            done.append(self.house.run(*(meant.get(word, word) for word in words), *more))
        return done

    def delete(self, topic: str) -> None:
        deleted(self.house, topic)

    def nothing_is_lost(self) -> None:
        assert self.house.digests(self.topic) == self.whole
        assert self.house.objects() == self.objects


def deleted(house: House, topic: str) -> None:
    """Delete the topic, and wait until brokers know it."""
    admin = _admin(house)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=60).topics)


def _admin(house: House) -> Any:
    return AdminClient({"bootstrap.servers": house.kafka.bootstrap, "log_level": 0})


@pytest.fixture
def drill(kafka: KafkaSandbox, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Drill]:
    house = House(kafka, tmp_path / "house", request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-"))
    try:
        yield Drill(house)
    finally:
        house.close()


def test_the_tier_state_topic_was_deleted(drill: Drill) -> None:
    drill.delete(drill.house.tier_topic)
    drill.types("The tier-state topic was deleted")
    drill.nothing_is_lost()


@pytest.mark.slow  # recovered in the same way as a deleted topic
def test_its_head_is_gone(drill: Drill) -> None:
    for partition in (0, 1):
        cut(drill.house.kafka, drill.house.tier_topic, partition, -1)
    shutil.rmtree(drill.house.folder / "state")
    assert "its head is gone" in drill.house.run("agent", "--once", code=4).stderr
    drill.types("Its head is gone")
    drill.nothing_is_lost()


@pytest.mark.slow
def test_the_cluster_is_lost(drill: Drill) -> None:
    """An old topic does not exist in this cluster; its tier-state topic is named, as its cluster would be."""
    house, old = drill.house, topic_id_of(drill.house.kafka.client_config, drill.house.tier_topic)
    copied = house.run("consume", f"{drill.topic}:0", "--tier", "remote").stdout
    drill.delete(drill.topic)
    beside = ("--set", f"tier_state.topic={house.tier_topic}-new")
    house.run("init", *beside)
    new = house.create("new")
    house.append(new, RECORDS)
    house.run("agent", "--once", *beside, "--set", f'tiering.include=["{new}"]')
    *_, segments, consumed = drill.types("The cluster is lost, the bucket is not", *beside, recover=("--topic-id", old))
    assert len(segments.stdout.splitlines()) == 1 + len(house.manifests(drill.topic))
    assert consumed.stdout == copied

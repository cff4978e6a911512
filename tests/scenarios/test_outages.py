"""Outages under a running agent: nothing is lost, nothing is trimmed during them, and it goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import House, eventually
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka

NewHouse = Callable[..., House]


@pytest.fixture
def new_house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NewHouse]:
    made: list[House] = []

    def make(kafka: KafkaSandbox) -> House:
        name = request.node.name.removeprefix("test_").replace("_", "-")[:60]
        made.append(House(kafka, tmp_path / "house", name))
        made[-1].run("init")
        return made[-1]

    yield make
    for house in made:
        house.close()


def tiered(house: House, topic: str, partition: int = 0) -> bool:
    """Return whether everything rolled is in the store, and deleted from the broker's disk."""
    return len(house.logs(topic, partition)) == 1


def flip(file: Path, position: int) -> None:
    """Flip every bit of one byte."""
    with file.open("r+b") as log:
        log.seek(position)
        byte = log.read(1)[0]
        log.seek(position)
        log.write(bytes([byte ^ 0xFF]))


def test_a_corrupt_segment_is_refused_and_reported_while_others_go_on(kafka: KafkaSandbox, new_house: NewHouse) -> None:
    house = new_house(kafka)
    topic = house.create("t", partitions=2)
    for partition in (0, 1):
        house.append(topic, 3_000, partition)
    first, segments = house.logs(topic)[0], len(house.logs(topic))
    assert segments >= 3
    flip(first, 300)
    with house.agent() as agent:
        eventually(lambda: tiered(house, topic, 1))
        eventually(lambda: f'tierstate_remote_copy_errors_total{{topic="{topic}"}} 0.0' not in agent.metrics())
        output = house.run("describe", f"{topic}:0").stdout
        assert "remote tier   nothing" in output
        assert re.search(rf"not copied +\S.*CRC.*file={first} position=0", output), output
        assert not house.manifests(f"/0/{first.stem}")
        assert len(house.logs(topic)) == segments, "something was trimmed"

        flip(first, 300)
        eventually(lambda: tiered(house, topic, 0))
    assert house.holds(topic, 3_000)


def test_a_full_disk_of_the_store_fails_the_copy_clean_and_a_roomier_one_finishes(
    kafka: KafkaSandbox, new_house: NewHouse
) -> None:
    house = new_house(kafka)
    topic = house.create("t")
    house.append(topic, 3_000)
    segments = len(house.logs(topic))
    with house.agent("--set", "format.compression=none", file_bytes=50_000):
        answer = eventually(lambda: house.last_error(topic))
        assert "no room" in answer
        assert house.objects() == [], "a part of an object can be seen"
        assert len(house.logs(topic)) == segments, "something was trimmed"
    assert list((house.store / ".tierstate-tmp").iterdir()) == []
    with house.agent():
        eventually(lambda: tiered(house, topic))
    assert len(house.manifests()) == segments - 1
    assert house.holds(topic, 3_000)


def test_a_store_that_is_taken_away_stops_copying_and_trimming_until_it_is_back(
    kafka: KafkaSandbox, new_house: NewHouse
) -> None:
    house = new_house(kafka)
    topic = house.create("t")
    house.append(topic, 1_500)
    with house.agent():
        eventually(lambda: tiered(house, topic))
        away = house.store.rename(house.folder / "away")
        house.append(topic, 1_500, first=1_500)
        segments = len(house.logs(topic))
        assert segments > 1
        assert eventually(lambda: house.last_error(topic))
        assert not house.store.exists(), "something was written beside the store"
        assert len(house.logs(topic)) == segments, "something was trimmed"
        away.rename(house.store)
        eventually(lambda: tiered(house, topic))
    assert house.holds(topic, 3_000)


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_is_served_on_without_gap_or_duplicate(new_house: NewHouse) -> None:
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    with KafkaSandbox(properties=quick) as own:
        house = new_house(own)
        topic = house.create("t")
        house.append(topic, 1_500)
        with house.agent():
            eventually(lambda: len(house.manifests()) >= 1)
            own.kill(0)
            own.start(0)
            eventually(lambda: tiered(house, topic))
            house.append(topic, 1_500, first=1_500)
            eventually(lambda: len(house.logs(topic)) > 1)
            eventually(lambda: tiered(house, topic))
        assert house.holds(topic, 3_000)

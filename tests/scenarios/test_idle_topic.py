"""A topic with few writes: Kafka's retention deletes its active segment, which was never rolled and copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import House, eventually, run
from tierstate.sandbox.kafka import KafkaSandbox

RETENTION_S = 15


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path) -> Iterator[House]:
    opened = House(kafka, tmp_path / "house", "idle")
    yield opened
    opened.close()


@pytest.mark.slow
def test_an_idle_topic_whose_records_expire_before_they_are_copied_is_read_on_from_what_is_left(house: House) -> None:
    house.run("init")
    topic = house.create("quiet", retention_ms=str(RETENTION_S * 1000))
    house.append(topic, 1500)
    with house.agent("--set", "expire.grace=0s"):
        eventually(lambda: house.manifests(topic), 60)
        expired = eventually(lambda: described(house, topic, local_log_start_offset=1500), 120)
        assert expired["high_watermark"] == 1500, "the broker has nothing more"
        passed = eventually(lambda: described(house, topic, local_log_start_offset=1500, log_start_offset=1500), 60)
        assert passed["gaps"] == []
        assert passed["cut_elsewhere"] is None
        sentence = [fact["reason"] for fact in house.lines("facts", f"{topic}:0") if fact["fact"] == "LogStartAdvanced"]
        assert any("which left the broker before they were copied" in each for each in sentence), sentence
        house.append(topic, 10, first=1500)
        assert house.run("consume", f"{topic}:0", "--format", "%o\\n").stdout.split() == [*map(str, range(1500, 1510))]


def described(house: House, topic: str, **wanted: int) -> dict[str, object] | None:
    done = run("describe", f"{topic}:0", "--json", "--config", str(house.config))  # 4 until the log start has followed
    (description,) = json.loads(done.stdout)
    return description if all(description[name] == value for name, value in wanted.items()) else None

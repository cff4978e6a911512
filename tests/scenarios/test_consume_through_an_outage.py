"""`consume --follow` goes on after an outage of Kafka, and skips and repeats nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.scenarios.house import eventually, opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


def test_a_follower_says_that_it_waits_and_goes_on_where_it_was(kafka_own: KafkaSandbox, tmp_path: Path) -> None:
    with opened_house(kafka_own, tmp_path / "house", "outage") as house:
        topic = house.create("t")
        house.append(topic, 2_500)
        house.run("agent", "--once")
        following = house.start("consume", topic, "--follow")
        eventually(lambda: following.out.read_bytes().count(b"\n") == 2_500)
        kafka_own.kill(0)
        try:
            eventually(lambda: "waiting until it answers" in following.err.read_text())
        finally:
            kafka_own.start(0)
        house.append(topic, 500, first=2_500)
        eventually(lambda: following.out.read_bytes().count(b"\n") >= 3_000)
        assert following.stop(signal.SIGINT) == 130
        lines = following.out.read_text().splitlines()
        assert [json.loads(each)["offset"] for each in lines] == [*range(3_000)]

"""A broker dies after a trim, before its log start is on disk. Its log begins lower; an agent by Fetch goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.house import eventually
from tests.tail.test_leaders_that_move import LARGE, FetchHouse, copied_to, findings
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_an_agent_goes_on_after_its_broker_died_behind_a_trim(tmp_path: Path) -> None:
    with KafkaSandbox(1) as kafka:
        house = FetchHouse(kafka, tmp_path, "dead-broker")
        try:
            house.run("init")
            topic = house.create("died", 1, **LARGE)

            def facts() -> dict[str, int]:
                return dict(house.json("describe", f"{topic}:0")[0])

            with house.agent():
                house.append(topic, 600)
                eventually(lambda: facts()["local_log_start_offset"] > 0, 120)
            kafka.kill(0)
            (kafka.brokers[0].log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
            kafka.start(0)
            kafka.stop(0)
            kafka.start(0)
            assert facts()["local_log_start_offset"] == 0
            with house.agent():
                house.append(topic, 600, first=600)
                eventually(lambda: copied_to(house, topic) >= 1199, 120)
                eventually(lambda: facts()["local_log_start_offset"] > 600, 120)
            assert house.holds(topic, 1200)
            assert findings(house, topic) == []
            assert "LOST BRANCH" not in house.run("describe", f"{topic}:0").stdout
        finally:
            house.close()

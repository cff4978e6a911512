"""An agent whose machine's clock is two days ahead deletes nothing, and every status shows why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios import house as houses
from tests.scenarios.house import House, eventually
from tests.scenarios.reasons_world import shows
from tierstate.rules.reasons import Reason
from tierstate.sandbox.kafka import KafkaSandbox

METRIC = "tierstate_clock_difference_seconds{"
TWO_DAYS_AHEAD = """
import sys, time
right = time.time_ns
time.time_ns = lambda: right() + 2 * 86_400 * 10**9
from tierstate.cli.main import main
sys.exit(main())
"""


@pytest.fixture
def house(kafka: KafkaSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    opened = House(kafka, tmp_path / "house", "ahead")
    monkeypatch.setattr(houses, "TIERSTATE", [sys.executable, "-c", TWO_DAYS_AHEAD])
    yield opened
    opened.close()


@shows(Reason.CLOCKS_DISAGREE)
@pytest.mark.slow
def test_an_agent_two_days_ahead_deletes_nothing_and_says_why(house: House) -> None:
    house.run("init")
    topic = house.create("fresh", retention_ms="86400000", local_retention_bytes="-2")
    house.append(topic, 1500)
    with house.agent("--set", "expire.grace=0s", "--set", "trim.delay=0s") as agent:
        copied = eventually(lambda: house.manifests(topic), 60)
        eventually(lambda: says(house, topic, Reason.CLOCKS_DISAGREE), 60)
        assert len(house.manifests(topic)) >= len(copied)
        ahead = [line for line in agent.metrics().splitlines() if line.startswith(METRIC)]
        assert all(float(each.rpartition(" ")[2]) > 86_400 for each in ahead), ahead
        assert ahead
    assert house.json("describe", f"{topic}:0")[0]["log_start_offset"] == 0
    checked = house.start("check")
    eventually(lambda: checked.process.poll() is not None, 60)
    output = checked.out.read_text() + checked.err.read_text()
    assert "the clocks differ by" in output
    assert checked.process.returncode != 0
    assert house.run("consume", f"{topic}:0", "--format", "%o\\n").stdout.split() == [*map(str, range(1500))]


def says(house: House, topic: str, reason: Reason) -> bool:
    """Return whether the agent names this reason for keeping everything once all rolled segments are copied."""
    agent = house.json("describe", f"{topic}:0")[0]["agent"]
    return isinstance(agent, dict) and not agent["copy_lag_segments"] and agent["not_expired_reason"] == reason

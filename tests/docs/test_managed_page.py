"""`docs/managed.md`: its settings and commands copy a topic, with nothing but a broker's address and a store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import executed
from tests.scenarios.house import House, eventually, run
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
COPIED_S = 300.0
"""Seconds for a start, the group's first rebalance, and a copy, with the default periods and on a busy machine."""
SETTINGS, COMMANDS = executed("docs/managed.md", __file__)


def settings_for(kafka: KafkaSandbox, folder: Path, topic: str) -> str:
    """Return the page's settings with places of a test, and without the logins that its broker does not ask for."""
    text = re.sub(r'"(security|sasl)\..*\n', "", SETTINGS.code)
    meant = {
        "/var/lib/tierstate": str(folder / "state"),
        "broker-1.example:9093": kafka.bootstrap,
        "s3://BUCKET/tier": (folder / "bucket").as_uri(),
        '"orders"': f'"{topic}"',
    }
    for shown, here in meant.items():
        assert shown in text
        text = text.replace(shown, here)
    return text + '[copy]\nroll_after = "1s"\n[tier_state]\ntopic = "_tiers-managed"\nreplication_factor = 1\n'


def test_the_commands_of_the_page_copy_a_topic(kafka: KafkaSandbox, tmp_path: Path) -> None:
    house = House(kafka, tmp_path / "house", "managed")
    topic = house.create("orders", partitions=3)
    house.append(topic, 500)
    (tmp_path / "bucket").mkdir()
    house.config.write_text(settings_for(kafka, tmp_path, topic))
    (init, created), (check, rows), (agent, _) = COMMANDS.examples()
    printed = run(*init.split()[1:], "--config", str(house.config)).stdout
    assert printed.splitlines() == [created[0].replace("_tier-state", "_tiers-managed")]
    printed = run(*check.split()[1:], "--config", str(house.config)).stdout
    lines = {line.split("  ")[0]: line.split() for line in printed.splitlines()}
    for row in rows:
        if row != "…":
            assert lines[row.split("  ")[0]] == row.split()
    running = house.start(*agent.split()[1:])
    try:
        eventually(lambda: (house.json("describe", f"{topic}:0")[0]["highest_remote_offset"] or 0) >= 499, COPIED_S)
        assert house.holds(topic, 500)
        assert house.json("describe", f"{topic}:0")[0]["local_log_start_offset"] == 0, "an archive trims nothing"
    finally:
        running.stop()
        house.close()

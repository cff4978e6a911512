"""The bucket is rolled back to an older state of its own: agents notice the lost segments within minutes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.scenarios.house import House, eventually, opened_house, run
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


def misses(house: House, topic: str, segments: int) -> bool:
    """Return whether `describe` names the three objects of each lost segment, and ends with exit code 4."""
    done = run("describe", topic, "--config", str(house.config))
    return done.returncode == 4 and f"MISSING  {3 * segments} objects of readable segments" in done.stdout


def has_one_log(house: House, topic: str, above: int) -> bool:
    """Return whether all but the active segment is copied and trimmed, and that one begins above an offset."""
    logs = house.logs(topic)
    return len(logs) == 1 and int(logs[0].stem) > above


def test_a_rolled_back_bucket_is_noticed_by_a_running_agent_and_by_one_that_starts(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    with opened_house(kafka, tmp_path / "house", "rolled-back") as house:
        topic = house.create("orders")
        with house.agent():
            house.append(topic, 2_000)
            eventually(lambda: has_one_log(house, topic, 1_200))
            shutil.copytree(house.store, backup)
            before = len(house.manifests())
            house.append(topic, 2_000, first=2_000)
            eventually(lambda: has_one_log(house, topic, 3_200))
            lost = len(house.manifests()) - before
            for each in house.store.iterdir():
                shutil.rmtree(each)
            shutil.copytree(backup, house.store, dirs_exist_ok=True)
            eventually(lambda: misses(house, topic, lost))
        with house.agent():
            eventually(lambda: misses(house, topic, lost))

"""A copy of the broker's log folder in the place of the folder itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.scenarios.house import opened_house
from tierstate.sandbox.kafka import KafkaSandbox

pytestmark = pytest.mark.kafka


def test_check_and_an_agent_refuse_a_copy_of_the_log_folder_while_the_broker_runs(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    with opened_house(kafka, tmp_path / "house", "copied-folders") as house:
        topic = house.create("orders")
        house.append(topic, 100)
        copied = tmp_path / "copied"
        shutil.copytree(house.log_dir, copied, ignore_dangling_symlinks=True)
        rows = {row["check"]: row for row in house.json("check")}
        assert rows["log folders"]["ok"]
        house.append(topic, 100, first=100)
        rows = {row["check"]: row for row in house.json("check", "--set", f'agent.log_dirs=["{copied}"]', code=1)}
        assert not rows["log folders"]["ok"]
        assert "copy" in rows["log folders"]["detail"]
        assert "copy" in house.run("agent", "--once", "--set", f'agent.log_dirs=["{copied}"]', code=2).stderr

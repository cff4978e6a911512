"""A copy of the broker's log folder in the place of the folder itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.scenarios.house import opened_house
from tierstate.app.looking.copied_folders import FolderWatch, require_same_ends
from tierstate.app.opening.connection import Connection
from tierstate.log.local_log import LogDirs
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import InvalidRequest

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


def test_a_copy_is_known_by_the_end_of_its_logs_where_another_broker_has_locked_it(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    with opened_house(kafka, tmp_path / "house", "copied-ends") as house:
        topic = house.create("orders")
        house.append(topic, 5_000)
        copied = tmp_path / "copied"
        shutil.copytree(house.log_dir, copied, ignore_dangling_symlinks=True)
        with Connection(load_settings(house.config, [], {})) as connection:
            control = connection.broker.control
            with LogDirs([copied], alone=False) as log:
                require_same_ends(log, control)
                house.append(topic, 1, first=5_000)
                with pytest.raises(InvalidRequest, match=f"5001 of {topic}:0, and these folders have not"):
                    require_same_ends(log, control)
            with LogDirs([house.log_dir], alone=False) as log:
                require_same_ends(log, control)


def test_a_running_agent_sees_a_copy_that_takes_the_place_of_the_folder_and_the_folder_again(
    kafka: KafkaSandbox, tmp_path: Path
) -> None:
    with opened_house(kafka, tmp_path / "house", "mounted-folders") as house:
        topic = house.create("orders")
        house.append(topic, 100)
        mounted, copied = tmp_path / "mounted", tmp_path / "copied"
        shutil.copytree(house.log_dir, copied, ignore_dangling_symlinks=True)
        mounted.symlink_to(house.log_dir)
        settings = load_settings(house.config, [], {})
        with Connection(settings) as connection, LogDirs([mounted], alone=False) as log:
            watch = FolderWatch(log, connection.broker.control)
            watch.look()
            assert watch.problem is None
            mounted.unlink()
            mounted.symlink_to(copied)
            log.broker_folders.look()
            watch.look()
            assert "they are a copy" in str(watch.problem)
            mounted.unlink()
            mounted.symlink_to(house.log_dir)
            watch.look()
            assert watch.problem is None

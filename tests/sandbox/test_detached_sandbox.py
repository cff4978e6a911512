"""``sandbox up`` leaves brokers running; ``status`` knows them; ``down`` ends exactly them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tierstate.sandbox.detached import down, process_started, status, up
from tierstate.state.errors import CorruptData, InvalidRequest

UP = "import sys; from pathlib import Path; from tierstate.sandbox.detached import up; up(Path(sys.argv[1]))"


@pytest.mark.kafka
def test_up_outlives_its_command_starts_a_killed_broker_again_on_its_data_and_down_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "play"
    try:
        subprocess.run([sys.executable, "-c", UP, str(folder)], check=True)
        running = status(folder)
        assert running is not None
        assert running.brokers[0].answers
        with pytest.raises(InvalidRequest, match="already runs"):
            up(folder)
        broker = running.brokers[0]
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
        os.kill(broker.pid, signal.SIGKILL)
        while broker.alive:
            time.sleep(0.05)
        subprocess.run([sys.executable, "-c", UP, str(folder)], check=True)
        again = status(folder)
        assert again is not None
        assert (again.bootstrap, again.brokers[0].answers) == (running.bootstrap, True)
        assert "kept" in AdminClient({"bootstrap.servers": again.bootstrap}).list_topics(timeout=30).topics
        running = again
    finally:
        ended = down(folder)
    assert ended
    assert process_started(running.brokers[0].pid) is None
    assert status(folder) is None
    assert list(folder.iterdir()) == []


def test_down_without_a_sandbox_is_an_error(tmp_path: Path) -> None:
    assert status(tmp_path) is None
    assert not down(tmp_path)


def test_a_recycled_process_id_is_not_taken_for_a_broker(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        broker = {"node_id": 1, "port": 1, "pid": innocent.pid, "started": 1, "folder": str(tmp_path / "b")}
        state = {"folder": str(tmp_path), "bootstrap": "", "cluster_id": "", "brokers": [broker | {"log_dir": ""}]}
        (tmp_path / "sandbox.json").write_text(json.dumps(state))
        assert down(tmp_path)
        assert innocent.poll() is None
        innocent.kill()


def test_the_records_of_a_sandbox_whose_brokers_were_killed_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_text("records")
    broker = {"node_id": 1, "port": 1, "pid": 2**22 + 1, "started": 1, "folder": str(folder), "log_dir": str(folder)}
    state = {"folder": str(tmp_path), "bootstrap": "", "cluster_id": "", "brokers": [broker]}
    (tmp_path / "sandbox.json").write_text(json.dumps(state))
    with pytest.raises(InvalidRequest, match="tierstate sandbox down"):
        up(tmp_path)
    assert (folder / "00000000000000000000.log").read_text() == "records"
    assert down(tmp_path)
    assert not folder.exists()


def test_a_foreign_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(InvalidRequest, match="not empty"):
        up(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "irreplaceable"


def test_a_broken_state_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "sandbox.json").write_text("{")
    with pytest.raises(CorruptData, match=r"sandbox\.json"):
        status(tmp_path)

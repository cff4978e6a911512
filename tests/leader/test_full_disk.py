"""The real agent, its store out of room (RLIMIT_FSIZE): it fails clean, reports it, and finishes once there is room."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leader.real import RealTopic
from tierstate.broker.open import open_broker
from tierstate.cli.exit_codes import exit_code
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.errors import Unavailable
from tierstate.state.segment import SegmentState

pytestmark = pytest.mark.kafka
ROOM = 64 * 1024
"""The largest size of a file: less than a segment of the topic, more than a fact or a manifest."""


def settings(topic: RealTopic, tmp: Path) -> Path:
    file = tmp / "tierstate.toml"
    file.write_text(
        f'state_dir = "{tmp / "state"}"\n'
        f'[kafka]\n"bootstrap.servers" = "{topic.sandbox.bootstrap}"\n'
        f'[store]\nurl = "{topic.store_folder.as_uri()}"\n'
        f'[tier_state]\ntopic = "{topic.spec.name}"\npartitions = 2\nreplication_factor = 1\n'
        f'[tiering]\ninclude = ["{topic.name}"]\n'
        f'[agent]\nlog_dirs = ["{topic.sandbox.brokers[0].log_dir}"]\n'
        f'[trim]\ndelay = "0s"\n'
        f'[format]\ncompression = "none"\n'
        f'[management]\nlisten = "127.0.0.1:0"\n'
    )
    return file


def agent(topic: RealTopic, tmp: Path, room: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tierstate.cli.main", "agent", "--once", "--config", str(settings(topic, tmp))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, room))  # long before it has anything to write
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_a_full_disk_fails_clean_and_the_next_agent_finishes(
    kafka: KafkaSandbox, topic_name: str, tmp_path: Path
) -> None:
    topic = RealTopic(kafka, topic_name[-80:].strip("-"), tmp_path / "store").create()
    topic.append(4_000)
    bases = topic.bases()
    full = agent(topic, tmp_path, ROOM)
    assert full.returncode == exit_code(Unavailable("")), full.stderr
    assert "no room" in full.stderr
    assert [path for path in topic.store_folder.rglob("*") if path.is_file() and path.suffix == ".log"] == []
    with open_broker(kafka.client_config) as broker:
        assert broker.control.bounds(topic.name, 0).local_start == 0
    with topic.agent() as job:
        failed = topic.seen(job)
        assert failed.readable == ()
        assert {segment.state for segment in failed.segments.values()} == {SegmentState.DELETE_SEGMENT_FINISHED}
        assert len(failed.segments) == 3
    with topic.agent() as job:
        job.run_once()
        view = topic.seen(job)
        assert view.copied_to == bases[-1] - 1
        assert job.broker.control.bounds(topic.name, 0).local_start == bases[-1]
        assert len(topic.remote_bytes(view)) == sum(segment.log_bytes for segment in view.readable)

"""However the demo ends, nothing that it started goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.house import House

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.kafka


def processes_naming(*texts: str) -> list[int]:
    """Return the processes whose command line has all of these texts, except this one."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if all(text in command for text in texts) and state != "Z":
            pids.append(int(entry.name))
    return pids


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for the condition; fail the test when it does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a demo and stop in its middle: broker and agent run. Its folders are below ``tmp_path``."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "demo", "--records", "5000", "--out", str(tmp_path / "out")]
    with (tmp_path / "demo.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    agent = ("tierstate.cli.main agent", f"--config {tmp_path}")
    wait_until(lambda: process.poll() is not None or len(processes_naming(*agent)) > 0, 400)
    assert process.poll() is None, (tmp_path / "demo.log").read_text()
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),  # the same exit path
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_demo_that_is_stopped_in_the_middle_leaves_no_process(
    demo: subprocess.Popen[bytes], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    assert processes_naming(str(tmp_path))
    demo.send_signal(number)
    assert demo.wait(60) == code
    wait_until(lambda: not [pid for pid in processes_naming(str(tmp_path)) if pid != demo.pid], 30)
    if number is not signal.SIGKILL:
        assert not list(tmp_path.glob("tierstate-demo-*")), "its folder is still there"


def test_processes_of_the_spark_job_end_with_it(tmp_path: Path) -> None:
    """A Python that is interrupted while it waits for its newly started JVM does not end it."""
    house = House(tmp_path, keep=False)
    process = house.spawn_python("spark", "tests.scenarios.orphaned")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    house.stop("spark")
    wait_until(lambda: child not in processes_naming("sleep"), 30)

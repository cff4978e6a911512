"""Processes that do tasks: none outlives the one that it works for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.house import eventually

DRIVER = """
import time
from tierstate.app.split_reads import Access
from tierstate.lake.columns import Columns
from tierstate.lake.jobs import Job, Place, TaskAccess
from tierstate.lake.encodings import WRITER
from tierstate.lake.plan import ExportPlan, ExportTask, Shape
from tierstate.lake.processes import in_processes
from tierstate.state.errors import TierstateError
from tierstate.state.ids import TopicId
from tierstate.state.routing import Isolation
from tierstate.storage.options import StoreOptions

if __name__ == "__main__":
    shape = Shape(Columns(("offset",)), Isolation.READ_COMMITTED, 1, WRITER)
    plan = ExportPlan("t", TopicId.of(b"0123456789abcdef"), 0, shape, ())
    nowhere = Place("nowhere:", StoreOptions())
    access = TaskAccess(Access({}, "nowhere:", StoreOptions(), None), nowhere)
    tasks = [ExportTask(number, 0, 0, 1) for number in range(50)]
    run = in_processes(2)([Job(plan, task, b"", access) for task in tasks])
    number, outcome = next(run)
    assert isinstance(outcome, TierstateError), outcome
    print("working", flush=True)
    time.sleep(600)
"""


def below(pid: int) -> Iterator[int]:
    """All that a process started, and all that these did."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from below(int(child))


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_killed_it_leaves_no_process_behind(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "working\n"
        started = list(below(driver.pid))
        try:
            assert len(started) >= 3  # what they are forked from, and two
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            eventually(lambda: not any(lives(pid) for pid in started))
        finally:
            for pid in filter(lives, started):
                os.kill(pid, signal.SIGKILL)

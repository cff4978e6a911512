"""Processes that do tasks: none outlives the process that it works for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.house import eventually
from tests.wheels import ROOT

DRIVER = """
import time
from tierstate.app.opening.store_place import StorePlace
from tierstate.app.opening.split_reads import Access
from tierstate.fetch.planned_split import PlannedSplit
from tierstate.lake.columns import Columns
from tierstate.lake.export_plan import ExportPlan, Shape
from tierstate.lake.export_work import ExportWork, Place, TaskAccess
from tierstate.lake.jobs import Job, Task
from tierstate.lake.parquet import WRITER
from tierstate.lake.runs import in_processes
from tierstate.state.errors import TierstateError
from tierstate.state.ids import TopicId
from tierstate.state.routing import Isolation
from tierstate.storage.options import StoreOptions

if __name__ == "__main__":
    shape = Shape(Columns(("offset",)), Isolation.READ_COMMITTED, 1, WRITER)
    plan = ExportPlan("t", TopicId.of(b"0123456789abcdef"), 0, shape, ())
    nowhere = Place("nowhere:", StoreOptions())
    access = TaskAccess(Access({}, StorePlace("nowhere:", StoreOptions()), None), nowhere)
    tasks = [Task(number, 0, 0, 1) for number in range(50)]
    split = PlannedSplit("t", plan.topic_id, 0, 0, 1, Isolation.READ_COMMITTED, None, ())
    run = in_processes(2)([Job(task, split, access.log, ExportWork(plan, access)) for task in tasks])
    number, outcome = next(run)
    assert isinstance(outcome, TierstateError), outcome
    print("working", flush=True)
    time.sleep(600)
"""


def below(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and all that these started."""
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


LOADS = """
import importlib
import sys
{}
print(sorted({{"numba", "kafka", "pandas", "confluent_kafka", "sqlalchemy"}} & set(sys.modules)))
"""
ROWS = """
from tests.log.batches import Batch, record
from tierstate.lake.parquet import by_date, row_groups
from tierstate.log.decode import decode_batches
data = Batch(40, [record(0, b"k", None, [(b"n", None)]), record(1, None, b"v", time=86_400_000)]).bytes
[group] = row_groups(decode_batches(data, source="f", topic="t", partition=3), 1000)
assert len(by_date(group)) == 2
"""


@pytest.mark.parametrize(
    ("what", "loaded"),
    [
        ("import tierstate.lake.runs, tierstate.cli.export", "[]"),
        (
            "import tierstate.lake.export_open, tierstate.lake.export_quote, tierstate.fetch.source",
            "['confluent_kafka', 'kafka']",
        ),
        (ROWS, "['numba']"),
        ("import tierstate.lake.table_errors", "[]"),
    ],
    ids=["who begins processes", "who plans", "who lays rows out", "whose catalog has no SQL"],
)
def test_no_process_loads_modules_that_only_another_needs(what: str, loaded: str) -> None:
    """Each needless import is a part of a second of every export."""
    script = LOADS.format(what)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (0, loaded), done.stderr


def test_killed_it_leaves_no_process_behind(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "working\n"
        started = list(below(driver.pid))
        try:
            assert len(started) >= 3  # the process from which they are forked, and two
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            eventually(lambda: not any(lives(pid) for pid in started))
        finally:
            for pid in filter(lives, started):
                os.kill(pid, signal.SIGKILL)

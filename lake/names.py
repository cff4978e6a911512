"""The names of files of exports and tables: the only file that creates and parses them. Keys are relative to a place.

    orders/date=2026-11-24/00003-00000000000000000000-00000000000000120000-x2Qk…-00000000.parquet rows
    _tierstate_export/x2Qk…/00000000/plan.json                                                    the plan
    _tierstate_export/x2Qk…/00000000/task-000007.json                                             the outcome of a task
    _tierstate_export/x2Qk…/00000000/manifest.json                                                the export is complete
    _tierstate_export/x2Qk…/00000000/given-up.json                                                it ended incomplete

A file's name has its partition, the range of its task (end exclusive), the topic id and the export's number. So two
exports never make files with the same name, and files of a given-up export can be deleted while another exports the
same records. Earlier versions added ``+1`` to a task's next file of a date. Readers of folders ignore names that begin
with ``_``.

A table's file has the id of the attempt that wrote it, so no two writers ever write the same file.
"""

from __future__ import annotations

import re
from datetime import date

from ..state.ids import TopicId
from .export_plan import ExportPlan
from .jobs import Task

LEDGER = "_tierstate_export"
_PLAN = re.compile(rf"{LEDGER}/([A-Za-z0-9_-]{{22}})/([0-9]{{8}})/plan\.json")
_TABLE_FILE = re.compile(
    r"/data/(date=[^/]+/)?[A-Za-z0-9_-]{22}-[^/]+\.parquet|/metadata/[^/]+(\.avro|\.metadata\.json)"
)
"""An attempt's id has 22 characters. Earlier versions had a folder for each date."""
_EPOCH = date(1970, 1, 1).toordinal()


def file_key(plan: ExportPlan, task: Task, day: int) -> str:
    """Return the key of a task's file of a day, which is counted from 1970-01-01 UTC."""
    return f"{plan.topic}/date={day_name(day)}/{_range(task)}{_whose(plan)}.parquet"


def is_file_of(plan: ExportPlan, key: str) -> bool:
    """Return whether a run of a task of this plan made this file."""
    return key.startswith(f"{plan.topic}/") and key.removesuffix(".parquet").partition("+")[0].endswith(_whose(plan))


def has_range_of(task: Task, key: str) -> bool:
    """Return whether a file's name has this task's range. It has not if the task was cut at a later log start."""
    return key.rpartition("/")[2].startswith(_range(task))


def table_file(attempt: str, task: Task, part: int) -> str:
    """Return the name of a table's file, which belongs to one attempt. ``part``: number of the task's earlier files."""
    return f"{attempt}-{_range(task)}{_again(part)}.parquet"


def rewritten_file(attempt: str, partition: int, first_offset: int, reason: str, part: int) -> str:
    """Return the name of a table's file whose rows were in other files before. ``part``: as for `table_file`."""
    return f"{attempt}-{partition:05d}-{first_offset:020d}-{reason}{_again(part)}.parquet"


def is_table_file(path: str) -> bool:
    """Return whether an attempt may have written this path, which is relative to a table's own location."""
    return _TABLE_FILE.fullmatch(path) is not None


def _range(task: Task) -> str:
    return f"{task.partition:05d}-{task.start:020d}-{task.end:020d}"


def _again(part: int) -> str:
    return f"+{part}" if part else ""


def _whose(plan: ExportPlan) -> str:
    return f"-{plan.topic_id}-{plan.number:08d}"


def day_name(day: int) -> str:
    """Return a day in ISO 8601. A day outside the years 1 to 9999 becomes its signed number, as in ``day+2932897``."""
    number = _EPOCH + day
    return date.fromordinal(number).isoformat() if 1 <= number <= date.max.toordinal() else f"day{day:+d}"


def plans_of(topic_id: TopicId) -> str:
    """Return the prefix of the keys of a topic's plans."""
    return f"{LEDGER}/{topic_id}/"


def plan_key(topic_id: TopicId, number: int) -> str:
    return f"{plans_of(topic_id)}{number:08d}/plan.json"


def plan_number(key: str) -> int | None:
    """Return the number in a plan's key. Returns None if it is another key."""
    parsed = _PLAN.fullmatch(key)
    return int(parsed[2]) if parsed else None


def task_key(plan: ExportPlan, task: int) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/task-{task:06d}.json"


def manifest_key(plan: ExportPlan) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/manifest.json"


def given_up_key(plan: ExportPlan) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/given-up.json"

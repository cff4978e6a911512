"""Where an export puts what: the only file that mints and parses these names. Keys are relative to the place.

    orders/date=2026-11-24/00003-00000000000000000000-00000000000000120000-x2Qk…-00000000.parquet rows
    _tierstate_export/x2Qk…/00000000/plan.json                                                    what is exported
    _tierstate_export/x2Qk…/00000000/task-000007.json                                             what a task made
    _tierstate_export/x2Qk…/00000000/manifest.json                                                all of it is there
    _tierstate_export/x2Qk…/00000000/given-up.json                                                no more of it comes

A file's name is its partition, the range of its task (end exclusive), the topic id and the export's number, and ``+1``
where a task needed another file for a date. So two exports never make a file of one name: what one that was given up
left may go, whoever exports the same records now. Readers of folders leave out what begins with ``_``.
"""

from __future__ import annotations

import re
from datetime import date

from ..state.ids import TopicId
from .plan import ExportPlan, ExportTask

LEDGER = "_tierstate_export"
_PLAN = re.compile(rf"{LEDGER}/([A-Za-z0-9_-]{{22}})/([0-9]{{8}})/plan\.json")
_EPOCH = date(1970, 1, 1).toordinal()


def file_key(plan: ExportPlan, task: ExportTask, day: int, part: int) -> str:
    """``day``: since 1970-01-01, UTC."""
    again = f"+{part}" if part else ""
    name = f"{task.partition:05d}-{task.start:020d}-{task.end:020d}{_whose(plan)}{again}.parquet"
    return f"{plan.topic}/date={day_name(day)}/{name}"


def is_file_of(plan: ExportPlan, key: str) -> bool:
    """Whether some run of a task of this plan made it."""
    return key.startswith(f"{plan.topic}/") and key.removesuffix(".parquet").partition("+")[0].endswith(_whose(plan))


def _whose(plan: ExportPlan) -> str:
    return f"-{plan.topic_id}-{plan.number:08d}"


def day_name(day: int) -> str:
    """ISO 8601; years beyond what a date can be are written with their sign and day."""
    number = _EPOCH + day
    return date.fromordinal(number).isoformat() if 1 <= number <= date.max.toordinal() else f"day{day:+d}"


def plans_of(topic_id: TopicId) -> str:
    """What the plans of a topic begin with."""
    return f"{LEDGER}/{topic_id}/"


def plan_key(topic_id: TopicId, number: int) -> str:
    return f"{plans_of(topic_id)}{number:08d}/plan.json"


def plan_number(key: str) -> int | None:
    """None: no plan's key."""
    found = _PLAN.fullmatch(key)
    return int(found[2]) if found else None


def task_key(plan: ExportPlan, task: int) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/task-{task:06d}.json"


def manifest_key(plan: ExportPlan) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/manifest.json"


def given_up_key(plan: ExportPlan) -> str:
    return f"{plans_of(plan.topic_id)}{plan.number:08d}/given-up.json"


def date_of(key: str) -> str:
    """Of a file's key: the date of its records, as `day_name` writes it."""
    return key.rsplit("/", 2)[1].removeprefix("date=")

"""A topic's documents in a place. Each export has a plan, an outcome for each task, and a last document. The last
document is the manifest of a complete export, or the document that gives the export up.

A document is put only if its key is free, and is never changed. If two writers put the same document, the second finds
its own content, or learns that the content differs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ..runtime.operation import Operation
from ..state.errors import CorruptData, InvalidRequest, ObjectExists, ObjectNotFound, TierstateError
from ..state.ids import TopicId
from ..storage.object_store import ObjectStore
from . import names
from .export_plan import ExportPlan, TaskDone
from .jobs import Task


class Ledger:
    """The documents of one topic. Methods raise the store's errors, and CorruptData for documents of other programs."""

    def __init__(self, place: ObjectStore, topic_id: TopicId) -> None:
        self.place, self.topic_id = place, topic_id

    def plans(self) -> list[ExportPlan]:
        """Return the plans in order of their numbers."""
        numbers = {each.key: names.plan_number(each.key) for each in self.place.list(names.plans_of(self.topic_id))}
        return [self._plan(key, number) for key, number in numbers.items() if number is not None]

    def open_plans(self) -> list[ExportPlan]:
        """Return the plans without a manifest: at most one unfinished plan, and given-up plans that may have strays."""
        return [plan for plan in self.plans() if not self.is_whole(plan)]

    def add(self, plan: ExportPlan) -> ExportPlan:
        """Put a plan. Return the plan that has its number now: this plan, or another that was put first."""
        key = names.plan_key(self.topic_id, plan.number)
        return plan if self._put(key, plan.as_json()) else self._plan(key, plan.number)

    def is_whole(self, plan: ExportPlan) -> bool:
        """Return whether the export is complete, which means that it has a manifest."""
        return self._has(names.manifest_key(plan))

    def is_given_up(self, plan: ExportPlan) -> bool:
        """Return whether the export was ended without some of its tasks."""
        return self._has(names.given_up_key(plan))

    def done(self, plan: ExportPlan) -> dict[int, TaskDone]:
        """Return the outcomes of tasks that were committed or given up, by number of the task."""
        keys = self.place.list(names.task_key(plan, 0).removesuffix("000000.json"))
        outcomes = (TaskDone.of_json(self._read(each.key)) for each in keys)
        return {each.task: each for each in outcomes}

    def missing(self, plan: ExportPlan) -> list[Task]:
        """Return the tasks that were given up, or have no outcome yet."""
        outcomes = self.done(plan)
        return [task for task in plan.tasks if task.number not in outcomes or outcomes[task.number].given_up]

    def commit(self, plan: ExportPlan, done: TaskDone) -> bool:
        """Commit a task. Returns False if it was given up. Raises CorruptData if another run made other files."""
        first = self._put_task(plan, done)
        if first != done and not first.given_up:
            raise differs(self.place, names.task_key(plan, done.task))
        return not first.given_up

    def strays(self, plan: ExportPlan, done: Collection[TaskDone]) -> list[str]:
        """Return the keys of files that runs of tasks left without a commit."""
        committed = {file.key for each in done for file in each.files}
        there = (each.key for each in self.place.list(f"{plan.topic}/"))
        return [key for key in there if names.is_file_of(plan, key) and key not in committed]

    def finish(self, plan: ExportPlan, done: Sequence[TaskDone]) -> None:
        """Put the manifest: from then on the export is complete. If a task was given up, put the document that ends the
        export instead, with the missing ranges.
        """
        files = [each for task in done for each in task.as_json()["files"]]
        counts = {"records": sum(each.records for each in done), "corrupt": sum(each.corrupt for each in done)}
        skipped = (*plan.skipped, *(gap for task in done for gap in task.skipped))
        content = {**replace(plan, skipped=skipped).as_json(), **counts, "files": files}
        missing = [plan.tasks[each.task] for each in done if each.given_up]
        if missing:
            content["missing"] = [[task.partition, task.start, task.end] for task in missing]
        key = names.given_up_key(plan) if missing else names.manifest_key(plan)
        if not self._put(key, content) and self.place.get(key) != document(content):
            raise differs(self.place, key)

    def give_up(self, plan: ExportPlan) -> Operation[None]:
        """End an incomplete export, because its range expired or the export is no longer wanted.

        A task is committed or given up, whichever document is put first. So a process that still runs a task adds
        nothing afterwards. Then files that no task committed are deleted, and the last document lists the missing
        ranges. From then on other exports may have those ranges. An interrupted run can be repeated. Raises the store's
        errors.
        """
        outcomes = self.done(plan)
        for task in plan.tasks:
            if task.number not in outcomes:
                yield f"give up task {task.number}"
                outcomes[task.number] = self._put_task(plan, TaskDone(task.number, (), given_up=True))
        for key in self.strays(plan, outcomes.values()):
            yield f"remove {key}"
            self.place.delete(key)
        yield "end the export"
        self.finish(plan, [outcomes[task.number] for task in plan.tasks])

    def _put_task(self, plan: ExportPlan, outcome: TaskDone) -> TaskDone:
        """Put the outcome of a task. Return the stored outcome: this outcome, or another that was put first."""
        key = names.task_key(plan, outcome.task)
        return outcome if self._put(key, outcome.as_json()) else TaskDone.of_json(self._read(key))

    def _put(self, key: str, content: Any) -> bool:
        """Put a document. Returns False if the key already had a document, which stays."""
        try:
            self.place.put_if_absent(key, document(content))
        except ObjectExists:
            return False
        return True

    def _has(self, key: str) -> bool:
        try:
            self.place.head(key)
        except ObjectNotFound:
            return False
        return True

    def _plan(self, key: str, number: int) -> ExportPlan:
        content = self._read(key)
        try:
            plan = ExportPlan.of_json(content)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData("not a plan of an export", key=key, place=self.place.description) from error
        if plan.topic_id != self.topic_id or plan.number != number:
            raise CorruptData("a plan of an export lies under another's name", key=key, place=self.place.description)
        return plan

    def _read(self, key: str) -> Any:
        try:
            return json.loads(self.place.get(key))
        except ValueError as error:
            raise CorruptData("not a document of an export", key=key, place=self.place.description) from error


def document(content: Any) -> bytes:
    """Return the content as JSON. The same content always has the same bytes."""
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, default=str).encode() + b"\n"


def given_up(plan: ExportPlan) -> TierstateError:
    return InvalidRequest(
        "this export is being given up; end that first, with --give-up --execute", topic=plan.topic, number=plan.number
    )


def differs(place: ObjectStore, key: str) -> TierstateError:
    return CorruptData(
        "another run of this export made something else of the same records; nothing was replaced",
        key=key,
        place=place.description,
    )

"""Ends an export as it is: one that cannot be finished, because its range expired, or is no longer wanted.

A task is done or given up, whichever document is put first; so a process that still runs one adds nothing afterwards.
Then files that no task committed are deleted, and the last document lists what is missing. From then on other exports
may have those ranges. An act; run again it goes on.
"""

from __future__ import annotations

from ..leader.act import Act
from .ledger import Ledger
from .plan import ExportPlan, ExportTask


def open_plans(ledger: Ledger) -> list[ExportPlan]:
    """Return the plans that are not whole: at most one that was begun, and given-up ones, which may have new strays."""
    return [plan for plan in ledger.plans() if not ledger.is_whole(plan)]


def missing(ledger: Ledger, plan: ExportPlan) -> list[ExportTask]:
    """Return the tasks that the export would lack, or lacks."""
    outcomes = ledger.done(plan)
    return [task for task in plan.tasks if task.number not in outcomes or outcomes[task.number].given_up]


def give_up(ledger: Ledger, plan: ExportPlan) -> Act[None]:
    """Give up the tasks that are not done, remove stray files, and end the export. Raises what the store raises."""
    outcomes = ledger.done(plan)
    for task in plan.tasks:
        if task.number not in outcomes:
            yield f"give up task {task.number}"
            outcomes[task.number] = ledger.give_up(plan, task.number)
    for key in ledger.strays(plan, outcomes.values()):
        yield f"remove {key}"
        ledger.place.delete(key)
    yield "end the export"
    ledger.finish(plan, [outcomes[task.number] for task in plan.tasks])

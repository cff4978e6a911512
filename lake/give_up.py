"""An export that cannot be finished, because its range expired, or that nobody wants any more: ended as it is.

A task is done or given up, whichever document is put first; so nobody who still runs one adds anything afterwards. Then
the files go that no task committed, and last comes the document that says what is missing. From there on other exports
may have those ranges. An act; begun again it goes on.
"""

from __future__ import annotations

from ..leader.act import Act
from .ledger import Ledger
from .plan import ExportPlan, ExportTask


def open_plans(ledger: Ledger) -> list[ExportPlan]:
    """What is not whole: at most one that was begun, and those that were given up, whose strays may have come since."""
    return [plan for plan in ledger.plans() if not ledger.is_whole(plan)]


def missing(ledger: Ledger, plan: ExportPlan) -> list[ExportTask]:
    """What it would lack, or lacks."""
    done = ledger.done(plan)
    return [task for task in plan.tasks if task.number not in done or done[task.number].given_up]


def give_up(ledger: Ledger, plan: ExportPlan) -> Act[None]:
    """Raises what the store does."""
    done = ledger.done(plan)
    for task in plan.tasks:
        if task.number not in done:
            yield f"give up task {task.number}"
            done[task.number] = ledger.give_up(plan, task.number)
    for key in ledger.strays(plan, done.values()):
        yield f"remove {key}"
        ledger.place.delete(key)
    yield "end the export"
    ledger.finish(plan, [done[task.number] for task in plan.tasks])

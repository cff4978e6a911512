"""Which row group of which file holds which records of a task: for writers and for checkers of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from .names import file_key
from .plan import ExportPlan, ExportTask
from .row_groups import by_date, row_groups

MOST_DATES = 200
"""The most files of a task that are open at a time. For one more date all are finished, and new ones begun."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The next row group of a file: ``records`` as they were decoded. None: the file is complete."""

    key: str
    records: pa.Table | None


def laid_out(plan: ExportPlan, task: ExportTask, batches: Iterable[pa.RecordBatch]) -> Iterator[RowGroup]:
    """Yield the row groups. They follow from the plan and the records alone, whatever the batches. ``batches``: exactly
    the records of the task, as `log.decode` makes them, with headers.
    """
    begun: dict[int, str] = {}
    parts: dict[int, int] = {}
    for group in row_groups(batches, plan.shape.row_group_bytes):
        for day, records in by_date(group):
            if day not in begun:
                if len(begun) == MOST_DATES:
                    yield from _ended(begun)
                begun[day] = file_key(plan, task, day, parts.get(day, 0))
                parts[day] = parts.get(day, 0) + 1
            yield RowGroup(begun[day], records)
    yield from _ended(begun)


def _ended(begun: dict[int, str]) -> Iterator[RowGroup]:
    for day in sorted(begun):
        yield RowGroup(begun.pop(day), None)

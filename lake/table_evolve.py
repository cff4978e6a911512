"""The columns of a table become others: fields are added, types widened, and nothing is taken away.

Rows that are there stay as they were written: null where a field was added, and what did not parse stays in `_corrupt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from ..leader.act import Act, run
from ..state.errors import InvalidRequest
from ..values.evolution import evolved
from ..values.form import Form
from .columns import Columns
from .table import Change, LakeTable
from .table_commit import commit
from .table_files import Attempt
from .table_place import TablePlace


@dataclass(frozen=True, slots=True)
class FieldChange:
    """``before`` None: it is added."""

    field: str
    before: str | None
    after: str


def evolve(table: LakeTable, attempt: Attempt, place: TablePlace, columns: Columns) -> Act[bool]:
    """The next version of the columns, by an empty snapshot of the same place. False: another was first.

    The snapshot makes it conditional. Of two that evolve a table to what is one to Iceberg (smallint and int), both
    would be first otherwise, and the second change what a version says, under rows that were written by it.
    Raises InvalidRequest for columns that those of the table cannot become.
    """
    return (yield from commit(table, attempt, Change(place, columns=columns)))


def require_settling(table: LakeTable, place: TablePlace, most: int) -> None:
    """Raises InvalidRequest where the columns became others so often since the last row that they seem to never end.

    The table itself says how often, so a follower that begins anew counts on.
    """
    written = max((reach.versions[-1].version for reach in place.partitions.values() if reach.versions), default=0)
    if table.facts.version - written >= most:
        raise InvalidRequest(
            "the schema grows again whenever the columns have become it, and no row was written between; once it has"
            " settled, `tierstate table evolve` takes it, and the table goes on",
            table=table.name,
            topic=table.facts.topic,
            evolved=table.facts.version - written,
            most=most,
        )


def evolve_table(
    table: LakeTable, wanted: Mapping[str, Form], attempt_id: Callable[[], str], *, execute: bool
) -> list[FieldChange]:
    """To these forms of `key` and `value`; what changed, or would. Raises InvalidRequest where it cannot be."""
    while True:
        columns = evolved_columns(table.facts.columns, wanted)
        found = list(changes(table.facts.columns.schema(), columns.schema()))
        if columns == table.facts.columns or not execute:
            return found
        if run(evolve(table, Attempt(attempt_id()), table.place(), columns)):
            return found


def evolved_columns(now: Columns, wanted: Mapping[str, Form]) -> Columns:
    """Raises InvalidRequest, which names the field, for what cannot evolve."""
    for name, form in wanted.items():
        now = now.with_form(name, evolved(now.forms[name], form))
    return now


Fields: TypeAlias = pa.Schema | pa.StructType


def changes(before: Fields, after: Fields, path: str = "") -> Iterator[FieldChange]:
    """Of fields, by their names with dots."""
    for each in after:
        name = f"{path}{each.name}"
        if each.name not in before.names:
            yield FieldChange(name, None, str(each.type))
        else:
            yield from _changes_of_type(before.field(each.name).type, each.type, name)


def _changes_of_type(before: pa.DataType, after: pa.DataType, name: str) -> Iterator[FieldChange]:
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        yield from changes(before, after, f"{name}.")
    elif pa.types.is_list(before) and pa.types.is_list(after):
        yield from _changes_of_type(before.value_type, after.value_type, f"{name}.element")
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _changes_of_type(before.item_type, after.item_type, f"{name}.value")
    elif before != after:
        yield FieldChange(name, str(before), str(after))

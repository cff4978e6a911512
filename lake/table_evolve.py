"""Evolves the columns of a table: fields are added, types are widened, and nothing is removed.

Existing rows are not rewritten. An added field is null in them, and bytes that did not parse stay in `_corrupt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from ..runtime.operation import run
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
    """One change of a field. ``before`` is its old type, or None if the field is added."""

    field: str
    before: str | None
    after: str


def require_settling(table: LakeTable, place: TablePlace, most: int) -> None:
    """Raise InvalidRequest if the columns evolved ``most`` times since the last row: they may never settle.

    The count comes from the table itself, so a restarted follower continues it.
    """
    used = max((reach.versions[-1].version for reach in place.partitions.values() if reach.versions), default=0)
    if table.facts.version - used >= most:
        raise InvalidRequest(
            "the schema grows again whenever the columns have become it, and no row was written between; once it has"
            " settled, `tierstate table evolve` takes it, and the table goes on",
            table=table.name,
            topic=table.facts.topic,
            evolved=table.facts.version - used,
            most=most,
        )


def evolve_table(
    table: LakeTable, forms: Mapping[str, Form], attempt_id: Callable[[], str], *, execute: bool
) -> list[FieldChange]:
    """Evolve `key` and `value` to these forms; return the changes. Raises InvalidRequest if that is impossible."""
    while True:
        columns = evolved_columns(table.facts.columns, forms)
        changed = list(changes(table.facts.columns.schema(), columns.schema()))
        if columns == table.facts.columns or not execute:
            return changed
        if run(commit(table, Attempt(attempt_id()), Change(table.place(), columns=columns))):
            return changed


def evolved_columns(now: Columns, forms: Mapping[str, Form]) -> Columns:
    """Return the evolved columns. Raises InvalidRequest with the field's name if that is impossible."""
    for name, form in forms.items():
        now = now.with_form(name, evolved(now.forms[name], form))
    return now


Fields: TypeAlias = pa.Schema | pa.StructType


def changes(before: Fields, after: Fields, path: str = "") -> Iterator[FieldChange]:
    """Yield the changes of fields. The names of nested fields have dots."""
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

"""The shape of a table: by which columns its rows are divided into partitions, and in which order a file has them.

    day(timestamp)  hour  month  year    of a time          bucket(16, id)    of a hash
    id                                   of a value         truncate(4, id)   of a beginning

Iceberg stores both. A change concerns new files; `tierstate table compact` divides older small files again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import DoubleType, FloatType, NestedField

from ..state.errors import InvalidRequest
from .columns import Columns

if TYPE_CHECKING:
    from pyiceberg.table import Transaction

FIRST_FIELD_ID = 1000
"""The first id that a partition field may have."""
NONE = "none"
"""The text for a table without partitions."""
_CALL = re.compile(r"(\w+)\((?:\s*(\d+)\s*,)?\s*([^(),]+?)\s*\)")
_TIMES = ("year", "month", "day", "hour")
_NUMBERED = ("bucket", "truncate")


@dataclass(frozen=True, slots=True)
class TableShape:
    """``partition_by``: terms such as ``bucket(16, id)``. ``sort_by``: columns, ascending. None leaves it as it is; a
    new table then has no partitions, and its files are in order of offset.
    """

    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] | None = None

    def spec(self, schema: Schema, columns: Columns) -> PartitionSpec:
        """Return the partition spec. Raises InvalidRequest that names a term which is not one, or a column."""
        fields: list[PartitionField] = []
        for term in self.partition_by or ():
            if term == NONE:
                continue
            transform, column = _parsed(term)
            source = _source(schema, columns, column)
            if not transform.can_transform(source.field_type):
                raise InvalidRequest(
                    "a column of this type cannot be divided so", partition_by=term, type=str(source.field_type)
                )
            name = _name(schema, source, transform)
            if name in {field.name for field in fields}:
                raise InvalidRequest("two partition fields would have one name", partition_by=term, name=name)
            fields.append(PartitionField(source.field_id, FIRST_FIELD_ID + len(fields), transform, name))
        return PartitionSpec(*fields)

    def order(self, schema: Schema, columns: Columns) -> SortOrder:
        """Return the sort order. Raises InvalidRequest that names a column which cannot be sorted by."""
        names = self.sort_by or tuple(map(columns.column, ("partition", "offset")))
        sources = [_source(schema, columns, name) for name in names]
        return SortOrder(
            *(
                SortField(source.field_id, transform=IdentityTransform(), null_order=NullOrder.NULLS_FIRST)
                for source in sources
            )
        )

    def apply(self, transaction: Transaction, columns: Columns) -> None:
        """Change the table's shape. Raises InvalidRequest."""
        schema = transaction.table_metadata.schema()
        try:
            if self.partition_by is not None:
                _divide(transaction, schema, self.spec(schema, columns))
            if self.sort_by is not None:
                with transaction.update_sort_order() as update:
                    for field in self.order(schema, columns).fields:
                        name = schema.find_column_name(field.source_id)
                        update.asc(str(name), field.transform, field.null_order)
        except ValueError as error:
            raise InvalidRequest("the table cannot have this shape", reason=str(error)) from error


UNPARTITIONED = TableShape()


def key_columns(schema: Schema, columns: Columns, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of an upsert's key. ``key`` is the record's key; another name is a column, or a field of the
    value. Raises InvalidRequest that names a column which cannot be a key.
    """
    keys = []
    for name in names:
        within = f"value.{name}" if columns.prefix is None else name
        source = _source(schema, columns, columns.column("key") if name == "key" else name, within)
        if isinstance(source.field_type, (FloatType, DoubleType)):
            raise InvalidRequest("a number that is not exact cannot be a key", column=name, type=str(source.field_type))
        keys.append(str(schema.find_column_name(source.field_id)))
    return tuple(keys)


def _divide(transaction: Transaction, schema: Schema, spec: PartitionSpec) -> None:
    current = transaction.table_metadata.spec()
    terms = {(field.source_id, str(field.transform)) for field in spec.fields}
    kept = {(field.source_id, str(field.transform)) for field in current.fields} & terms
    with transaction.update_spec() as update:
        for field in current.fields:
            if (field.source_id, str(field.transform)) not in kept:
                update.remove_field(field.name)
        for field in spec.fields:
            if (field.source_id, str(field.transform)) not in kept:
                name = schema.find_column_name(field.source_id)
                update.add_field(str(name), field.transform, field.name)


def shape_text(spec: PartitionSpec, order: SortOrder, schema: Schema) -> dict[str, str]:
    """Return the terms of a table's partitions, and the columns of its order, as the flags have them."""
    terms = [_term(schema, field) for field in spec.fields]
    names = [str(schema.find_column_name(field.source_id)) for field in order.fields]
    return {"partition_by": ", ".join(terms) or NONE, "sort_by": ", ".join(names)}


def _term(schema: Schema, field: PartitionField) -> str:
    name, how = schema.find_column_name(field.source_id), str(field.transform)
    if how == "identity":
        return str(name)
    kind, _, number = how.rstrip("]").partition("[")
    return f"{kind}({number}, {name})" if number else f"{kind}({name})"


def _parsed(term: str) -> tuple[Transform, str]:  # type: ignore[type-arg]
    """Return the transform and the column of a term."""
    call = _CALL.fullmatch(term.strip())
    if call is None:
        if "(" in term or not term.strip():
            raise _no_term(term)
        return IdentityTransform(), term.strip()
    kind, number, column = call.groups()
    kind = kind.lower()
    kind = kind.removesuffix("s") if kind.removesuffix("s") in _TIMES else kind
    if number is None and kind in (*_TIMES, "identity"):
        return parse_transform(kind), column
    if number is not None and kind in _NUMBERED and int(number):
        return parse_transform(f"{kind}[{number}]"), column
    raise _no_term(term)


def _no_term(term: str) -> InvalidRequest:
    kinds = "year, month, day or hour(column), bucket(16, column), truncate(4, column), a column, or none"
    return InvalidRequest("a table is divided by other terms", partition_by=term, terms=kinds)


def _source(schema: Schema, columns: Columns, name: str, *others: str) -> NestedField:
    """Return the column of this name, the column with this part of a record, or the first of ``others`` that exists."""
    for candidate in (name, columns.column(name), *others):
        try:
            field = schema.find_field(candidate)
            schema.accessor_for_field(field.field_id)
        except ValueError:
            continue
        if field.field_type.is_primitive:
            return field
    raise InvalidRequest("the table has no such column with one value a row", column=name)


def _name(schema: Schema, source: NestedField, transform: Transform) -> str:  # type: ignore[type-arg]
    column = str(schema.find_column_name(source.field_id)).replace(".", "_")
    kind = str(transform).partition("[")[0]
    return column if kind == "identity" else f"{column}_{kind}"

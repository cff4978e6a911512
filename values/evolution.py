"""Merge a form and a target form into one with the columns of both: fields added, types widened, none dropped.

    tinyint, smallint, int, bigint    become the widest
    float, double                     become double
    decimal(p,s)                      gets the larger p; s must be equal
    an enum                           has the symbols of both
    a field that is removed           is kept, and is null in values without it

These are exactly the changes that Iceberg can make to a column without rewriting its files.
"""

from __future__ import annotations

import pyarrow as pa

from ..state.errors import InvalidRequest
from .avro_evolution import merged
from .avro_tree import text_of, tree_of
from .ddl import ddl_of, list_of, map_of, struct_of
from .form import AVRO, JSON, Form

_NUMBERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def evolved(form: Form, target: Form) -> Form:
    """Return the merged form, or ``form`` itself if it has all of ``target``. Raises InvalidRequest for a conflict."""
    if (form.format, form.registered) != (target.format, target.registered):
        raise InvalidRequest("values cannot evolve into another format", format=form.format, wanted=target.format)
    if form.format == JSON:
        ours = struct_of(form.schema, "the schema")
        kind = widened(ours, struct_of(target.schema, "the wanted schema"))
        return form if kind == ours else Form(JSON, ddl_of(kind))
    if form.format == AVRO:
        return _evolved_avro(form, target)
    return form


def _evolved_avro(form: Form, target: Form) -> Form:
    ours, other = tree_of([form.schema], "the schema"), tree_of([target.schema], "the wanted schema")
    if not form.registered:
        if ours == other:
            return form
        raise InvalidRequest("bare Avro values cannot evolve: nothing in them says which schema they were written with")
    both = merged(ours, other)
    if both == merged(ours, ours):
        return form
    evolved_form = Form(AVRO, text_of(both), registered=True)
    evolved_form.kind()  # raises if an added field has an unsupported type
    return evolved_form


def widened(ours: pa.DataType, theirs: pa.DataType, path: str = "") -> pa.DataType:
    """Return the type that holds the values of both. Raises InvalidRequest that names the field, given by ``path``."""
    if ours == theirs:
        return ours
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        return pa.struct(_fields(ours, theirs, path))
    if pa.types.is_list(ours) and pa.types.is_list(theirs):
        return list_of(widened(ours.value_type, theirs.value_type, f"{path}.element"))
    if pa.types.is_map(ours) and pa.types.is_map(theirs):
        return map_of(widened(ours.item_type, theirs.item_type, f"{path}.value"))
    if pa.types.is_decimal(ours) and pa.types.is_decimal(theirs) and ours.scale == theirs.scale:
        return max(ours, theirs, key=lambda kind: kind.precision)
    for kinds in _NUMBERS:
        if ours in kinds and theirs in kinds:
            return max(ours, theirs, key=kinds.index)
    raise InvalidRequest(
        "the schema cannot evolve: a field has another type",
        field=path or None,
        type=ddl_of(ours),
        wanted=ddl_of(theirs),
    )


def _fields(ours: pa.StructType, theirs: pa.StructType, path: str) -> list[pa.Field]:
    left = {field.name: field.type for field in theirs}
    fields = []
    for field in ours:
        within = f"{path}.{field.name}".lstrip(".")
        fields.append(
            field if field.name not in left else field.with_type(widened(field.type, left.pop(field.name), within))
        )
    taken = {field.name.lower() for field in ours}
    for name, kind in left.items():
        if name.lower() in taken:
            raise InvalidRequest(
                "the schema cannot evolve: a field is there in other letters", field=f"{path}.{name}".lstrip(".")
            )
        fields.append(pa.field(name, kind))
    return fields

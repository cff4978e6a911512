"""Merge a form and a target form into one with the columns of both: fields added, types widened, none dropped.

    tinyint, smallint, int, bigint    become the widest
    float, double                     become double
    decimal(p,s)                      gets the larger p; s must be equal
    an enum                           has the symbols of both
    a field that is removed           is kept, and is null in values without it

These are exactly the changes that Iceberg can make to a column without rewriting its files. An Avro schema is merged
into one that reads the values of both:

    a field of both               gets the wider of its two types; null is allowed if either schema allows it
    a field only in ``ours``      is kept; without a default, it may be null, which is its default
    a field only in ``theirs``    is added after the other fields; it is null in values without it
    any other difference          raises InvalidRequest that names the field

Fields and types are matched by their names in ``theirs``, and by their names and aliases in ``ours``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa

from ..state.errors import InvalidRequest
from .avro_opaque import readable
from .avro_tree import Tree, text_of, tree_of
from .avro_type import members_of
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
    ours, other = (
        tree_of([readable(form.schema)], "the schema"),
        tree_of([readable(target.schema)], "the wanted schema"),
    )
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
    raise _other_type(path, ddl_of(ours), ddl_of(theirs))


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


NULL = {"type": "null"}
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def merged(ours: Tree, theirs: Tree, path: str = "") -> Tree:
    """Return the merged schema. Raises InvalidRequest that names the field at ``path`` if it cannot evolve."""
    may_be_null = NULL in _members(ours) or NULL in _members(theirs)
    types = [each for each in (*_members(ours), *_members(theirs)) if each != NULL]
    if not types:
        raise InvalidRequest("the schema cannot evolve: a field is always null", field=path or None)
    if isinstance(ours, list) and len(members_of(ours)) > 1:
        kinds = _merged_branches(members_of(ours), types[len(members_of(ours)) :], path)
        return [NULL, *kinds] if may_be_null else kinds
    kind = reduce(lambda one, other: _merged_type(one, other, path), types[1:], _merged_type(types[0], types[0], path))
    return [NULL, kind] if may_be_null else kind


def _merged_branches(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """Merge the types of two unions. New types follow the others, so that each keeps its column."""
    kinds = list(ours)
    for each in theirs:
        at = next((at for at, kind in enumerate(kinds) if _same_branch(kind, each)), len(kinds))
        kinds[at : at + 1] = [
            _merged_type(kinds[at] if at < len(kinds) else each, each, f"{path}.member{at}".lstrip("."))
        ]
    return kinds


def _same_branch(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours["type"] == theirs["type"] and ("name" not in ours or _same_name(ours, theirs))


def require_units(ours: Tree, theirs: Tree, path: str = "") -> None:
    """Raise InvalidRequest if a time or decimal of ``ours`` has another unit or scale in ``theirs``, or none."""
    for one in _members(ours):
        for other in _members(theirs):
            if not _same_branch(one, other):
                continue
            if one.get("logicalType", "uuid") != "uuid" and _unit(one) != _unit(other):
                raise _conflict(path, one, other)
            for inner in ("items", "values"):
                if inner in one:
                    require_units(one[inner], other[inner], path)
            written = {field["name"]: field["type"] for field in other.get("fields", ())}
            for field in one.get("fields", ()):
                for name in (field["name"], *field.get("aliases", ())):
                    if name in written:
                        require_units(field["type"], written[name], f"{path}.{field['name']}".lstrip("."))


def _unit(kind: dict[str, Any]) -> tuple[str | None, int]:
    return kind.get("logicalType"), kind.get("scale", 0)


def _members(tree: Tree) -> list[dict[str, Any]]:
    return tree if isinstance(tree, list) else [tree]


def _merged_type(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> dict[str, Any]:
    """Merge two types that are not unions."""
    kind = ours["type"]
    logical = ours.get("logicalType")
    if logical != theirs.get("logicalType"):
        raise _conflict(path, ours, theirs)
    if not logical and (wider := _WIDER.get(frozenset((kind, theirs["type"])))):
        return {"type": wider}
    if kind != theirs["type"] or ("name" in ours and not _same_name(ours, theirs)):
        raise _conflict(path, ours, theirs)
    match kind:
        case "record":
            return ours | {"fields": _avro_fields(ours["fields"], theirs["fields"], path)}
        case "array":
            return ours | {"items": merged(ours["items"], theirs["items"], f"{path}.element".lstrip("."))}
        case "map":
            return ours | {"values": merged(ours["values"], theirs["values"], f"{path}.value".lstrip("."))}
        case "enum":
            return ours | {"symbols": [*dict.fromkeys([*ours["symbols"], *theirs["symbols"]])]}
    if kind == "fixed" and ours["size"] != theirs["size"]:
        raise _conflict(path, ours, theirs)
    if logical == "decimal":
        if ours.get("scale", 0) != theirs.get("scale", 0):
            raise _conflict(path, ours, theirs)
        return ours | {"precision": max(ours["precision"], theirs["precision"])}
    return ours


def _avro_fields(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    left = {field["name"]: field for field in theirs}
    fields = []
    for field in ours:
        name = next((name for name in (field["name"], *field.get("aliases", ())) if name in left), None)
        if name is not None:
            within = f"{path}.{field['name']}".lstrip(".")
            fields.append(_defaulted(field, merged(field["type"], left.pop(name)["type"], within)))
        else:
            optional = field["type"] if "default" in field else [*_members(field["type"]), NULL]
            within = f"{path}.{field['name']}".lstrip(".")
            fields.append(_defaulted(field | {"default": field.get("default")}, merged(optional, optional, within)))
    for field in left.values():
        within = f"{path}.{field['name']}".lstrip(".")
        kind = merged([*_members(field["type"]), NULL], field["type"], within)
        fields.append({"name": field["name"], "type": kind, "default": None})
    return fields


def _defaulted(field: dict[str, Any], kind: Tree) -> dict[str, Any]:
    """Return the field with the type ``kind``. A default has the type of a union's first member: null may have to be
    last.
    """
    if field.get("default") is not None and isinstance(kind, list) and kind[0] == NULL:
        kind = [*kind[1:], NULL]
    return field | {"type": kind}


def _same_name(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Return whether a name or an alias of ``ours`` equals the name of ``theirs``. Avro ignores namespaces here."""
    names = {ours["name"], *ours.get("aliases", ())}
    return theirs["name"].rpartition(".")[2] in {name.rpartition(".")[2] for name in names}


def _conflict(path: str, ours: dict[str, Any], theirs: dict[str, Any]) -> InvalidRequest:
    return _other_type(path, _type_text(ours), _type_text(theirs))


def _other_type(path: str, kind: str, wanted: str) -> InvalidRequest:
    reason = "the schema cannot evolve: a field has another type"
    return InvalidRequest(reason, field=path or None, type=kind, wanted=wanted)


def _type_text(kind: dict[str, Any]) -> str:
    parts = [kind.get("logicalType") or kind["type"], kind.get("name")]
    if kind.get("logicalType") == "decimal":
        parts.append(f"({kind['precision']},{kind.get('scale', 0)})")
    if kind["type"] == "fixed":
        parts.append(f"({kind['size']})")
    return " ".join(part for part in parts if part)

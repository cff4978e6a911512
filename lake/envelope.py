"""Debezium's envelope of a changed row: ``before``, ``after`` and ``op``, alone or as the ``payload`` of a document.

op    c, r (created, read)   u (updated)   d (deleted)             any other, or none
row   after                  after         before; it is deleted   none: the value counts as one that does not parse
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..state.errors import InvalidRequest

DEBEZIUM = "debezium"
PAYLOAD = "payload"
DELETED = "d"
CHANGED = ("c", "r", "u", DELETED)
_PARTS = ("before", "after", "op")


def row_kind(envelope: pa.DataType) -> pa.DataType:
    """Return the type of the rows in an envelope. Raises InvalidRequest if it lacks a part."""
    kind = envelope
    if pa.types.is_struct(kind) and PAYLOAD in kind.names:
        kind = kind.field(PAYLOAD).type
    if not pa.types.is_struct(kind) or any(part not in kind.names for part in _PARTS):
        raise InvalidRequest("an envelope has the fields before, after and op", schema=str(envelope))
    before, after, op = (kind.field(part).type for part in _PARTS)
    if before != after or not pa.types.is_struct(after) or not pa.types.is_string(op):
        raise InvalidRequest("before and after are records of one type, and op is a string", schema=str(envelope))
    return after


def envelope_ddl(row: str) -> str:
    """Return the schema of JSON envelopes with these fields of a row, with or without a payload."""
    parts = f"before struct<{row}>, after struct<{row}>, op string"
    return f"{parts}, {PAYLOAD} struct<{parts}>"


@dataclass(frozen=True, slots=True)
class Opened:
    """``deletes``: whether the row was deleted. ``strange``: whether it is an envelope of another operation."""

    rows: pa.Array
    deletes: pa.Array
    strange: pa.Array


def open_envelope(values: pa.StructArray) -> Opened:
    """Return the rows of envelopes. The row of a null value is null."""
    parts = _parts(values)
    if PAYLOAD in values.type.names:
        inner = values.field(PAYLOAD)
        within = pc.and_(values.is_valid(), inner.is_valid())
        parts = [pc.if_else(within, one, other) for one, other in zip(_parts(inner), parts, strict=True)]
    before, after, op = parts
    changed = pc.is_in(op, value_set=pa.array(CHANGED))
    deletes = pc.fill_null(pc.equal(op, DELETED), False)
    row = pc.if_else(deletes, before, after)
    strange = pc.and_(values.is_valid(), pc.invert(pc.and_(changed, pc.or_(deletes, row.is_valid()))))
    return Opened(pc.if_else(strange, pa.scalar(None, row.type), row), deletes, strange)


def _parts(envelopes: pa.StructArray) -> list[pa.Array]:
    by_name = dict(zip([field.name for field in envelopes.type], envelopes.flatten(), strict=True))
    return [by_name[part] for part in _PARTS]

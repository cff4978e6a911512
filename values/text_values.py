"""Read bytes as text: they are UTF-8, or corrupt."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from .form import TypedColumn


class TextValues:
    def of(self, values: pa.Array) -> TypedColumn:
        try:
            return TypedColumn(values.cast(pa.string()), pa.repeat(False, len(values)))
        except pa.ArrowInvalid:
            texts = pa.array([_text(value) for value in values.to_pylist()], pa.string())
        return TypedColumn(texts, pc.and_(texts.is_null(), values.is_valid()))


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None

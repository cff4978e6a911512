"""The options ``value.…``: the column `value` as a struct of a schema, made in the executor, in place of its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructType

from ..state.errors import InvalidRequest
from ..values.ddl import struct_of
from ..values.row_refused import RowRefused

FORMAT, SCHEMA, REGISTRY = "value.format", "value.schema", "value.registry.url"
VALUE, OFFSET = "value", "offset"


class Values(Protocol):
    """Turns bytes into values of one type."""

    def of(self, values: pa.Array) -> pa.Array:
        """Return one value for each of ``values``. Raises RowRefused."""


@dataclass(frozen=True, slots=True)
class TypedValue:
    """The type ``arrow`` of values. ``avro``: the Avro schema, or None for JSON. ``registry``: a registry's URL."""

    arrow: pa.StructType
    avro: str | None = None
    registry: str | None = field(default=None, repr=False)

    @property
    def kind(self) -> StructType:
        """The type in Spark's terms."""
        kind = from_arrow_type(self.arrow)
        assert isinstance(kind, StructType)
        return kind

    def values(self) -> Values:
        """Return the converter; a task makes it once."""
        if self.avro is not None:
            from ..values.avro_values import AvroValues

            return AvroValues(self.avro, self.arrow, self.registry)
        from ..values.json_values import JsonValues

        return JsonValues(self.arrow)


def typed_value(options: Mapping[str, str]) -> TypedValue | None:
    """Return the type of values; None for bytes. Raises InvalidRequest that names the option."""
    form = options[FORMAT].strip().lower()
    schema, registry = options.get(SCHEMA, ""), options.get(REGISTRY, "").strip() or None
    if registry is not None and form != "avro":
        raise InvalidRequest(f"option {REGISTRY} needs {FORMAT}=avro")
    match form:
        case "binary":
            if schema.strip():
                raise InvalidRequest(f"option {SCHEMA} needs {FORMAT}=json or avro")
            return None
        case "avro":
            if not schema.strip():
                raise InvalidRequest(f"option {FORMAT}=avro needs {SCHEMA}, the Avro schema as JSON")
            from ..values.avro_type import struct_of_avro
            from ..values.schema_registry import is_url

            if registry is not None and not is_url(registry):
                raise InvalidRequest(f"option {REGISTRY} is a URL like https://registry:8081")

            return TypedValue(struct_of_avro(schema, f"option {SCHEMA}"), schema, registry)
        case "json":
            if not schema.strip():
                raise InvalidRequest(f"option {FORMAT}=json needs {SCHEMA}, like id bigint, tags array<string>")
            return TypedValue(struct_of(schema, f"option {SCHEMA}"))
    raise InvalidRequest(f"option {FORMAT} is binary, json or avro", got=repr(options[FORMAT]))


def value_type(typed: TypedValue | None) -> dict[str, DataType]:
    """Return the types of the columns that differ from `columns.SPARK_TYPES`."""
    return {} if typed is None else {VALUE: typed.kind}


class TypedColumns:
    """The columns of one task's batches, with `value` typed if the options ask for it."""

    def __init__(self, columns: Sequence[str], typed: TypedValue | None) -> None:
        self._columns = tuple(columns)
        self._values = typed.values() if typed is not None and VALUE in columns else None
        extra = () if self._values is None or OFFSET in columns else (OFFSET,)
        self.decoded = self._columns + extra
        """Columns for the decoder: with the offset, which the error of a refused value names."""

    def of(self, batch: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """Return the batch with its columns typed. Raises InvalidRequest or CorruptData for a value that is refused."""
        if self._values is None:
            return batch
        arrays = {name: batch.column(name) for name in self._columns}
        try:
            arrays[VALUE] = self._values.of(arrays[VALUE])
        except RowRefused as error:
            offset = batch.column(OFFSET)[error.row].as_py()
            raise error.kind(str(error), topic=topic, partition=partition, offset=offset) from error
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

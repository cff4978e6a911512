"""The columns of an export's or a table's rows, and the conversion of records into rows: bytes or typed columns.

    the columns in their order; `key` and `value` have the types of their forms; if one of them is typed, also
    _corrupt: struct<key: binary, value: binary>      the bytes that do not parse; null if all bytes parse

Each byte of a record is in its column or in `_corrupt`. If a table cannot have a record's time, the `_corrupt` of the
row is not null, even if it has no bytes. If the columns are flat, each field of the value is a column, and the other
columns of a record have a prefix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..log.record_columns import record_schema
from ..state.errors import InvalidRequest
from ..values.form import CORRUPT, Form, SchemaGrown
from ..values.open import Reader, open_reader
from ..values.schema_registry import RegistryAccess
from ..values.typed_column import CORRUPT_TYPE, TypedColumn, corrupt_column
from .envelope import open_envelope, row_kind

HEADER_MAP = pa.map_(pa.string(), pa.list_(pa.field("element", pa.binary())))
"""The type of headers as a map. Each key has all of its values, in their order."""
AT_ONCE = 16_384
"""The number of values that a reader gets at once. Avro then needs 20 MiB, not 190, and a fifth less time."""
Headers = Literal["list", "map"]
SOURCE = "source"
"""The column that tells partitions apart if there are several topics. See `several`."""
SPAN = 1 << 20
FIRST_US = -62_135_596_800_000_000 + 1
"""0001-01-01T00:00:00.000001Z, in microseconds since 1970-01-01."""
LAST_US = 253_402_300_800_000_000 - 1
"""9999-12-31T23:59:59.999999Z, in microseconds since 1970-01-01."""


@dataclass(frozen=True, slots=True)
class Only:
    """The choice of the records that are rows. ``corrupt``: whether they must fail to parse; None means either.

    ``field``, ``value``: a field of the values, and its value as text. ``record``: the name of their record in the
    registry; ``subject``: its subject. Records that do not parse and have no readable schema are rows, too.
    """

    corrupt: bool | None = None
    field: str | None = None
    value: str | None = None
    record: str | None = None
    subject: str | None = None

    def of(self, value: pa.Array, corrupt: pa.Array) -> pa.Array:
        """Return whether each record is a row, by its typed value and its `_corrupt`. Raises InvalidRequest if there is
        no such field, or if it has no text.
        """
        chosen = pa.repeat(True, len(value)) if self.corrupt is None else corrupt.is_valid()
        if self.corrupt is False:
            chosen = pc.invert(chosen)
        if self.field is None:
            return chosen
        column = value
        for name in self.field.split("."):
            if not pa.types.is_struct(column.type) or name not in column.type.names:
                raise InvalidRequest("the values have no such field to route by", field=self.field)
            column = column.flatten()[column.type.get_field_index(name)]
        try:
            text = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequest("this field cannot be routed by", field=self.field, type=str(column.type)) from error
        return pc.and_(chosen, pc.fill_null(pc.equal(text, self.value), False))


@dataclass(frozen=True, slots=True)
class Columns:
    """``names``: of `record_columns.record_schema`, in its order. ``key``, ``value``: their forms; None means bytes.
    ``prefix``: of the record's columns if the fields of the value are columns too; None if the value is one column.
    ``envelope``: of the values; None means that a value is the row itself. See `envelope`. ``only``: which records are
    rows; None means all. ``topics``: whose records are rows, if they are several.
    """

    names: tuple[str, ...]
    key: Form | None = None
    value: Form | None = None
    headers: Headers = "list"
    prefix: str | None = None
    envelope: str | None = None
    only: Only | None = None
    topics: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Return the column whose value is a partition's number in the table's place."""
        return self.column(SOURCE if self.topics else "partition")

    def place_of(self, number: int) -> dict[str, Any]:
        """Return the partition with this number in the table's place, and its topic if there are several."""
        at, partition = divmod(number, SPAN)
        return {"topic": self.topics[at], "partition": partition} if self.topics else {"partition": number}

    def label(self, number: int) -> object:
        """Return the partition with this number for people, as ``3`` or ``orders-3``."""
        return f"{self.topics[number // SPAN]}-{number % SPAN}" if self.topics else number

    @property
    def forms(self) -> dict[str, Form]:
        """Return the forms of the typed columns, by name."""
        by_name = {"key": self.key, "value": self.value}
        return {name: form for name, form in by_name.items() if form is not None}

    def with_form(self, name: str, form: Form) -> Columns:
        """Return these columns with a form for ``name``, which is key or value."""
        return replace(self, key=form) if name == "key" else replace(self, value=form)

    def column(self, name: str) -> str:
        """Return the column that has this part of a record, such as ``offset``."""
        return f"{self.prefix or ''}{name}"

    def schema(self) -> pa.Schema:
        """Return the schema of the rows. Raises InvalidRequest if a name is not a column, a form is invalid, or two
        columns would have one name.
        """
        kinds = {each.name: each.type for each in record_schema(columns=self.names)}
        for name, form in self.forms.items():
            if name not in kinds:
                raise InvalidRequest("a column is typed and not among those that are written", column=name)
            kinds[name] = row_kind(form.kind()) if name == "value" and self.envelope else form.kind()
        if self.envelope and self.value is None:
            raise InvalidRequest("an envelope has typed values: --value-format json or avro", envelope=self.envelope)
        if self.headers == "map":
            if "headers" not in kinds:
                raise InvalidRequest("headers are a map and not among the columns that are written")
            kinds["headers"] = HEADER_MAP
        if self.topics:
            if "topic" not in kinds:
                raise InvalidRequest("rows of several topics need this column", column="topic")
            if len(set(self.topics)) < len(self.topics):
                raise InvalidRequest("a topic is named twice", topics=", ".join(self.topics))
            kinds[SOURCE] = pa.int32()
        if self.forms:
            kinds[CORRUPT] = CORRUPT_TYPE
        if self.only is not None:
            if self.value is None:
                raise InvalidRequest("only typed values can be chosen by what they are: --value-format")
            if self.only.record is not None and not self.value.registered:
                raise InvalidRequest("only values of a registry name their record: --value-format avro")
            self.only.of(pa.array([], kinds["value"]), pa.array([], CORRUPT_TYPE))
        return pa.schema(list(kinds.items()) if self.prefix is None else self._flat(kinds))

    def _flat(self, kinds: dict[str, pa.DataType]) -> list[pa.Field]:
        """Return the fields of the value, and then the other columns."""
        value = kinds.pop("value", None)
        if value is None or not pa.types.is_struct(value):
            raise InvalidRequest(
                "only values with fields can be flat: --value-format json, or avro with a record", value=str(value)
            )
        if self.prefix and not self.prefix.isidentifier():
            raise InvalidRequest("a prefix of columns has letters, digits and _", prefix=self.prefix)
        others = [pa.field(name if name == CORRUPT else self.column(name), kind) for name, kind in kinds.items()]
        taken = {field.name.lower(): field.name for field in others}
        for field in value:
            if field.name.lower() in taken:
                raise InvalidRequest(
                    "a field of the values has the name of another column; another --metadata-prefix keeps them apart",
                    field=field.name,
                    column=taken[field.name.lower()],
                )
        return [*value, *others]

    def flattened(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of flat rows, by name. A field of a null value is null."""
        value = columns["value"]
        fields = dict(zip([field.name for field in value.type], value.flatten(), strict=True))
        others = {name: column for name, column in columns.items() if name not in ("value", CORRUPT)}
        return {
            **fields,
            **{self.column(name): column for name, column in others.items()},
            CORRUPT: columns[CORRUPT],
        }

    def said(self) -> dict[str, str]:
        """Return the columns as facts for an error."""
        forms = {name: f"{form.format} {form.schema}".strip() for name, form in self.forms.items()}
        flat = {} if self.prefix is None else {"metadata_prefix": self.prefix}
        flat |= {} if self.envelope is None else {"envelope": self.envelope}
        flat |= {} if self.only is None else {"only": str(self.only)}
        return {"columns": ",".join(self.names), **forms, "headers": self.headers, **flat}

    def as_json(self) -> dict[str, Any]:
        forms = {name: form.as_json() for name, form in self.forms.items()}
        flat: dict[str, Any] = {} if self.prefix is None else {"prefix": self.prefix}
        flat |= {} if self.envelope is None else {"envelope": self.envelope}
        flat |= {} if self.only is None else {"only": asdict(self.only)}
        flat |= {"topics": self.topics} if self.topics else {}
        return {"names": list(self.names), "headers": self.headers, **forms, **flat}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Columns:
        forms: dict[str, Any] = {name: Form.of_json(document[name]) for name in ("key", "value") if name in document}
        shape: dict[str, Any] = {name: document[name] for name in ("prefix", "envelope") if name in document}
        if "only" in document:
            shape["only"] = Only(**document["only"])
        shape["topics"] = tuple(document.get("topics", ()))
        return cls(tuple(document["names"]), **forms, headers=document["headers"], **shape)


class ColumnsGrown(Exception):
    """A writer's schema has fields that the columns lack. ``columns`` has all fields. Raised only if they may grow."""

    def __init__(self, columns: Columns) -> None:
        super().__init__("a schema of the registry has what the columns have not")
        self.columns = columns


class Rows:
    """Makes rows from records. Use one instance for each task, because it keeps the schemas that it read. ``corrupt``:
    the number of rows so far whose `_corrupt` is not null.
    """

    def __init__(self, columns: Columns, registry: RegistryAccess | None, *, grows: Collection[str] = ()) -> None:
        """``grows``: which of `key` and `value` may get new fields from a writer's schema."""
        self.schema = columns.schema()
        self.corrupt, self._registry = 0, registry
        self._columns = columns
        self._readers = {name: open_reader(form, registry, grows=name in grows) for name, form in columns.forms.items()}

    def of(self, records: pa.Table) -> pa.Table:
        """Return one row for each record that `Only` chooses, in the same order. ``records``: as `log.decode` makes
        them, with headers.

        Raises Unavailable if the registry does not answer, and ColumnsGrown.
        """
        return self.changes(records)[0]

    def changes(self, records: pa.Table) -> tuple[pa.Table, pa.Array]:
        """Return the rows as `of`, and for each whether its record deletes the row of its key."""
        if (only := self._columns.only) is not None and only.record is not None:
            records = records.filter(self._of_record(records.column("value").combine_chunks(), only))
        deletes = records.column("value").combine_chunks().is_null()
        raw = {name: records.column(name).combine_chunks() for name in self._readers}
        columns, bad = dict(zip(records.column_names, records.columns, strict=True)), {}
        for name, reader in self._readers.items():
            try:
                typed = _read(reader, raw[name])
            except SchemaGrown as grown:
                raise ColumnsGrown(self._columns.with_form(name, grown.form)) from grown
            columns[name], bad[name] = typed.column, typed.corrupt
        if self._columns.envelope is not None:
            opened = open_envelope(columns["value"])
            columns["value"], deletes = opened.rows, pc.or_(deletes, opened.deletes)
            bad["value"] = pc.or_(bad["value"], opened.strange)
        if self._readers:
            times = records.column("timestamp").combine_chunks()
            columns[CORRUPT] = corrupt_column(raw, bad, beyond_years(times))
            self.corrupt += len(records) - columns[CORRUPT].null_count
        if self._columns.topics:
            at = pc.index_in(records.column("topic").combine_chunks(), value_set=pa.array(self._columns.topics))
            source = pc.add(pc.multiply(at, SPAN), records.column("partition").combine_chunks())
            columns[SOURCE] = source.cast(pa.int32())
        if self._columns.headers == "map":
            columns["headers"] = header_map(records.column("headers").combine_chunks())
        chosen = None if only is None else only.of(columns["value"], columns[CORRUPT])
        if self._columns.prefix is not None:
            columns = self._columns.flattened(columns)
        rows = pa.table([columns[name] for name in self.schema.names], schema=self.schema)
        return (rows, deletes) if chosen is None else (rows.filter(chosen), deletes.filter(chosen))

    def _of_record(self, values: pa.Array, only: Only) -> pa.Array:
        """Return a mask of the values whose schema is the record that ``only`` names: these may be rows."""
        from ..values.avro_values import record_names

        assert self._registry is not None
        names = record_names(self._registry, values)
        chosen = pc.fill_null(pc.equal(names, only.record), False)
        return pc.or_(chosen, pc.and_(names.is_null(), values.is_valid())) if only.corrupt else chosen


def _read(reader: Reader, values: pa.Array) -> TypedColumn:
    """Read values in pieces, because a reader holds Python objects of all values that it gets."""
    parts = [reader.of(values.slice(at, AT_ONCE)) for at in range(0, max(1, len(values)), AT_ONCE)]
    columns, flags = [each.column for each in parts], [each.corrupt for each in parts]
    return TypedColumn(pa.concat_arrays(columns), pa.concat_arrays(flags))


def within_years(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records with times that a table can have: earlier times become `FIRST_US`, later ones `LAST_US`.

    Kafka accepts any int64 of milliseconds. A table is partitioned by days, and pyiceberg, Python and Spark support
    only days of the years 1 to 9999. The bounds are not whole milliseconds, so such a row differs from all others.
    """
    times = batch.column("timestamp")
    micros = times.cast(pa.int64())
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is None or FIRST_US - 1 <= bounds["min"] <= bounds["max"] <= LAST_US:
        return batch
    early, late = pc.less(micros, FIRST_US - 1), pc.greater(micros, LAST_US)
    bounded = pc.if_else(early, FIRST_US, pc.if_else(late, LAST_US, micros))
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, batch.schema.field(at), bounded.cast(times.type))


def beyond_years(times: pa.Array) -> pa.Array:
    """Return for each time from `within_years` whether it replaces a time that a table cannot have."""
    return pc.is_in(times.cast(pa.int64()), value_set=pa.array([FIRST_US, LAST_US]))


def header_map(headers: pa.Array) -> pa.Array:
    """Return lists of (key, value) as `HEADER_MAP`: keys by first occurrence, each with its values in order."""
    pairs = headers.flatten()
    keys, values = pairs.field("key"), pairs.field("value")
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(headers)), lengths)
    names = keys.dictionary_encode()
    entry = rows * max(1, len(names.dictionary)) + names.indices.to_numpy(zero_copy_only=False)
    _, first, which = np.unique(entry, return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[by_first] = np.arange(len(first))
    entry_of = rank[which.reshape(-1)]
    counts = np.bincount(entry_of, minlength=len(first))
    items = pa.ListArray.from_arrays(_ends(counts), values.take(np.argsort(entry_of, kind="stable")))
    starts = np.sort(first)
    entries = np.bincount(rows[starts], minlength=len(headers))
    maps = pa.MapArray.from_arrays(_ends(entries), keys.take(starts), items)
    return pc.if_else(headers.is_valid(), maps, pa.scalar(None, maps.type)).cast(HEADER_MAP)


def _ends(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in this schema. Columns and fields are matched by name, or null if missing; types are widened."""
    columns = [
        rows.column(each.name).cast(each.type) if each.name in rows.column_names else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)

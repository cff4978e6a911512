"""Convert Avro values to one Arrow array: together by `AvroColumns` or, where it does not read them, with fastavro.

The reader schema is that of the `Form`. With a registry, each value names its writer schema, and is resolved to the
reader schema. Without a registry, both schemas are the same. A value with more bytes after its end is corrupt.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro import schemaless_reader

from ..runtime.clock import SystemClock
from ..state.errors import CorruptData, InvalidRequest
from .avro_columns import NULL, REJECTED, AvroColumns
from .avro_opaque import Opaque, opaque
from .avro_schemas import name_of, parsed, refuse_nothing, refuse_recursive
from .avro_tree import text_of, tree_of
from .avro_type import shaping
from .evolution import evolved, require_units
from .form import AVRO, Form, SchemaGrown
from .schema_registry import FRAME, MAGIC, RegisteredSchema, RegistryAccess, SchemaRegistry
from .typed_column import TypedColumn, all_parsed, columned

RETRIES = 3
_AROUND = "TierstateValue"
_BARE = -1
"""Stands for the id of a value that names no writer schema."""


def latest_form(access: RegistryAccess, subject: str) -> Form:
    """Return a form with the subject's newest schema, all referenced schemas included. Raises InvalidRequest for an
    unknown subject or an unreadable schema. Also raises Unavailable and AccessDenied.
    """
    registry, what = SchemaRegistry(access, SystemClock(), retries=RETRIES), f"the newest schema of {subject}"
    schema = registry.latest(subject)
    if schema.kind != "AVRO":
        raise InvalidRequest(f"{what} is not Avro's", type=schema.kind, schema=schema.id)
    form = Form(AVRO, _text_of(registry, schema, what), registered=True)
    form.kind()
    return form


def record_names(access: RegistryAccess, values: pa.Array) -> pa.Array:
    """Return the name of each value's record, by its writer schema. It is null if there is none. Raises Unavailable and
    AccessDenied.
    """
    frames = _Frames(values.cast(pa.binary()), framed=True)
    names = {id: _record_name(access, id) for id in frames.ids if id not in (_BARE, None)}
    return pa.array([names.get(id) for id in frames.ids], pa.string()).take(frames.numbers)


class AvroValues:
    """Reads Avro values for a `Form`. Bytes that are not exactly one value are corrupt."""

    def __init__(self, form: Form, kind: pa.DataType, registry: RegistryAccess | None, *, grows: bool) -> None:
        """Raises InvalidRequest without a registry that the values need. ``grows``: `of` may raise SchemaGrown."""
        if form.registered and (registry is None or not registry.url):
            raise InvalidRequest("values that name their schema need a schema registry: set registry.url")
        self._around = None if pa.types.is_struct(kind) else _AROUND
        whole = opaque(form.schema)
        self._text = form.schema if whole is None else whole.text
        self._schema = parsed(_wrapped(self._text, self._around), "the schema")
        self._shape, self._type = shaping(self._text), kind
        self._registry = registry if form.registered else None
        self._form, self._grows = form, grows
        self._writers: dict[int, Any] = {}  # None: the schema is unreadable, or has other units
        self._columns = AvroColumns(self._text, kind)
        self._entries: dict[int, int] = {}
        self._opaque: dict[int, Opaque] = {}
        if self._registry is None:
            self._entries[_BARE] = self._columns.entry(self._text)
            self._opaque |= {} if whole is None else {_BARE: whole}

    def of(self, values: pa.Array) -> TypedColumn:
        """Return the column. Raises, before decoding, Unavailable, AccessDenied, SchemaGrown, InvalidRequest."""
        frames = _Frames(values.cast(pa.binary()), framed=self._registry is not None)
        if self._registry is not None:
            self._meet(set(frames.ids) - {_BARE})
        if not self._opaque.keys().isdisjoint(frames.ids):
            values = self._in_bytes(values)
            frames = _Frames(values, framed=self._registry is not None)
        entries = frames.entries(self._entries)
        if (entries <= NULL).all():
            return self._single(values)
        column, rejected = self._columns.read(frames.data, frames.starts, frames.ends, entries)
        rows = np.flatnonzero(rejected)
        if not len(rows):
            return all_parsed(column)
        single = self._single(values.take(rows))
        corrupt = np.zeros(len(values), np.bool_)
        corrupt[rows] = single.corrupt
        if single.column.null_count < len(rows):
            places = np.arange(len(values))
            places[rows] = len(values) + np.arange(len(rows))
            column = pa.concat_arrays([column, single.column]).take(pa.array(places))
        return TypedColumn(column, pa.array(corrupt))

    def one_by_one(self, values: pa.Array) -> TypedColumn:
        """Convert values one by one with fastavro, which decides whether a value is corrupt. Their writer schemas are
        loaded. If a union has several types, all are corrupt: fastavro does not say which of them a value has.
        """
        return self._single(self._in_bytes(values))

    def _single(self, values: pa.Array) -> TypedColumn:
        if self._columns.has_unions:
            return TypedColumn(pa.nulls(len(values), self._type), values.is_valid())
        return columned(values.to_pylist(), self._row, _Corrupt, self._type)

    def _in_bytes(self, values: pa.Array) -> pa.Array:
        """Return the values as ones of `Opaque.text`. A damaged value becomes bytes that are none."""
        framed = self._registry is not None
        begin = FRAME.size if framed else 0

        def wrapped(value: bytes | None) -> bytes | None:
            if value is None or (framed and not _is_framed(value)):
                return value
            schema = self._opaque.get(FRAME.unpack_from(value)[1] if framed else _BARE)
            try:
                return value if schema is None else schema.wrapped(value, begin)
            except (IndexError, RecursionError):
                return value[:begin]

        return pa.array([wrapped(each) for each in values.to_pylist()], pa.binary())

    def _meet(self, ids: set[int]) -> None:
        """Load writer schemas. With ``grows``, raises SchemaGrown if one has more than the reader schema."""
        assert self._registry is not None
        form = self._form
        writers: dict[int, Any] = {}
        texts: dict[int, str] = {}
        for id in sorted(ids - self._writers.keys()):
            writers[id] = None
            with suppress(CorruptData):
                writer = _writer(self._registry, id, self._around)
                if self._grows:
                    form = _with(form, writer.text, id)
                elif _of_other_units(self._text, writer.text):
                    continue
                writers[id], texts[id] = writer.schema, writer.text
                self._opaque |= {} if writer.opaque is None else {id: writer.opaque}
        if form is not self._form:
            raise SchemaGrown(form)
        self._writers |= writers
        self._entries |= {id: self._columns.entry(texts[id]) for id in texts}

    def _row(self, value: bytes) -> Any:
        writer, reader, stream = self._schema, None, _Bytes(value)
        if self._registry is not None:
            if not _is_framed(value):
                raise _Corrupt
            writer, reader = self._writers[FRAME.unpack_from(value)[1]], self._schema
            if writer is None:
                raise _Corrupt
            stream.seek(FRAME.size)
        try:
            read: Any = schemaless_reader(stream, writer, reader)
            result = self._shape(read if self._around is None else read["value"])
        except Exception as error:  # damaged bytes make fastavro raise any error
            raise _Corrupt from error
        if stream.tell() != len(value):
            raise _Corrupt
        return result


class _Frames:
    """The places where values begin and end, without their frames. ``ids``: those of their writer schemas; ``numbers``:
    for each value, the place of its id among them.
    """

    def __init__(self, values: pa.Array, *, framed: bool) -> None:
        _, offsets, data = values.buffers()
        places = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
        self.data = np.frombuffer(data or b"", np.uint8)
        self.starts, self.ends = places[:-1], places[1:].copy()
        null = values.is_null().to_numpy(zero_copy_only=False)
        self.ends[null] = self.starts[null]
        ids = np.full(len(values), _BARE)
        if framed:
            (rows,) = np.nonzero(self.ends - self.starts >= FRAME.size)
            rows = rows[self.data[self.starts[rows]] == MAGIC]
            ids[rows] = self.data[self.starts[rows][:, None] + np.arange(1, FRAME.size)].view(">u4")[:, 0]
            self.starts = self.starts.copy()
            self.starts[rows] += FRAME.size
        numbers = pa.array(ids, mask=null).dictionary_encode()
        self.ids, self.numbers = numbers.dictionary.to_pylist(), numbers.indices

    def entries(self, of: dict[int, int]) -> npt.NDArray[np.int64]:
        """Return the entry of each value for `AvroColumns`."""
        entries = pa.array([of.get(id, REJECTED) for id in self.ids], pa.int64()).take(self.numbers)
        return np.asarray(entries.fill_null(NULL))


class _Corrupt(Exception):
    pass


class _Bytes(BytesIO):
    """Bytes that end with an error: fastavro skips a field without a look at how much it read, maybe forever."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if size is None or len(data) != size:
            raise EOFError
        return data


def _with(form: Form, text: str, id: int) -> Form:
    try:
        return evolved(form, Form(AVRO, text, registered=True))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, **error.facts, schema=id) from error


def _of_other_units(form: str, text: str) -> bool:
    """Return whether the writer schema ``text`` has other units: Avro ignores them, so values would be wrong."""
    try:
        require_units(tree_of([form], "the schema"), tree_of([text], "the schema"))
    except InvalidRequest:
        return True
    return False


def _is_framed(value: bytes) -> bool:
    return len(value) >= FRAME.size and value[0] == MAGIC


def _wrapped(text: str, around: str | None) -> str:
    """Wrap a schema in a record, which adds no bytes: fastavro parses other types again, and not strictly."""
    if around is None:
        return text
    return json.dumps({"type": "record", "name": around, "fields": [{"name": "value", "type": json.loads(text)}]})


@dataclass(frozen=True, slots=True)
class _Writer:
    """A writer schema. ``text`` includes all schemas that it refers to; ``schema`` is parsed for fastavro. ``opaque``:
    its fields that are bytes in both.
    """

    text: str
    schema: Any
    opaque: Opaque | None


def _text_of(registry: SchemaRegistry, schema: RegisteredSchema, what: str) -> str:
    return text_of(tree_of(registry.whole(schema), what)) if schema.references else schema.text


@lru_cache(maxsize=1024)
def _record_name(access: RegistryAccess, id: int) -> str | None:
    """Return the full name of a writer schema, cached for the process. None if it has no name, or cannot be read."""
    try:
        schema = SchemaRegistry(access, SystemClock(), retries=RETRIES).schema(id)
        return name_of(schema.text) if schema.kind == "AVRO" else None
    except (CorruptData, InvalidRequest):
        return None


@lru_cache(maxsize=1024)
def _writer(access: RegistryAccess, id: int, around: str | None) -> _Writer:
    """Return the writer schema of an id, cached for the process: an id always means the same schema. Raises CorruptData
    if the schema cannot be read, and as `SchemaRegistry.schema`.
    """
    registry, what = SchemaRegistry(access, SystemClock(), retries=RETRIES), f"schema {id} of the registry"
    registered = registry.schema(id)
    if registered.kind != "AVRO":
        raise CorruptData(f"{what} is not Avro's", type=registered.kind)
    try:
        text = _text_of(registry, registered, what)
        whole = opaque(text, what)
        text = text if whole is None else whole.text
        schema = parsed(_wrapped(text, around), what)
        refuse_recursive(schema, {})
        refuse_nothing(json.loads(text), {})
    except RecursionError as error:
        raise CorruptData(f"{what} is nested too deep") from error
    except InvalidRequest as error:
        raise CorruptData(f"{what} cannot be read: {error}") from error
    return _Writer(text, schema, whole)

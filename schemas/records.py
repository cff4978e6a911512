"""Convert values to plain records and back: the one form that Avro, the manifest, the gateway and the CLI share.

A dataclass becomes a dict of its fields, a lineage becomes a list of its entries, and an enumeration becomes its text.
``bytes`` stay bytes for Avro and become lower-case hex in JSON.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ..state.epochs import EpochEntry, Lineage
from ..state.errors import InvalidRequest
from ..state.ids import TopicIdPartition
from ..state.segment import Term

V = TypeVar("V")
Record = dict[str, Any]
_SHARED = (TopicIdPartition, Term)
"""Every fact of a partition repeats values of these types. Equal values are one object, to save memory and time."""
_REMEMBERED = 4096
_CHECKED_IN_PLACE = (int, str, bytes, bool)


def to_record(value: Any, *, json: bool = False) -> Any:
    """Return a value of `state/` as plain data; ``json`` turns bytes into hex."""
    if isinstance(value, Lineage):
        return [to_record(entry, json=json) for entry in value.entries]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_record(getattr(value, each.name), json=json) for each in fields(value)}
    if isinstance(value, tuple):
        return [to_record(each, json=json) for each in value]
    if isinstance(value, bytes):
        return value.hex() if json else value
    return str(value) if isinstance(value, str) else value


def from_record(kind: type[V], record: Any, *, json: bool = False) -> V:
    """Return the value of ``kind`` that `to_record` converted to ``record``. Raises InvalidRequest for other shapes."""
    try:
        value: V = _reader(cast(Any, kind), json)(record)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"not a {kind.__name__}", reason=f"{type(error).__name__}: {error}") from error
    return value


@cache
def _reader(kind: Any, json: bool) -> Callable[[Any], Any]:
    """Return the function that converts a record to ``kind``. The function is built once per type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(arguments, json)
    if origin is tuple:
        element = _reader(arguments[0], json)
        return lambda record: tuple(element(item) for item in record)
    if kind is Lineage:
        entry = _reader(EpochEntry, json)
        return lambda record: Lineage(tuple(entry(item) for item in record))
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind, json)
    if kind is bytes:
        return bytes.fromhex if json else _exactly(bytes)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return cache(kind)
    if isinstance(kind, type) and issubclass(kind, str) and kind is not str:
        return kind
    return _exactly(_plain(kind))


def _dataclass_reader(kind: type, json: bool) -> Callable[[Any], Any]:
    """Return a reader compiled from text, as dataclasses are. Replays spend most time here; a loop took twice as long.

    ``lambda r: kind(v if type(v := r["count"]) is int else wrong(int, v), read1(r["bounds"]), …)``
    """
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind)]
    scope: dict[str, Any] = {"kind": kind, "wrong": _wrong}
    arguments = []
    for at, name in enumerate(names):
        plain = _plain(hints[name])
        if plain in _CHECKED_IN_PLACE and not (json and plain is bytes):
            field_type = plain.__name__
            arguments.append(f"(v if type(v := r[{name!r}]) is {field_type} else wrong({field_type}, v))")
        else:
            scope[f"read{at}"] = _reader(hints[name], json)
            arguments.append(f"read{at}(r[{name!r}])")
    read: Callable[[Any], Any] = eval(f"lambda r: kind({', '.join(arguments)})", scope)
    return _sharing(read, names) if kind in _SHARED else read


def _sharing(read: Callable[[Any], Any], names: list[str]) -> Callable[[Any], Any]:
    """Return a reader that returns the same object for equal records. ``typed`` distinguishes True from 1."""
    take = itemgetter(*names)
    make = lru_cache(_REMEMBERED, typed=True)(lambda *values: read(dict(zip(names, values, strict=True))))
    return lambda record: make(*take(record))


def _union_reader(arguments: tuple[Any, ...], json: bool) -> Callable[[Any], Any]:
    """Return the reader of ``X | None``, or of dataclasses that differ in their field names."""
    kinds = [each for each in arguments if each is not type(None)]
    if len(kinds) == 1:
        only = _reader(kinds[0], json)
        return lambda record: None if record is None else only(record)
    by_names = {frozenset(each.name for each in fields(kind)): _reader(kind, json) for kind in kinds}
    return lambda record: by_names[frozenset(record)](record)


def _plain(kind: Any) -> Any:
    """Return the type under a NewType, such as ``int`` for Offset."""
    return getattr(kind, "__supertype__", kind)


def _wrong(kind: type, value: Any) -> Any:
    raise TypeError(f"{kind.__name__} expected, not {value!r}")


def _exactly(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is kind else _wrong(kind, value)

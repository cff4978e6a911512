"""Values to plain records and back: the one form that Avro, the manifest, the gateway and the CLI share.

A dataclass is a dict of its fields, a lineage a list of entries, an enumeration its text. ``bytes`` stay bytes for
Avro and become lower-case hex in JSON.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ..state.epochs import EpochEntry, Lineage
from ..state.errors import InvalidRequest

V = TypeVar("V")
Record = dict[str, Any]


def to_record(value: Any, *, json: bool = False) -> Any:
    """A value of `state/` as plain data; ``json`` turns bytes into hex."""
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
    """The value of ``kind`` that `to_record` made this of. Raises InvalidRequest for a record of another shape."""
    try:
        value: V = _reader(cast(Any, kind), json)(record)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"not a {kind.__name__}", reason=f"{type(error).__name__}: {error}") from error
    return value


@cache
def _reader(kind: Any, json: bool) -> Callable[[Any], Any]:
    """How to read one type; built once per type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(arguments, json)
    if origin is tuple:
        each = _reader(arguments[0], json)
        return lambda record: tuple(each(item) for item in record)
    if kind is Lineage:
        entry = _reader(EpochEntry, json)
        return lambda record: Lineage(tuple(entry(item) for item in record))
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind, json)
    if kind is bytes:
        return bytes.fromhex if json else _exactly(bytes)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if isinstance(kind, type) and issubclass(kind, str) and kind is not str:
        return kind
    return _exactly(getattr(kind, "__supertype__", kind))


def _dataclass_reader(kind: type, json: bool) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    parts = [(each.name, _reader(hints[each.name], json)) for each in fields(kind)]
    return lambda record: kind(*[read(record[name]) for name, read in parts])


def _union_reader(arguments: tuple[Any, ...], json: bool) -> Callable[[Any], Any]:
    """``X | None``, or dataclasses that are told apart by their field names."""
    kinds = [each for each in arguments if each is not type(None)]
    if len(kinds) == 1:
        only = _reader(kinds[0], json)
        return lambda record: None if record is None else only(record)
    by_names = {frozenset(each.name for each in fields(kind)): _reader(kind, json) for kind in kinds}
    return lambda record: by_names[frozenset(record)](record)


def _exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{kind.__name__} expected, not {value!r}")
        return value

    return check

"""Values to plain records and back: the one form that Avro, the manifest, the gateway and the CLI share.

A dataclass is a dict of its fields, a lineage a list of entries, an enumeration its text. ``bytes`` stay bytes for
Avro and become lower-case hex in JSON.
"""

from __future__ import annotations

import itertools
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
"""Every fact of a partition repeats these: equal ones are one object, which saves their memory and their making."""
_REMEMBERED = 4096


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
        return cache(kind)
    if isinstance(kind, type) and issubclass(kind, str) and kind is not str:
        return kind
    return _exactly(_plain(kind))


def _dataclass_reader(kind: type, json: bool) -> Callable[[Any], Any]:
    """Fields are taken, converted and checked all at once: a replay spends most of its time here."""
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind)]
    converted = [
        (at, _reader(hints[name], json)) for at, name in enumerate(names) if json or not _stands_for_itself(hints[name])
    ]
    types_of_fields = frozenset(itertools.product(*(_types(hints[name]) for name in names)))

    def build(*values: Any) -> Any:
        parts = list(values)
        for at, read in converted:
            parts[at] = read(parts[at])
        if tuple(map(type, parts)) not in types_of_fields:
            for name, part in zip(names, parts, strict=True):
                if type(part) not in _types(hints[name]):
                    raise TypeError(f"{name}: {hints[name]} expected, not {part!r}")
        return kind(*parts)

    make = lru_cache(_REMEMBERED, typed=True)(build) if kind in _SHARED else build
    if len(names) == 1:
        return lambda record: make(record[names[0]])
    take = itemgetter(*names)
    return lambda record: make(*take(record))


def _union_reader(arguments: tuple[Any, ...], json: bool) -> Callable[[Any], Any]:
    """``X | None``, or dataclasses that are told apart by their field names."""
    kinds = [each for each in arguments if each is not type(None)]
    if len(kinds) == 1:
        only = _reader(kinds[0], json)
        return lambda record: None if record is None else only(record)
    by_names = {frozenset(each.name for each in fields(kind)): _reader(kind, json) for kind in kinds}
    return lambda record: by_names[frozenset(record)](record)


def _plain(kind: Any) -> Any:
    """``int`` of a NewType such as Offset."""
    return getattr(kind, "__supertype__", kind)


def _types(kind: Any) -> tuple[type, ...]:
    """What the type of a value of this kind may be."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return tuple(each for argument in get_args(kind) for each in _types(argument))
    return (_plain(origin or kind),)


def _stands_for_itself(kind: Any) -> bool:
    """Whether a value of this kind is in an Avro record as it is, so that its type is all there is to check."""
    return set(_types(kind)) <= {int, str, bytes, bool, type(None)}


def _exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{kind.__name__} expected, not {value!r}")
        return value

    return check

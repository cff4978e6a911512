"""Messages of any API and version, filled by a seed from kafka-python's schemas: the second opinion on the wire."""

from __future__ import annotations

import functools
import random
import uuid
import zipfile
from typing import Any
from unittest import mock

from kafka.protocol.api_message import ApiMessage

from tierstate.sandbox.artifacts import NEWEST, kafka_libs

NULL_IN_EIGHT = 8
WIDTHS = {"int8": 7, "int16": 15, "uint16": 15, "int32": 31, "uint32": 31, "int64": 62}


@functools.cache
def kafkas_message(name: str) -> Any:
    """Return kafka-python's class for a message that kafka-python lacks, from Kafka's own definition of it."""
    with zipfile.ZipFile(kafka_libs() / f"kafka-clients-{NEWEST}.jar") as jar:
        text = jar.read(f"common/message/{name}.json").decode()
    with mock.patch("importlib.resources.read_text", return_value=text):
        return type(ApiMessage)(name, (ApiMessage,), {})


def versions(kind: Any, oldest: int, newest: int) -> range:
    """Return the versions that the table offers and kafka-python knows."""
    structs = kind._struct._versions
    return range(max(oldest, structs[0]), min(newest, structs[1]) + 1)


def message(kind: Any, version: int, seed: int, **given: Any) -> Any:
    """``given`` sets fields of the message itself."""
    made = _filled(kind, kind._struct.fields, version, random.Random(f"{kind.__name__}/{version}/{seed}"))
    for name, value in given.items():
        setattr(made, name, value)
    return made


def encoded(made: Any, version: int) -> bytes:
    return bytes(made.encode(version=version))


def _filled(kind: Any, fields: Any, version: int, dice: random.Random) -> Any:
    values = {}
    for field in fields.values() if isinstance(fields, dict) else fields:
        low, high = field._versions
        if low <= version <= high and (field._tag is None or dice.random() < 0.5):
            values[field.name] = _value(kind, field, version, dice)
    return kind(**values)


def _value(kind: Any, field: Any, version: int, dice: random.Random) -> Any:
    nullable = field._nullable_versions
    if nullable is not None and nullable[0] <= version <= nullable[1] and not dice.randrange(NULL_IN_EIGHT):
        return None
    name = field._type_str
    if name.startswith("[]"):
        size = dice.choice([0, 1, 1, 2, 3])
        element = name[2:]
        if element[0].islower():
            return [_plain(element, dice) for _ in range(size)]
        inner = getattr(kind, element)
        return [_filled(inner, field.array_of.fields, version, dice) for _ in range(size)]
    if name[0].isupper():
        return _filled(getattr(kind, name), field.fields, version, dice)
    return _plain(name, dice)


def _plain(name: str, dice: random.Random) -> Any:
    if name in WIDTHS:
        return dice.choice([0, 1, dice.getrandbits(WIDTHS[name])])
    if name == "bool":
        return bool(dice.getrandbits(1))
    if name == "string":
        return "t" * dice.choice([0, 1, 7, 126, 127, 128, 249])
    if name in ("bytes", "records"):
        return dice.randbytes(dice.choice([0, 1, 127, 128, 5_000]))
    if name == "uuid":
        return uuid.UUID(int=dice.getrandbits(128))
    if name == "bitfield":  # a bitfield of operations
        return set(dice.sample(range(2, 14), dice.randrange(5)))
    if name == "float64":
        return dice.random()
    raise AssertionError(name)

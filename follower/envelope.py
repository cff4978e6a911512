"""The header of every object of the tier-state topic's history: the object's kind, and hashes of all its bytes.

    magic (8) ‖ length of the header (uint32, big endian) ‖ header (JSON) ‖ SHA-256 of all before it (32) ‖ body

The header contains the body's length and SHA-256, so each changed, missing or added byte is found. The first
kilobytes of an object are enough to know its kind.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..storage.object_store import ObjectReads

MAGIC = b"tierobj\n"
FORMAT = 2
READABLE = (1, FORMAT)
"""The formats that can be read. Headers of format 1 lack the fields that have defaults."""
MAX_HEADER_BYTES = 16 * 1024
MAX_BYTES = 64 * 1024
"""The limit of an object that is a header alone."""
_LENGTH = struct.Struct(">I")
_BEFORE = len(MAGIC) + _LENGTH.size
_HASH_BYTES = 32
HEAD_BYTES = _BEFORE + MAX_HEADER_BYTES + _HASH_BYTES
"""The header always ends within this number of bytes from the start of the object."""

H = TypeVar("H", bound="DataclassInstance")
_KINDS = {"str": str, "int": int, "Position": int, "TimestampMs": int}
"""The types that the fields of a header may have."""


def seal(kind: str, header: DataclassInstance) -> bytes:
    """Return the bytes before the body. Raises InvalidRequest if the header is too large."""
    text = orjson.dumps({"kind": kind, "format": FORMAT, **asdict(header)})
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidRequest("header is too large", bytes=len(text), limit=MAX_HEADER_BYTES)
    head = MAGIC + _LENGTH.pack(len(text)) + text
    return head + hashlib.sha256(head).digest()


def unseal(data: bytes, kind: str, header: type[H], *, source: str) -> tuple[H, int]:
    """Return an instance of ``header`` (a flat dataclass of texts and numbers), and the body's offset in bytes.

    ``data``: at least the first `HEAD_BYTES` of the object, or all of it. Raises CorruptData that names ``source``,
    and InvalidRequest for an object of another kind or of a newer format.
    """
    if len(data) < _BEFORE or data[: len(MAGIC)] != MAGIC:
        raise CorruptData("not an object of the tier-state topic's history", file=source, position=0)
    end = _BEFORE + _LENGTH.unpack_from(data, len(MAGIC))[0]
    if end > HEAD_BYTES - _HASH_BYTES or len(data) < end + _HASH_BYTES:
        raise CorruptData("header is cut off", file=source, position=len(MAGIC))
    if hashlib.sha256(data[:end]).digest() != data[end : end + _HASH_BYTES]:
        raise CorruptData("header does not match its hash", file=source, position=0)
    record: dict[str, Any] = orjson.loads(data[_BEFORE:end])
    label = record.pop("kind", None), record.pop("format", None)
    if label[0] != kind or label[1] not in READABLE:
        raise InvalidRequest("object is of another kind or format", file=source, expected=(kind, FORMAT), is_=label)
    types = {field.name: _KINDS[str(field.type)] for field in fields(header)}
    actual = {name: type(value) for name, value in record.items()}
    if label[1] != FORMAT:
        actual = {field.name: types[field.name] for field in fields(header) if field.default is not MISSING} | actual
    if actual != types:
        raise CorruptData("header has other fields than its format", file=source, position=_BEFORE)
    return header(**record), end + _HASH_BYTES


def read_sealed(store: ObjectReads, key: str, kind: str, header: type[H]) -> H | None:
    """Return the header of an object without a body, or None if it is missing. Raises as `unseal` and the store."""
    try:
        return unseal(store.get(key, MAX_BYTES), kind, header, source=key)[0]
    except ObjectNotFound:
        return None

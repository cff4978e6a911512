"""Avro schemas by fingerprint: every version that was ever written stays readable forever.

A file is named after its record (``tierstate.v1.RemoteSegment.avsc``). A new version of a record has a new namespace
next to the old one, and refers to the versions of other records that were current when it was made. The fingerprint is
CRC-64-AVRO of the parsing canonical form (Avro 1.11, "Single-object encoding").
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from fastavro.validation import validate


class UnknownFingerprint(LookupError):
    """Raised for a fingerprint (hex) that no schema of this release has."""


@cache
def schemas() -> dict[str, Any]:
    """Return every record schema by full name, parsed and self-contained."""
    raw = {}
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".avsc"):
            raw[file.name.removesuffix(".avsc")] = json.loads(file.read_text())
    return {name: parse_schema(_inline(name, raw, set())) for name in sorted(raw)}


def _inline(name: str, raw: dict[str, Any], seen: set[str]) -> Any:
    """Return a schema in which every named type is defined at its first use, as Avro requires."""

    def resolve(kind: Any) -> Any:
        if isinstance(kind, list):
            return [resolve(each) for each in kind]
        if isinstance(kind, dict):
            return {**kind, "items": resolve(kind["items"])}
        if kind in raw and kind not in seen:
            return _inline(kind, raw, seen)
        return kind

    seen.add(name)
    record = raw[name]
    return {**record, "fields": [{**each, "type": resolve(each["type"])} for each in record["fields"]]}


@cache
def newest(kind: str) -> str:
    """Return the full name of the newest version of a kind of record. New records are written with this version."""
    return max(
        (name for name in schemas() if name.rpartition(".")[2] == kind),
        key=lambda name: int(name.split(".")[1].removeprefix("v")),
    )


@cache
def fingerprint_of(name: str) -> bytes:
    """Return the 8 bytes that name a schema in front of a value: CRC-64-AVRO, little endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schemas()[name]), "CRC-64-AVRO"))


@cache
def _by_header() -> dict[bytes, tuple[str, Any]]:
    """Return full name and schema by the first ten bytes of a value."""
    return {b"\xc3\x01" + fingerprint_of(name): (name, schema) for name, schema in schemas().items()}


def name_of(value: bytes) -> str | None:
    """Return the full name of the schema that a value names, or None if this release does not have that schema."""
    entry = _by_header().get(value[:10])
    return None if entry is None else entry[0]


def encode_record(name: str, record: dict[str, Any]) -> bytes:
    """Return a record in single-object encoding: ``C3 01``, fingerprint, Avro binary.

    Raises fastavro's errors if the record does not fit the schema. The record is validated first, because the writer
    alone silently drops unknown fields, truncates floats and writes an int of more than 32 bits.
    """
    validate(record, schemas()[name], strict=True)
    out = BytesIO()
    out.write(b"\xc3\x01" + fingerprint_of(name))
    fastavro.schemaless_writer(out, schemas()[name], record, strict=True)
    return out.getvalue()


def decode_record(value: bytes) -> tuple[str, dict[str, Any]]:
    """Return full name and record of a single-object encoded value.

    Raises UnknownFingerprint for an unknown schema. Also raises fastavro's errors (ValueError, EOFError, …) for damaged
    bytes.
    """
    entry = _by_header().get(value[:10])
    if entry is None:
        if value[:2] != b"\xc3\x01":
            raise ValueError("not Avro single-object encoding")
        raise UnknownFingerprint(value[2:10].hex())
    name, schema = entry
    body = BytesIO(value)
    body.seek(10)
    record = fastavro.schemaless_reader(body, schema, None)
    if body.tell() != len(value):
        raise ValueError("bytes after the end of the record")
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return name, record

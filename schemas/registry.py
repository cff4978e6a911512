"""Avro schemas by fingerprint: every version that was ever written stays readable for ever.

A file is named after its record (``tierstate.v1.RemoteSegment.avsc``); a new version of a record is a new namespace
beside the old one, and refers to whatever version of other records it was made with. The fingerprint is CRC-64-AVRO of
the parsing canonical form (Avro 1.11, "Single-object encoding").
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
    """No schema of ours has this fingerprint (hex)."""


@cache
def schemas() -> dict[str, Any]:
    """Every record schema by full name, parsed and self-contained."""
    raw = {}
    for file in resources.files(__package__).iterdir():
        if file.name.endswith(".avsc"):
            raw[file.name.removesuffix(".avsc")] = json.loads(file.read_text())
    return {name: parse_schema(_inline(name, raw, set())) for name in sorted(raw)}


def _inline(name: str, raw: dict[str, Any], seen: set[str]) -> Any:
    """A schema with every named type defined at its first use, as Avro wants it."""

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
    """The full name under which a kind of record is written: its newest version."""
    return max(
        (name for name in schemas() if name.rpartition(".")[2] == kind),
        key=lambda name: int(name.split(".")[1].removeprefix("v")),
    )


@cache
def fingerprint_of(name: str) -> bytes:
    """The 8 bytes that name a schema in front of a value: CRC-64-AVRO, little endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schemas()[name]), "CRC-64-AVRO"))


@cache
def by_fingerprint() -> dict[bytes, str]:
    """Full names by fingerprint."""
    return {fingerprint_of(name): name for name in schemas()}


@cache
def _by_header() -> dict[bytes, tuple[str, Any]]:
    """Full name and schema by the first ten bytes of a value."""
    return {b"\xc3\x01" + fingerprint_of(name): (name, schema) for name, schema in schemas().items()}


def name_of(value: bytes) -> str | None:
    """The full name of the schema that a value names; None for none of ours."""
    known = _by_header().get(value[:10])
    return None if known is None else known[0]


def encode_record(name: str, record: dict[str, Any]) -> bytes:
    """Single-object encoding: ``C3 01``, fingerprint, Avro binary.

    Raises what fastavro raises for a record of another shape. Validated first: the writer alone drops unknown fields,
    cuts floats and writes an int beyond 32 bits, each without a word.
    """
    validate(record, schemas()[name], strict=True)
    out = BytesIO()
    out.write(b"\xc3\x01" + fingerprint_of(name))
    fastavro.schemaless_writer(out, schemas()[name], record, strict=True)
    return out.getvalue()


def decode_record(value: bytes) -> tuple[str, dict[str, Any]]:
    """Full name and record of a single-object encoded value.

    Raises UnknownFingerprint, and what fastavro raises (ValueError, EOFError, …) for damaged bytes.
    """
    known = _by_header().get(value[:10])
    if known is None:
        if value[:2] != b"\xc3\x01":
            raise ValueError("not Avro single-object encoding")
        raise UnknownFingerprint(value[2:10].hex())
    name, schema = known
    body = BytesIO(value)
    body.seek(10)
    record = fastavro.schemaless_reader(body, schema, None)
    if body.tell() != len(value):
        raise ValueError("bytes after the end of the record")
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return name, record

"""Schemas: fingerprints by the Avro specification, and one schema field for every field of a fact."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from fastavro.schema import fingerprint

from tierstate.schemas.codec import KINDS, LATER_FACT
from tierstate.schemas.records import from_record, to_record
from tierstate.schemas.registry import (
    UnknownFingerprint,
    decode_record,
    encode_record,
    fingerprint_of,
    newest,
    schemas,
)
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.errors import InvalidRequest
from tierstate.state.ids import BrokerId
from tierstate.state.offsets import Offset

INTS = {LeaderEpoch, BrokerId}
INT_FIELDS = {"count", "partitions", "partition"}

# These bytes begin every value ever written. A changed schema is a new version, never a changed line.
FINGERPRINTS = {
    "tierstate.v1.AbortedRange": "9a6f47ceb8866d57",
    "tierstate.v1.AbortedRanges": "dd3ad0d3c80907f0",
    "tierstate.v1.ContradictionSettled": "e7f9072ffa23c864",
    "tierstate.v1.CopyAttempt": "91c47d532bec6ea6",
    "tierstate.v1.EpochEntry": "7f43eb621b01c2f7",
    "tierstate.v1.GapAccepted": "82bf87757e907f5c",
    "tierstate.v1.IntegrityHold": "4f05b3f3f0c6cc22",
    "tierstate.v1.LaterFact": "37586f6d20d6a543",
    "tierstate.v1.LeaderElected": "7b1c4d9a48e7187f",
    "tierstate.v1.LineageSettled": "5e556ca48de9c78a",
    "tierstate.v1.LocalTrimIntended": "d371fd1c60749cdb",
    "tierstate.v1.LogStartAdvanced": "270358d0edb879f1",
    "tierstate.v1.OffsetRange": "2dc4505423f3f4a5",
    "tierstate.v1.OperatorOrder": "861c5d19970b7004",
    "tierstate.v1.PartitionDeleted": "f37cad1769379244",
    "tierstate.v1.PartitionMissing": "9550cb0ed53a6133",
    "tierstate.v1.ReaderLease": "796a87c162b0ba90",
    "tierstate.v1.RemoteSegment": "1a83dd46151ce7e0",
    "tierstate.v1.SegmentCopyFinished": "466dad8b24fb5ab8",
    "tierstate.v1.SegmentCopyStarted": "cfe9f08f714ed91c",
    "tierstate.v1.SegmentDeleteFinished": "1473dc2c0e5e2e87",
    "tierstate.v1.SegmentDeleteStarted": "ebc1affd72da6800",
    "tierstate.v1.Term": "79005ca39170543c",
    "tierstate.v1.TopicIdPartition": "3c7e4d9abc22e857",
    "tierstate.v1.TopicMeta": "076600bba06b32c1",
    "tierstate.v2.LogStartAdvanced": "919edfb4db4accf5",
    "tierstate.v2.OperatorOrder": "f539d273b1c9be55",
}


def test_the_fingerprint_of_int_is_the_specifications() -> None:
    # avro: share/test/data/schema-tests.txt gives 8247732601305521295; single-object encoding is little endian
    assert fingerprint('"int"', "CRC-64-AVRO") == (8247732601305521295).to_bytes(8, "little").hex()


def test_the_fingerprint_is_crc_64_avro_of_the_canonical_form() -> None:
    def crc_64_avro(data: bytes) -> int:  # the specification's own code
        empty = 0xC15D213AA4D7A795
        checksum = empty
        for byte in data:
            low = (checksum ^ byte) & 0xFF
            for _ in range(8):
                low = (low >> 1) ^ (empty if low & 1 else 0)
            checksum = (checksum >> 8) ^ low
        return checksum

    canonical = (
        b'{"name":"tierstate.v1.OffsetRange","type":"record",'
        b'"fields":[{"name":"start","type":"long"},{"name":"end","type":"long"}]}'
    )
    assert crc_64_avro(b'"int"') == 8247732601305521295
    assert fingerprint_of("tierstate.v1.OffsetRange") == crc_64_avro(canonical).to_bytes(8, "little")


def test_fingerprints_never_change() -> None:
    assert {name: fingerprint_of(name).hex() for name in schemas()} == FINGERPRINTS


def test_every_schema_has_its_own_fingerprint() -> None:
    assert len(set(map(fingerprint_of, schemas()))) == len(schemas())
    assert {newest(kind) for kind in KINDS} <= schemas().keys()


def test_a_record_is_written_in_its_newest_version() -> None:
    assert newest("LogStartAdvanced") == "tierstate.v2.LogStartAdvanced"
    assert newest("LeaderElected") == "tierstate.v1.LeaderElected"


def expected_type(hint: Any, name: str) -> Any:
    """Return the Avro type that a field's type hint asks for; records by full name."""
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        return {"type": "array", "items": expected_type(arguments[0], "")}
    if get_origin(hint) in (Union, types.UnionType):
        nullable = type(None) in arguments
        return (["null"] if nullable else []) + [
            expected_type(each, name) for each in arguments if each is not type(None)
        ]
    if hint is Lineage:
        return {"type": "array", "items": expected_type(EpochEntry, "")}
    if is_dataclass(hint) and isinstance(hint, type):
        return newest(hint.__name__)
    if isinstance(hint, type) and issubclass(hint, str):
        return "string"
    if hint in (bool, bytes):
        return {bool: "boolean", bytes: "bytes"}[hint]
    return "int" if hint in INTS or name in INT_FIELDS else "long"


def by_name(schema: Any) -> Any:
    """Return a parsed type, with records by name."""
    if isinstance(schema, list):
        return [by_name(each) for each in schema]
    if isinstance(schema, dict) and schema["type"] == "array":
        return {"type": "array", "items": by_name(schema["items"])}
    return schema["name"] if isinstance(schema, dict) else schema


def every_dataclass() -> dict[str, type]:
    classes: dict[str, type] = {}

    def visit(hint: Any) -> None:
        if hint is Lineage:
            visit(EpochEntry)
        elif is_dataclass(hint) and isinstance(hint, type):
            classes[hint.__name__] = hint
            for each in get_type_hints(hint).values():
                visit(each)
        for each in get_args(hint):
            visit(each)

    for kind in KINDS.values():
        visit(kind)
    return classes


def test_every_dataclass_has_a_schema_and_every_schema_a_dataclass() -> None:
    written = {name.rpartition(".")[2] for name in schemas()} - {LATER_FACT.rpartition(".")[2]}
    assert set(every_dataclass()) == written


@pytest.mark.parametrize("name", sorted(every_dataclass()))
def test_a_schema_has_exactly_the_fields_of_its_dataclass_in_their_order_and_types(name: str) -> None:
    kind = every_dataclass()[name]
    hints = get_type_hints(kind)
    ours = [(each.name, expected_type(hints[each.name], each.name)) for each in fields(kind)]
    theirs = [(each["name"], by_name(each["type"])) for each in schemas()[newest(name)]["fields"]]
    assert ours == theirs


@pytest.mark.parametrize(
    "record", [{"epoch": 1}, {"epoch": 1, "start_offset": 2, "more": 3}, {"epoch": 2**31, "start_offset": 2}, {}]
)
def test_a_record_that_is_not_exactly_its_schemas_is_not_written(record: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"start_offset|more|epoch"):
        encode_record(newest("EpochEntry"), record)


def test_single_object_encoding_is_two_magic_bytes_fingerprint_and_body() -> None:
    name = newest("EpochEntry")
    value = encode_record(name, {"epoch": 1, "start_offset": 2})
    assert value == b"\xc3\x01" + fingerprint_of(name) + b"\x02\x04"
    assert decode_record(value) == (name, {"epoch": 1, "start_offset": 2})


def test_damaged_frames_are_told_apart() -> None:
    value = encode_record(newest("EpochEntry"), {"epoch": 1, "start_offset": 2})
    with pytest.raises(ValueError, match="not Avro single-object encoding"):
        decode_record(b"\xc3\x02" + value[2:])
    with pytest.raises(UnknownFingerprint, match="0000000000000000"):
        decode_record(value[:2] + b"\x00" * 8 + value[10:])
    with pytest.raises(ValueError, match="bytes after the end"):
        decode_record(value + b"\x00")


def test_values_of_another_type_are_refused_not_converted() -> None:
    good = to_record(EpochEntry(LeaderEpoch(1), Offset(2)))
    assert from_record(EpochEntry, good) == EpochEntry(LeaderEpoch(1), Offset(2))
    for bad in ("1", 1.0, True, None, [1]):
        with pytest.raises(InvalidRequest):
            from_record(EpochEntry, {**good, "epoch": bad})

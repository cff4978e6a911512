"""The records of Kafka's remote log metadata: real ones, and those that Kafka's own schemas describe."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tierstate.kip405.records import (
    CustomMetadata,
    PartitionDelete,
    SegmentRecord,
    SegmentUpdate,
    decode_custom,
    decode_record,
    topic_id_of,
)
from tierstate.kip405.topic import metadata_partition_of
from tierstate.sandbox.artifacts import RELEASES, kafka_libs
from tierstate.state.errors import CorruptData
from tierstate.state.segment import SegmentState

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.metadata.jsonl"))
KINDS = {
    0: "RemoteLogSegmentMetadataRecord",
    1: "RemoteLogSegmentMetadataUpdateRecord",
    2: "RemotePartitionDeleteMetadataRecord",
}
CUSTOM = {0: ("varlong", 1 << 33), 1: ("text", "ts/"), 2: ("text", "orders-topic/0/1-id")}


def golden() -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    for path in GOLDEN:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield row["partition"], bytes.fromhex(row["value"]), row


def one_of_each_shape() -> list[bytes]:
    """Return one golden record of each kind, state and length: the others differ from it in ids and numbers only."""
    shapes = {(row["kind"], row.get("state"), len(value)): value for _, value, row in golden()}
    assert len(shapes) == 25
    return [*shapes.values()]


def test_every_golden_record_is_decoded_and_lies_in_the_partition_that_kafka_chose() -> None:
    kinds = {"Segment": SegmentRecord, "Update": SegmentUpdate}
    seen = set()
    for partition, value, row in golden():
        record = decode_record(value)
        assert isinstance(record, kinds[row["kind"]])
        assert topic_id_of(value) == record.partition.topic_id.raw
        assert metadata_partition_of(record.partition, 2) == partition
        if isinstance(record, SegmentUpdate):
            assert record.state.value == row["state"]
            custom = decode_custom(record.custom)
            assert custom.key is None or str(record.segment_id) in custom.key
            seen.add((record.state, custom.prefix))
    assert seen == {
        (SegmentState.COPY_SEGMENT_FINISHED, "ts/"),
        (SegmentState.DELETE_SEGMENT_STARTED, "ts/"),
        (SegmentState.DELETE_SEGMENT_FINISHED, "ts/"),
        (SegmentState.DELETE_SEGMENT_STARTED, None),  # a copy that died
        (SegmentState.DELETE_SEGMENT_FINISHED, None),
    }


def test_a_record_that_is_cut_off_is_refused() -> None:
    for value in one_of_each_shape():
        for size in range(len(value)):
            with pytest.raises(CorruptData):
                decode_record(value[:size])


def test_a_changed_byte_is_decoded_or_refused_by_name() -> None:
    chance = random.Random(405)
    for value in one_of_each_shape():
        for at in range(len(value)):
            changed = bytearray(value)
            changed[at] ^= 1 << chance.randrange(8)
            with suppress(CorruptData):
                decode_record(bytes(changed))


@pytest.mark.parametrize("form", [b"\x02\x00\x00", b"\x01\x03\x00", b"\x01\x00\x01"])
def test_an_unknown_form_is_refused_with_its_numbers(form: bytes) -> None:
    value = next(value for _, value, _ in golden())
    with pytest.raises(CorruptData, match="unknown form") as refused:
        decode_record(form + value[3:])
    assert list(refused.value.facts.values()) == list(form)


@pytest.mark.parametrize("release", [RELEASES[0], RELEASES[-1]])
def test_what_kafkas_own_schemas_describe_is_decoded_field_by_field(release: str) -> None:
    """Records are written by a walk of the schemas in Kafka's jar, also with tags that this release does not know."""
    schemas = schemas_of(release)
    for kind, name in KINDS.items():
        for seed in range(50):
            chance, wrote = random.Random(seed), dict[str, Any]()
            value = bytes((1, kind, 0)) + struct_of(
                schemas[name]["fields"], chance, wrote, "", unknown_tag=seed % 2 == 1
            )
            record = decode_record(value)
            assert str(record.partition.partition) == str(wrote["Partition"])
            assert record.partition.topic_id.raw == wrote["TopicIdPartition.Id"]
            assert record.topic == wrote["Name"]
            if isinstance(record, SegmentRecord):
                assert (record.offsets.start, record.offsets.end) == (wrote["StartOffset"], wrote["EndOffset"])
                assert (record.broker_id, record.at) == (wrote["BrokerId"], wrote["EventTimestampMs"])
                assert (record.max_timestamp, record.log_bytes) == (
                    wrote["MaxTimestampMs"],
                    wrote["SegmentSizeInBytes"],
                )
                assert [tuple(vars_of(each)) for each in record.leader_epochs.entries] == wrote["epochs"]
                assert record.transaction_index_empty == wrote.get("TxnIndexEmpty", False)
            elif isinstance(record, SegmentUpdate):
                assert (record.broker_id, record.at) == (wrote["BrokerId"], wrote["EventTimestampMs"])
                assert record.custom == wrote["CustomMetadata"]
            else:
                assert isinstance(record, PartitionDelete)
                assert record.state == wrote["RemotePartitionDeleteState"]


def test_custom_metadata_of_the_plugin_may_have_any_of_its_fields() -> None:
    assert decode_custom(b"") == CustomMetadata()
    assert decode_custom(bytes.fromhex("0101030274732f"[:2] + "0104" + "04" + "74732f")) == CustomMetadata(prefix="ts/")
    assert decode_custom(b"\x02\x00\x01\x02\x07\x02\xff\xff") == CustomMetadata(remote_bytes=1)  # and an unknown tag
    with pytest.raises(CorruptData):
        decode_custom(b"\x01\x00\x02\x02")


def schemas_of(release: str) -> dict[str, Any]:
    jar = kafka_libs(release=release) / f"kafka-storage-{release}.jar"
    with zipfile.ZipFile(jar) as files:
        texts = {Path(name).stem: files.read(name).decode() for name in files.namelist() if name.endswith(".json")}
    return {
        name: json.loads("\n".join(line for line in texts[name].splitlines() if not line.strip().startswith("//")))
        for name in KINDS.values()
    }


def struct_of(fields: Any, chance: random.Random, wrote: dict[str, Any], within: str, *, unknown_tag: bool) -> bytes:
    """Encode a flexible struct by its schema, with values by chance. ``wrote`` gets them by name."""
    data, tags = b"", dict[int, bytes]()
    for field in fields:
        value = value_of(field, chance, wrote, within, unknown_tag=unknown_tag)
        if "tag" in field:
            if value != b"\x00":  # Kafka writes no default
                tags[field["tag"]] = value
        else:
            data += value
    if unknown_tag:
        tags[99] = b"later"
    section = bytes([len(tags)])
    for tag, value in sorted(tags.items()):
        section += bytes([tag, len(value)]) + value
    return data + section


def value_of(field: Any, chance: random.Random, wrote: dict[str, Any], within: str, *, unknown_tag: bool) -> bytes:
    name, kind = field["name"], field["type"]
    if kind == "[]RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry" or kind.startswith("[]"):
        epochs = [(number * 2, 100 + number * 10) for number in range(chance.randint(1, 9))]
        wrote["epochs"] = epochs
        parts = [struct.pack(">iq", *each) + (b"\x01\x63\x01x" if unknown_tag else b"\x00") for each in epochs]
        return bytes([len(parts) + 1]) + b"".join(parts)
    if "fields" in field:
        return struct_of(field["fields"], chance, wrote, name, unknown_tag=unknown_tag)
    if kind == "string":
        wrote[name] = f"topic-{chance.randrange(1000)}"
        return bytes([len(wrote[name]) + 1]) + str(wrote[name]).encode()
    if kind == "uuid":
        wrote[f"{within}.{name}"] = chance.randbytes(16)
        return bytes(wrote[f"{within}.{name}"])
    if kind == "bytes":
        wrote[name] = chance.randbytes(chance.randrange(40))
        return b"\x00" if not wrote[name] else bytes([len(wrote[name]) + 1]) + bytes(wrote[name])
    if kind == "bool":
        wrote[name] = chance.random() < 0.5
        return bytes([wrote[name]])
    largest = {"int8": 3, "int32": 2**31 - 1, "int64": 2**62}[kind]
    wrote[name] = chance.randrange(largest)
    if name == "RemoteLogSegmentState" and "SegmentSizeInBytes" in wrote:
        wrote[name] = 0
    if name == "EndOffset":
        wrote[name] = wrote["StartOffset"] + chance.randrange(1000)
    return struct.pack({"int8": ">b", "int32": ">i", "int64": ">q"}[kind], wrote[name])


def vars_of(entry: Any) -> tuple[int, int]:
    return entry.epoch, entry.start_offset

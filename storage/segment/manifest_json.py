"""Formats and parses the manifest, the JSON object that is written last and commits a segment: Aiven's version 1.

The fields of Aiven's format are written byte for byte as the plugin writes them. The parser is as strict as Aiven's:
an unknown field is an error, except inside ``remoteLogSegmentMetadata``, which Aiven's reader ignores. The field
``tierstate`` in it has all that is needed to rebuild the topic from the bucket alone and to check every byte.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import asdict, replace
from typing import Any

import google_crc32c
import orjson

from ...schemas.codec import descriptor_from_json, descriptor_to_json
from ...state.epochs import EpochEntry, LeaderEpoch, Lineage
from ...state.errors import CorruptData, InvalidRequest
from ...state.ids import RemoteSegmentId, TopicId, TopicIdPartition
from ...state.offsets import Offset, TimestampMs
from ...state.segment import AbortedRange, AbortedRanges
from .chunks import ChunkIndex, unwrap_sizes, wrap_sizes
from .manifest import Encryption, IndexKind, IndexSpan, SegmentManifest, SegmentMetadata, SentChecksums, TierstateBlock

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
DATA_KEY_ROOM = 1536
"""Bytes that tierstate's encrypted manifests reserve for the data key in quotes. Blanks at the manifest's end fill the
rest. So the manifest keeps the size that its fact names, whatever key `rotate.py` uses (RSA up to 8192 bits).
"""


OWN_CHECKSUM = "manifest_crc32c"
"""Field with the CRC-32C of the manifest. The checksum does not cover the blanks at the end, its own value, and the
values that a rotation of keys replaces (`rotate.py`).
"""
_OWN_CHECKSUM = re.compile(rb'("manifest_crc32c":")[0-9a-f]{8}')
_UNCOVERED = re.compile(rb'("(?:manifest_crc32c|dataKey|key_fingerprint)":")[^"]*')


def format_manifest(manifest: SegmentManifest) -> bytes:
    """Return compact UTF-8 JSON in Aiven's field order. `DATA_KEY_ROOM` explains the blanks at its end."""
    record: dict[str, Any] = {
        "version": "1",
        "chunkIndex": _chunk_record(manifest.chunks),
        "segmentIndexes": {kind.value: (span := manifest.indexes[kind]) and asdict(span) for kind in IndexKind},
        "compression": manifest.compression,
    }
    if manifest.encryption is not None:
        record["encryption"] = {
            "dataKey": f"{manifest.encryption.key_id}:{_base64(manifest.encryption.wrapped_key)}",
            "aad": _base64(manifest.encryption.aad),
        }
    if manifest.metadata is not None:
        record["remoteLogSegmentMetadata"] = _metadata_record(manifest.metadata)
        if manifest.tierstate is not None:
            record["remoteLogSegmentMetadata"]["tierstate"] = _block_record(manifest.tierstate, manifest.encryption)
    data = orjson.dumps(record)
    if manifest.tierstate is not None and manifest.tierstate.sent is not None:
        data = with_own_checksum(data)
    if manifest.encryption is None or manifest.tierstate is None:
        return data
    data_key = len(orjson.dumps(record["encryption"]["dataKey"]))
    if data_key > DATA_KEY_ROOM:
        raise InvalidRequest("a wrapped data key this long does not fit into a manifest", bytes=data_key)
    return data + b" " * (DATA_KEY_ROOM - data_key)


def with_own_checksum(data: bytes) -> bytes:
    """Return the manifest with its checksum in the field `OWN_CHECKSUM`, or unchanged if it has no such field."""
    covered = _UNCOVERED.sub(lambda match: match[1], data.rstrip(b" "))
    checksum = f"{google_crc32c.value(covered):08x}".encode()
    return _OWN_CHECKSUM.sub(lambda match: match[1] + checksum, data, count=1)


def with_own_size(manifest: SegmentManifest) -> SegmentManifest:
    """Return the manifest with its size in bytes in its descriptor. More digits only make it longer: the loop ends."""
    while manifest.tierstate is not None:
        size = len(format_manifest(manifest))
        segment = manifest.tierstate.segment
        if segment.manifest_bytes == size:
            break
        segment = replace(segment, manifest_bytes=size)
        manifest = replace(manifest, tierstate=replace(manifest.tierstate, segment=segment))
    return manifest


def parse_manifest(data: bytes, *, source: str) -> SegmentManifest:
    """Return the manifest. Raises CorruptData that names ``source``, and InvalidRequest for an unsupported version."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptData("manifest is not JSON", file=source, reason=error) from error
    if not isinstance(record, dict) or "version" not in record:
        raise CorruptData("manifest has no version", file=source)
    if record["version"] not in ("1", 1) or record["version"] is True:
        raise InvalidRequest("this version reads manifests of version 1 only", file=source, version=record["version"])
    if "segmentIndexes" not in record and "chunkIndex" in record:
        raise InvalidRequest("manifest from before October 2023, without segmentIndexes: not read", file=source)
    try:
        manifest = _manifest(record, source)
        has_own = _OWN_CHECKSUM.search(data) is not None
        has_sent = manifest.tierstate is not None and manifest.tierstate.sent is not None
        if has_own != has_sent or (has_own and with_own_checksum(data) != data):  # a flipped bit may hide the field
            raise CorruptData("the manifest is not what was written", field=OWN_CHECKSUM)
        return manifest
    except CorruptData as error:
        raise CorruptData(error.message, **{"file": source, **error.facts}) from error
    except InvalidRequest as error:
        raise CorruptData("manifest contradicts itself", file=source, reason=error) from error


def _chunk_record(chunks: ChunkIndex) -> dict[str, Any]:
    start = {"originalChunkSize": chunks.chunk_bytes, "originalFileSize": chunks.file_bytes}
    if not chunks.fixed:
        return {"type": "variable", **start, "transformedChunks": wrap_sizes(chunks.stored_sizes)}
    size, last = chunks.stored_sizes
    return {"type": "fixed", **start, "transformedChunkSize": size, "finalTransformedChunkSize": last}


def _metadata_record(metadata: SegmentMetadata) -> dict[str, Any]:
    record: dict[str, Any] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(metadata.partition.topic_id),
                "topicPartition": {"topic": metadata.topic, "partition": metadata.partition.partition},
            },
            "id": str(metadata.segment_id),
        },
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp,
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp,
        "segmentLeaderEpochs": {str(each.epoch): each.start_offset for each in metadata.leader_epochs.entries},
    }
    if metadata.transaction_index_empty is not None:
        record["txnIdxEmpty"] = metadata.transaction_index_empty
    return record


def _block_record(block: TierstateBlock, encryption: Encryption | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "descriptor": descriptor_to_json(block.segment),
        "cluster_id": block.cluster_id,
        "tier_state_topic_id": str(block.tier_state_topic_id),
        "log_start_offset": block.log_start_offset,
        "chunk_first_offsets": block.chunk_first_offsets,
    }
    if block.sent is not None:
        chunks = block.sent.chunks
        record["object_crc32c"] = {"log": block.sent.log, "indexes": block.sent.indexes}
        if chunks:
            record["object_crc32c"]["chunks"] = _base64(struct.pack(f">{len(chunks)}I", *chunks))
        record[OWN_CHECKSUM] = "0" * 8
    if block.undecodable is not None:
        record["undecodable"] = block.undecodable
    if encryption is not None and encryption.key_fingerprint is not None:
        record["key_fingerprint"] = encryption.key_fingerprint
    if not block.segment.aborted.inline:
        record["aborted"] = [[each.producer_id, each.first, each.last] for each in block.aborted]
    return record


def _manifest(record: dict[str, Any], source: str) -> SegmentManifest:
    fields = ("version", "chunkIndex", "segmentIndexes", "compression")
    _object(record, "manifest", fields, ("encryption", "remoteLogSegmentMetadata"))
    spans = _object(record["segmentIndexes"], "segmentIndexes", tuple(IndexKind))
    encryption, metadata = record.get("encryption"), record.get("remoteLogSegmentMetadata")
    manifest = SegmentManifest(
        _chunks(record["chunkIndex"]),
        {kind: _span(spans[kind], kind) for kind in IndexKind},
        _compression(record["compression"]),
        None if encryption is None else _encryption(encryption),
        _metadata(metadata),
    )
    block = metadata.get("tierstate") if isinstance(metadata, dict) else None
    if block is None:
        return manifest
    manifest = replace(manifest, tierstate=_block(block, manifest.chunks.count, source))
    if manifest.encryption is not None and block.get("key_fingerprint") is not None:
        identified = replace(manifest.encryption, key_fingerprint=_text(block, "key_fingerprint"))
        manifest = replace(manifest, encryption=identified)
    return manifest


def _chunks(record: Any) -> ChunkIndex:
    kind = record.get("type") if isinstance(record, dict) else None
    start = ("type", "originalChunkSize", "originalFileSize")
    if kind == "fixed":
        _object(record, "chunkIndex", (*start, "transformedChunkSize", "finalTransformedChunkSize"))
        sizes = (_int(record, "transformedChunkSize"), _int(record, "finalTransformedChunkSize"))
        return ChunkIndex(_int(record, "originalChunkSize"), _int(record, "originalFileSize"), sizes, fixed=True)
    if kind == "variable":
        _object(record, "chunkIndex", (*start, "transformedChunks"))
        stored = unwrap_sizes(_text(record, "transformedChunks"))
        return ChunkIndex.of_variable(_int(record, "originalChunkSize"), _int(record, "originalFileSize"), stored)
    raise CorruptData("manifest has no chunk index of a known type", type=repr(kind))


def _span(record: Any, kind: IndexKind) -> IndexSpan | None:
    if record is None and kind is IndexKind.TRANSACTION:
        return None
    _object(record, f"segmentIndexes.{kind}", ("position", "size"))
    return IndexSpan(_int(record, "position"), _int(record, "size"))


def _compression(value: Any) -> bool:
    """Return the boolean. As in Aiven's reader (Jackson), null and texts are accepted too."""
    values = {None: False, False: False, True: True, "false": False, "true": True}
    if not isinstance(value, bool | str | None) or value not in values:
        raise CorruptData("not a truth value", field="compression", value=repr(value))
    return values[value]


def _encryption(record: Any) -> Encryption:
    _object(record, "encryption", ("dataKey", "aad"))
    parts = _text(record, "dataKey").split(":")
    if len(parts) != 2 or not parts[0].strip() or not parts[1]:
        raise CorruptData("a data key is written 'key id:base64'", field="encryption.dataKey")
    return Encryption(parts[0], _bytes(parts[1], "encryption.dataKey"), _bytes(record["aad"], "encryption.aad"))


def _metadata(record: Any) -> SegmentMetadata | None:
    try:
        place = record["remoteLogSegmentId"]["topicIdPartition"]
        epochs = {int(epoch): int(start) for epoch, start in record["segmentLeaderEpochs"].items()}
        empty = record.get("txnIdxEmpty")
        return SegmentMetadata(
            TopicIdPartition(TopicId(place["topicId"]), _int(place["topicPartition"], "partition")),
            str(place["topicPartition"]["topic"]),
            RemoteSegmentId(record["remoteLogSegmentId"]["id"]),
            Offset(_int(record, "startOffset")),
            Offset(_int(record, "endOffset")),
            TimestampMs(int(record["maxTimestampMs"])),
            int(record["brokerId"]),
            TimestampMs(int(record["eventTimestampMs"])),
            Lineage(tuple(EpochEntry(LeaderEpoch(epoch), Offset(epochs[epoch])) for epoch in sorted(epochs))),
            empty if isinstance(empty, bool) else None,
        )
    except (CorruptData, InvalidRequest, KeyError, TypeError, ValueError, AttributeError):
        return None


def _block(record: Any, chunks: int, source: str) -> TierstateBlock:
    if not isinstance(record, dict):
        raise CorruptData("not an object", field="tierstate")
    segment = descriptor_from_json(record.get("descriptor"), source=source)
    first_offsets = record.get("chunk_first_offsets")
    if not isinstance(first_offsets, list) or len(first_offsets) != chunks:
        raise CorruptData("not one offset a chunk", field="tierstate.chunk_first_offsets", chunks=chunks)
    aborted = segment.aborted.entries if segment.aborted.inline else _aborted(record.get("aborted"))
    if AbortedRanges.of(aborted) != segment.aborted:
        raise CorruptData("aborted ranges do not match their hash", field="tierstate.aborted", count=len(aborted))
    return TierstateBlock(
        segment,
        _text(record, "cluster_id"),
        TopicId(_text(record, "tier_state_topic_id")),
        Offset(_int(record, "log_start_offset")),
        tuple(None if each is None else Offset(_number(each, "chunk_first_offsets")) for each in first_offsets),
        aborted,
        _sent(record.get("object_crc32c"), chunks),
        None if record.get("undecodable") is None else Offset(_int(record, "undecodable")),
    )


def _sent(record: Any, chunks: int) -> SentChecksums | None:
    if record is None:
        return None
    checksums = SentChecksums(_int(record, "log"), _int(record, "indexes"))
    if "chunks" not in record:
        return checksums
    coded = _bytes(record["chunks"], "object_crc32c.chunks")
    if len(coded) != 4 * chunks:
        raise CorruptData("not one checksum a chunk", field="object_crc32c.chunks", chunks=chunks)
    return replace(checksums, chunks=struct.unpack(f">{chunks}I", coded))


def _aborted(record: Any) -> tuple[AbortedRange, ...]:
    if not isinstance(record, list) or any(not isinstance(each, list) or len(each) != 3 for each in record):
        raise CorruptData("aborted ranges are missing or malformed", field="tierstate.aborted")
    return tuple(
        AbortedRange(_number(producer, "aborted"), Offset(_number(first, "aborted")), Offset(_number(last, "aborted")))
        for producer, first, last in record
    )


def _object(record: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return ``record`` itself. Raises CorruptData if a required field is missing or a field is unknown."""
    if not isinstance(record, dict):
        raise CorruptData("not an object", field=what)
    if missing := [name for name in required if name not in record]:
        raise CorruptData("fields are missing", field=what, missing=",".join(missing))
    if unknown := [name for name in record if name not in required and name not in optional]:
        raise CorruptData("unknown fields", field=what, unknown=",".join(unknown))
    return record


def _number(value: Any, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise CorruptData("not a number of at least 0", field=field, value=repr(value))
    return value


def _int(record: Any, field: str) -> int:
    return _number(record.get(field), field)


def _text(record: Any, field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        raise CorruptData("not a text", field=field, value=repr(value))
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: Any, field: str) -> bytes:
    """Decode standard base64 with padding, as Aiven's reader requires."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError) as error:
        raise CorruptData("not base64", field=field) from error

"""Kafka's own tiered storage (KIP-405) seen from outside: its metadata topic, and the folder of `LocalTieredStorage`.

The metadata records are Kafka's flexible messages: an unsigned varint each for frame version, kind and version, then
the fields of ``RemoteLogSegmentMetadataRecord.json`` or ``RemoteLogSegmentMetadataUpdateRecord.json``.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

METADATA_TOPIC = "__remote_log_metadata"
SEGMENT, UPDATE = 0, 1
STARTED, FINISHED, DELETE_STARTED, DELETED = range(4)
END_OF_PARTITION = -191


@dataclass(frozen=True)
class KafkaSegment:
    """One segment by Kafka's own record of its copy. ``epochs``: leader epoch and its first offset here."""

    id: str
    topic: str
    start: int
    end: int
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    log_bytes: int
    state: int


def read_from_beginning(
    bootstrap: str, topic: str, isolation: str = "read_committed"
) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record that Kafka's client gets, partition after partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"oracle-{topic}",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    records: list[tuple[int, int, bytes | None]] = []
    partitions = list(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    ended = 0
    while ended < len(partitions):
        message: Any = consumer.poll(30)
        assert message is not None, "the oracle hangs"
        if message.error() is None:
            records.append((message.partition(), message.offset(), message.value()))
            continue
        assert message.error().code() == END_OF_PARTITION, message.error()
        ended += 1
    consumer.close()
    return [(offset, value) for _, offset, value in sorted(records, key=lambda each: each[:2])]


def kafka_segments(bootstrap: str, topic: str) -> list[KafkaSegment]:
    """Return every segment of partition 0 that Kafka ever copied, with the last state of each, by first offset."""
    segments: dict[str, KafkaSegment] = {}
    for _, value in read_from_beginning(bootstrap, METADATA_TOPIC):
        assert value is not None
        message = _Message(value)
        frame, kind, version = message.varint(), message.varint(), message.varint()
        assert (frame, version) == (1, 0)
        assert kind in (SEGMENT, UPDATE)
        name, id = message.segment_id()
        if kind == SEGMENT:
            segments[id] = message.segment(name, id)
        else:
            segments[id] = replace(segments[id], state=message.updated_state())
    return sorted((each for each in segments.values() if each.topic == topic), key=lambda each: each.start)


def stored(folder: Path, segment: KafkaSegment, suffix: str) -> bytes:
    """Return a file of a segment in the folder of `LocalTieredStorage`; empty when there is none."""
    paths = list(folder.rglob(f"*{segment.id}{suffix}"))
    return paths[0].read_bytes() if paths else b""


@dataclass
class _Message:
    data: bytes
    at: int = 0

    def segment(self, topic: str, id: str) -> KafkaSegment:
        start, end, _broker, max_timestamp, _event = self.take(">qqiqq")
        epochs = tuple(self.epoch() for _ in range(self.varint() - 1))
        (log_bytes,) = self.take(">i")
        self.bytes()  # custom metadata
        (state,) = self.take(">b")
        return KafkaSegment(id, topic, start, end, max_timestamp, epochs, log_bytes, state)

    def updated_state(self) -> int:
        self.take(">iq")  # broker, time
        self.bytes()
        (state,) = self.take(">b")
        return int(state)

    def segment_id(self) -> tuple[str, str]:
        """Return the topic name, and the segment's id as in file names."""
        name = self.bytes().decode()
        self.take(">16si")  # topic id, partition
        self.tags()
        (id,) = self.take(">16s")
        self.tags()
        return name, base64.urlsafe_b64encode(id).decode().rstrip("=")

    def epoch(self) -> tuple[int, int]:
        epoch, offset = self.take(">iq")
        self.tags()
        return epoch, offset

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def bytes(self) -> bytes:
        """Return the bytes of a compact string or compact bytes; null is empty."""
        length = max(self.varint() - 1, 0)
        self.at += length
        return self.data[self.at - length : self.at]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.at += self.varint()

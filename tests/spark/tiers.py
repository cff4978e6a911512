"""A real topic whose segments lie in a directory store, as an agent would have copied them, and its facts."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.scenarios.house import eventually
from tierstate.broker.tier_topic import KafkaTierTopic
from tierstate.broker.tier_topic_setup import TierTopicSpec, create_tier_topic, open_tier_topic
from tierstate.log.batch import BatchHeader, iter_batches
from tierstate.log.partition import PartitionFolder, format_epoch_checkpoint, open_partition
from tierstate.log.transaction_index import parse_transaction_index
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import LeaderEpoch
from tierstate.state.facts import Fact, LeaderElected, LogStartAdvanced, SegmentCopyFinished, SegmentCopyStarted
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of, partition_of_key, tier_partition_of
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.segment import AbortedRange, AbortedRanges, Compression, CopyAttempt, RemoteSegment, Term
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.chunks import first_offsets
from tierstate.storage.segment.manifest import SegmentManifest, TierstateBlock, metadata_of
from tierstate.storage.segment.manifest_json import with_own_size
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

CHUNK_BYTES = 4096
NOW = TimestampMs(1_767_225_600_000)
Record = tuple[Any, ...]
"""key, value, topic, partition, offset, timestamp ms, timestamp type (0 create, 1 append), headers or None."""


@dataclass
class Tiers:
    """One cluster, one store, one tier-state topic."""

    kafka: KafkaSandbox
    folder: Path
    tier_state_topic: str
    store: DirectoryStore = field(init=False)
    topic: KafkaTierTopic = field(init=False)
    admin: Any = field(init=False)

    def __post_init__(self) -> None:
        self.store = DirectoryStore(self.folder)
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        spec = TierTopicSpec(self.tier_state_topic, 4, 1)
        create_tier_topic(self.kafka.client_config, spec, NOW)
        self.topic = open_tier_topic(self.kafka.client_config, spec)

    def options(self, **more: str) -> dict[str, str]:
        """Return options of the source; ``more`` with ``__`` for ``.``."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "tierstate.store": self.folder.as_uri(),
            "tierstate.tier_state_topic": self.tier_state_topic,
        } | {name.replace("__", "."): value for name, value in more.items()}

    def page_texts(self, topic: str) -> dict[str, str]:
        """Return the texts that replace the addresses in a program of `docs/spark.md`."""
        return {
            "127.0.0.1:9092": self.kafka.bootstrap,
            "s3://bucket/prefix": self.folder.as_uri(),
            '"subscribe", "orders"': f'"subscribe", "{topic}"',
            ".load()": f'.option("tierstate.tier_state_topic", "{self.tier_state_topic}").load()',
        }

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        settings = {"internal.segment.bytes": "8192", "retention.ms": "-1"} | {
            key.replace("_", "."): value for key, value in config.items()
        }
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        while len(self.admin.list_topics(name, timeout=60).topics[name].partitions) < partitions:
            time.sleep(0.02)
        return name

    def create_again(self, name: str) -> None:
        """Create the topic again under the same name; Kafka deletes a topic in its own time."""
        while name in self.admin.list_topics(timeout=60).topics:
            time.sleep(0.05)
        self.create(name)

    def produce(self, name: str, partition: int, records: list[dict[str, Any]], *, transaction: str = "") -> None:
        """Produce small batches; ``transaction``: commit or abort."""
        config = {"bootstrap.servers": self.kafka.bootstrap, "log_level": 0, "batch.num.messages": 10}
        producer = Producer(
            config
            | {"compression.type": "zstd"}
            | ({"transactional.id": f"{name}-{transaction}"} if transaction else {})
        )
        if transaction:
            producer.init_transactions()
            producer.begin_transaction()
        for record in records:
            producer.produce(name, partition=partition, **record)
        assert producer.flush(30) == 0
        if transaction == "commit":
            producer.commit_transaction()
        elif transaction == "abort":
            producer.abort_transaction()
        if transaction:  # the coordinator writes the marker a moment later, and more records must not come before it
            eventually(lambda: len({self._end(name, partition, level) for level in IsolationLevel}) == 1)

    def _end(self, name: str, partition: int, level: IsolationLevel) -> int:
        place = TopicPartition(name, partition)
        return int(
            self.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result(30).offset
        )

    def trim(self, name: str, partition: int, before: int) -> None:
        """Delete the records below ``before`` from the local tier."""
        place = TopicPartition(name, partition, before)
        self.admin.delete_records([place])[place].result(30)

    def say(self, fact: Fact) -> Position:
        key = key_of(fact)
        user = partition_of_key(key)
        assert user is not None
        return self.topic.append(tier_partition_of(user, self.topic.mapped_partitions), key, encode_fact(fact))

    def copy(self, name: str, partition: int) -> list[RemoteSegment]:
        """Copy every rolled segment, as a first leader does, with its facts."""
        folder = open_partition(self.kafka.brokers[0].log_dir / f"{name}-{partition}")
        assert folder.topic_id is not None
        place = TopicIdPartition(folder.topic_id, partition)
        id = FactId.of(os.urandom(16))
        elected = LeaderElected(place, name, LeaderEpoch(0), id, BrokerId(1), "", folder.lineage, Offset(0), NOW)
        term = Term(LeaderEpoch(0), self.say(elected), id)
        self.say(LogStartAdvanced(place, Offset(0), term, 0, "first term", NOW))
        copied = []
        for base, following in zip(folder.base_offsets, folder.base_offsets[1:], strict=False):
            copied.append(self._copy_segment(folder, place, OffsetRange(base, Offset(following - 1)), term))
        return copied

    def _copy_segment(
        self, folder: PartitionFolder, place: TopicIdPartition, offsets: OffsetRange, term: Term
    ) -> RemoteSegment:
        log = folder.log_path(offsets.start).read_bytes()
        headers = list(iter_batches(log, source=str(folder.path)))
        source = _source(folder, offsets, log)
        segment_id = RemoteSegmentId.of(b"\0" + os.urandom(15))
        key = ObjectKeys().base_key(folder.topic, place.topic_id, place.partition, offsets.start, segment_id)
        attempt = CopyAttempt(place, folder.topic, segment_id, offsets, key, term, BrokerId(1), NOW)
        self.say(SegmentCopyStarted(attempt))
        written = put_log(self.store, key, source, Compression.ZSTD, chunk_bytes=CHUNK_BYTES)
        indexes = put_indexes(self.store, key, source)
        aborted = _aborted(folder, offsets)
        segment = RemoteSegment(
            partition=place,
            topic=folder.topic,
            segment_id=segment_id,
            object_key=key,
            offsets=offsets,
            last_record_offset=Offset(headers[-1].last_offset),
            record_count=sum(header.record_count for header in headers),
            leader_epochs=folder.lineage.within(offsets),
            max_timestamp=TimestampMs(max(header.max_timestamp for header in headers)),
            log_bytes=len(log),
            log_object_bytes=written.stored_bytes,
            indexes_object_bytes=indexes.stored_bytes,
            manifest_bytes=0,
            log_sha256=hashlib.sha256(log).digest(),
            log_crc32c=written.crc32c,
            indexes_sha256=indexes.sha256,
            compression=Compression.ZSTD,
            encryption_key_id=None,
            transaction_index_empty=not source.transaction_index,
            aborted=AbortedRanges.of(aborted),
            broker_id=BrokerId(1),
            term=term,
            copied_at=NOW,
        )
        segment = self._commit(segment, headers, written.chunks, indexes.spans, aborted)
        self.say(SegmentCopyFinished(segment))
        return segment

    def _commit(
        self,
        segment: RemoteSegment,
        headers: list[BatchHeader],
        chunks: Any,
        spans: Any,
        aborted: tuple[AbortedRange, ...],
    ) -> RemoteSegment:
        begun = [(header.position, Offset(header.base_offset)) for header in headers]
        block = TierstateBlock(
            segment,
            self.kafka.cluster_id,
            TopicId(self.topic.topic_id),
            Offset(0),
            first_offsets(begun, CHUNK_BYTES, segment.log_bytes),
            aborted,
        )
        manifest = with_own_size(SegmentManifest(chunks, spans, True, None, metadata_of(segment, NOW), block))
        put_manifest(self.store, segment.object_key, manifest)
        assert manifest.tierstate is not None
        return manifest.tierstate.segment

    def consumed(self, name: str, isolation: str = "read_uncommitted") -> list[Record]:
        """Return the records that a plain consumer sees on the broker now, by partition and offset."""
        return consume_all(self.kafka.bootstrap, name, isolation)


def _source(folder: PartitionFolder, offsets: OffsetRange, log: bytes) -> SegmentSource:
    def beside(suffix: str) -> bytes | None:
        path = folder.log_path(offsets.start).with_suffix(suffix)
        return path.read_bytes() if path.exists() else None

    return SegmentSource(
        log=[log],
        log_bytes=len(log),
        offset_index=beside(".index") or b"",
        time_index=beside(".timeindex") or b"",
        producer_snapshot=b"",
        leader_epochs=format_epoch_checkpoint(folder.lineage.within(offsets)),
        transaction_index=beside(".txnindex") or None,
    )


def _aborted(folder: PartitionFolder, offsets: OffsetRange) -> tuple[AbortedRange, ...]:
    """Return the aborts; the abort of an offset is recorded where its marker is, which may be a later segment."""
    ranges = []
    for path in sorted(folder.path.glob("*.txnindex")):
        ranges += [entry.range for entry in parse_transaction_index(path.read_bytes(), str(path))]
    return tuple(each for each in ranges if each.first <= offsets.end and each.last >= offsets.start)


def consume_all(bootstrap: str, name: str, isolation: str) -> list[Record]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": f"oracle-{name}",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "log_level": 0,
    }
    consumer = Consumer(config)
    partitions = consumer.list_topics(name, timeout=60).topics[name].partitions
    consumer.assign([TopicPartition(name, number, 0) for number in partitions])
    records: list[Record] = []
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the oracle consumer hangs"
        if message.error() is not None:
            assert message.error().code() == -191, message.error()  # _PARTITION_EOF
            ended += 1
            continue
        kind, at = message.timestamp()
        records.append(
            (
                message.key(),
                message.value(),
                name,
                message.partition(),
                message.offset(),
                at,
                kind - 1,  # librdkafka has 1 and 2
                message.headers(),
            )
        )
    consumer.close()
    return sorted(records, key=lambda record: record[3:5])

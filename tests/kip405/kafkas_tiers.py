"""A cluster that tiers its topics itself (KIP-405), and the bucket that Aiven's plugin would have filled.

The plugin's jar is not to be had, so Kafka copies into the folder of `LocalTieredStorage`, whose files are published as
the plugin's objects: they have the same plain bytes, and our writer is proven to write the plugin's form.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.native_tiers import kafkas_own_tiers
from tierstate.app.opening.connection import Connection
from tierstate.app.opening.kip405_connection import Kip405Connection
from tierstate.cli.main import run
from tierstate.kip405.records import SegmentRecord, SegmentUpdate, decode_record
from tierstate.kip405.topic import TOPIC, metadata_partition_of
from tierstate.runtime.settings_load import load_settings
from tierstate.sandbox.artifacts import RELEASES
from tierstate.sandbox.kafka import KafkaSandbox
from tierstate.state.ids import RemoteSegmentId
from tierstate.state.object_keys import ObjectKeys, ObjectKind, object_key
from tierstate.state.offsets import TimestampMs
from tierstate.state.routing import Isolation
from tierstate.state.segment import Compression, SegmentState
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.segment.manifest import SegmentManifest, SegmentMetadata
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

SEGMENT_BYTES = 20_000
CHUNK_BYTES = 8_192
PATIENCE_S = 60.0
NO_CUSTOM_METADATA = b"\x00\x01\x00"
"""The end of an update to COPY_SEGMENT_FINISHED: null, the state, no tagged fields."""
OFFLOADED = {"remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1"}


@dataclass
class KafkasTiers:
    """``files``: the folder of `LocalTieredStorage`. ``bucket``: the folder of the published objects."""

    kafka: KafkaSandbox
    folder: Path
    prefix: str = ""
    compression: Compression = Compression.NONE
    segment_bytes: str = "internal.segment.bytes"
    """The name of the setting: Kafka 4 refuses small ``segment.bytes``."""
    expected: dict[Isolation, Any] = field(default_factory=dict)
    """Digests by Kafka's consumer, from before the brokers' own copies were removed."""

    published: dict[RemoteSegmentId, str] = field(default_factory=dict)
    """Base keys of the segments that were published, below the prefix of that time."""

    def __post_init__(self) -> None:
        self.admin = AdminClient({**self.kafka.client_config})
        self.bucket = self.folder / "bucket"
        self.bucket.mkdir(exist_ok=True)
        self.store = DirectoryStore(self.bucket)
        self.settings_file = self.folder / "tierstate.toml"
        self.settings_file.write_text(
            f'state_dir = "{self.folder / "state"}"\n[kafka]\n"bootstrap.servers" = "{self.kafka.bootstrap}"\n'
            f'[store]\nurl = "{self.bucket.as_uri()}"\n[view]\nsource = "kip405"\n'
            f"[kip405]\nkey_prefixes = {json.dumps([self.prefix])}\n"
        )

    @property
    def files(self) -> Path:
        return files_of(self.folder)

    def use(self, prefix: str = "", compression: Compression = Compression.NONE, *older: str) -> None:
        """Publish with this prefix and compression from now on, and read by this prefix and the ``older`` ones."""
        self.prefix, self.compression = prefix, compression
        text = self.settings_file.read_text().partition("[kip405]")[0]
        self.settings_file.write_text(f"{text}[kip405]\nkey_prefixes = {json.dumps([prefix, *older])}\n")

    def topic(self, name: str, partitions: int = 1, segment_bytes: int = SEGMENT_BYTES, **config: str) -> str:
        """Create a topic that Kafka tiers, with small segments. Return its name."""
        settings = {self.segment_bytes: str(segment_bytes), **OFFLOADED, **config}
        self.admin.create_topics([NewTopic(name, partitions, len(self.kafka.brokers), config=settings)])[name].result(
            30
        )
        return name

    def local_start(self, topic: str, partition: int = 0) -> int:
        """Return where the first broker's files begin."""
        return min(int(path.stem) for path in (self.kafka.brokers[0].log_dir / f"{topic}-{partition}").glob("*.log"))

    def records(self) -> Iterator[SegmentRecord | SegmentUpdate]:
        """Yield the records of the metadata topic, partition after partition."""
        for value in values_of(self.kafka, TOPIC):
            record = decode_record(value)
            assert isinstance(record, SegmentRecord | SegmentUpdate)
            yield record

    def finished(self, topic: str) -> list[SegmentRecord]:
        """Return the segments that can be read, in order of start."""
        begun: dict[str, SegmentRecord] = {}
        states: dict[str, SegmentState] = {}
        for record in self.records():
            if isinstance(record, SegmentRecord):
                begun[record.segment_id] = record
            else:
                states[record.segment_id] = record.state
        readable = [each for key, each in begun.items() if states.get(key) is SegmentState.COPY_SEGMENT_FINISHED]
        return sorted((each for each in readable if each.topic == topic), key=lambda each: each.offsets.start)

    def offloaded(self, topic: str, partition: int = 0, *, segments: int = 1) -> int:
        """Wait until Kafka has copied ``segments`` and trimmed them. Publish all. Return the local start."""

        def copied() -> list[SegmentRecord]:
            return [each for each in self.finished(topic) if each.partition.partition == partition]

        until(lambda: len(copied()) >= segments)
        until(lambda: self.local_start(topic, partition) > copied()[segments - 1].offsets.end - 1)
        self.publish(topic)
        return self.local_start(topic, partition)

    def publish(self, topic: str, first: int | None = None) -> None:
        """Publish every finished segment of the topic that the bucket lacks, or only of the ``first`` so many."""
        for record in self.finished(topic)[:first]:
            key = self.published[record.segment_id] = self.base_key(record)
            if not (self.bucket / object_key(key, ObjectKind.MANIFEST)).exists():
                self._put(record, key)

    def name_keys(self, segments: Collection[SegmentRecord]) -> None:
        """Append, for each segment, the update with the custom metadata by which the plugin names prefix and key."""
        producer = Producer({**self.kafka.client_config, "linger.ms": 0})
        segment_ids = {each.segment_id for each in segments}
        partitions = len(self.admin.list_topics(TOPIC, 20).topics[TOPIC].partitions)
        for value in list(values_of(self.kafka, TOPIC)):
            record = decode_record(value)
            if not isinstance(record, SegmentUpdate) or record.segment_id not in segment_ids or record.custom:
                continue
            assert value.endswith(NO_CUSTOM_METADATA)
            key = self.published[record.segment_id]
            prefix, found, rest = key.partition(f"{record.topic}-{record.partition.topic_id}/")
            custom = b"\x02" + _tagged(1, prefix) + _tagged(2, found + rest)
            named = value.removesuffix(NO_CUSTOM_METADATA) + _uvarint(len(custom) + 1) + custom + NO_CUSTOM_METADATA[1:]
            producer.produce(TOPIC, named, partition=metadata_partition_of(record.partition, partitions))
        assert producer.flush(30) == 0

    def remove(self, record: SegmentRecord) -> None:
        """Remove a segment's objects, as the plugin does before Kafka forgets the segment."""
        for kind in ObjectKind:
            (self.bucket / object_key(self.base_key(record), kind)).unlink()

    def configure(self, topic: str, **config: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        for name, value in config.items():
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def base_key(self, record: SegmentRecord) -> str:
        if (published := self.published.get(record.segment_id)) is not None:
            return published
        place = record.partition
        return ObjectKeys(self.prefix).base_key(
            record.topic, place.topic_id, place.partition, record.offsets.start, record.segment_id
        )

    def _put(self, record: SegmentRecord, key: str) -> None:
        def file(suffix: str) -> bytes:
            paths = list(self.files.rglob(f"*-{record.segment_id}{suffix}"))
            return paths[0].read_bytes() if paths else b""

        log = file(".log")
        source = SegmentSource(
            (log,),
            len(log),
            file(".index"),
            file(".timeindex"),
            file(".snapshot"),
            file(".leader_epoch_checkpoint"),
            file(".txnindex") or None,
        )
        written = put_log(self.store, key, source, self.compression, chunk_bytes=CHUNK_BYTES)
        indexes = put_indexes(self.store, key, source)
        metadata = SegmentMetadata(
            record.partition,
            record.topic,
            record.segment_id,
            record.offsets.start,
            record.offsets.end,
            record.max_timestamp,
            record.broker_id,
            TimestampMs(record.at),
            record.leader_epochs,
            record.transaction_index_empty or None,
        )
        zstd = self.compression is Compression.ZSTD
        put_manifest(self.store, key, SegmentManifest(written.chunks, indexes.spans, zstd, metadata=metadata))

    def connection(self) -> Kip405Connection:
        return Kip405Connection(Connection(load_settings(self.settings_file, (), {}, None, None)))

    def run(self, *command: str, fails: bool | None = False) -> Any:
        """Run a command, and return its JSON document; with ``fails``, its error. None: it may fail."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run([*command, "--config", str(self.settings_file), "--json"])
        if fails is not None and (code != 0) != fails:
            raise AssertionError(f"exit code {code}: {out.getvalue()[-2000:]} {err.getvalue()[-2000:]}")
        return json.loads(err.getvalue().splitlines()[-1] if fails else out.getvalue())

    def digests(self, topic: str, isolation: str, *more: str) -> Any:
        """Return number and digest of the records of each partition."""
        answer = self.run("digest", topic, "--isolation", str(isolation), *more)
        return [(each["partition"], each["records"], each["digest"]) for each in answer["partitions"]]


def _tagged(tag: int, text: str) -> bytes:
    data = _uvarint(len(text) + 1) + text.encode()
    return _uvarint(tag) + _uvarint(len(data)) + data


def _uvarint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _uvarint(value >> 7)


def files_of(folder: Path) -> Path:
    return folder / "local-tiered-storage"


@contextmanager
def kafkas_tiers(
    folder: Path, brokers: int = 1, release: str = RELEASES[0], replicas: int = 1
) -> Iterator[KafkasTiers]:
    """Run a cluster with its own tiered storage. ``replicas``: of the metadata topic."""
    properties = kafkas_own_tiers(files_of(folder))
    properties["rlmm.config.remote.log.metadata.topic.replication.factor"] = str(replicas)
    with KafkaSandbox(brokers, properties=properties, release=release) as kafka:
        name = "segment.bytes" if release.startswith("3.") else "internal.segment.bytes"
        yield KafkasTiers(kafka, folder, segment_bytes=name)


def values_of(kafka: KafkaSandbox, topic: str) -> Iterator[bytes]:
    """Yield the values of all records of a topic, partition after partition."""
    config = {**kafka.client_config, "group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer: Any = Consumer({**config, "log_level": 0})
    try:
        for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
            place = TopicPartition(topic, number)
            at, end = consumer.get_watermark_offsets(place, 20)
            consumer.assign([TopicPartition(topic, number, at)])
            while at < end:
                for message in consumer.consume(500, 1.0):
                    assert message.error() is None, message.error()
                    at = message.offset() + 1
                    yield message.value()
    finally:
        consumer.close()


def transactions(
    kafka: KafkaSandbox,
    topic: str,
    steps: Iterable[tuple[str, str]],
    partition: int = 0,
    producers: dict[str, Producer] | None = None,
) -> None:
    """Run steps of transactional producers: (name, ``begin``, ``write``, ``commit`` or ``abort``).

    ``producers`` keeps them, by their names, for steps of a later call.
    """
    producers = {} if producers is None else producers
    for name, step in steps:
        if name not in producers:
            config = {**kafka.client_config, "transactional.id": f"{topic}-{name}", "linger.ms": 0, "log_level": 0}
            producers[name] = Producer({**config, "transaction.timeout.ms": 900_000})  # no broker aborts it
            producers[name].init_transactions(30)
        producer = producers[name]
        if step == "begin":
            producer.begin_transaction()
        elif step == "write":
            write(producer, topic, partition)
        elif step == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def write(producer: Producer, topic: str, partition: int = 0, count: int = 20) -> None:
    for number in range(count):
        producer.produce(topic, b"%d " % number * 60, b"key", partition)
    assert producer.flush(30) == 0


def plainly(kafka: KafkaSandbox, topic: str, partition: int = 0, count: int = 200) -> None:
    """Write records without a transaction: about a segment for each 100."""
    producer = Producer({**kafka.client_config, "linger.ms": 5, "batch.num.messages": 20, "log_level": 0})
    write(producer, topic, partition, count)


def until(holds: Callable[[], bool]) -> None:
    """Wait until Kafka has done its work in the background."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "Kafka did not do it in time"
        time.sleep(0.2)

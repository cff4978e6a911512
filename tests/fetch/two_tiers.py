"""Partitions in two tiers: segments of a broker's folder copied by hand, facts about them, and a log to read."""

from __future__ import annotations

import gzip
import json
import os
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.histories.epoch_cache import said_of_epoch
from tests.twins.memory_tier_topic import MemoryTierTopic
from tierstate.broker.answers import FetchSpec
from tierstate.broker.control import ClusterDescription
from tierstate.broker.tier_topic import TierTopic
from tierstate.broker.topics import PartitionDescription, TopicDescription
from tierstate.fetch.local import LocalPiece, closed_ranges
from tierstate.fetch.reader import Fetched, LogReader, records
from tierstate.fetch.remote import RemoteTier
from tierstate.follower.follower import Follower
from tierstate.follower.open import open_view
from tierstate.log.batch import BatchHeader, iter_batches
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.listener import RemoteFetched
from tierstate.schemas.codec import encode_fact
from tierstate.state.epochs import EpochEntry, LeaderEpoch, Lineage
from tierstate.state.errors import Fenced, OffsetOutOfRange, UnknownTopic
from tierstate.state.facts import (
    Fact,
    LeaderElected,
    LogStartAdvanced,
    SegmentCopyFinished,
    SegmentCopyStarted,
)
from tierstate.state.ids import BrokerId, FactId, RemoteSegmentId, TopicId, TopicIdPartition
from tierstate.state.keys import key_of
from tierstate.state.lineage import EpochEnd
from tierstate.state.object_keys import ObjectKeys
from tierstate.state.offsets import Offset, OffsetRange, Position, TimestampMs
from tierstate.state.routing import Isolation, LocalBounds
from tierstate.state.segment import (
    MAX_INLINE_ENTRIES,
    AbortedRange,
    AbortedRanges,
    Compression,
    CopyAttempt,
    RemoteSegment,
    Term,
)
from tierstate.storage.object_store import ObjectStore
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.chunks import first_offsets
from tierstate.storage.segment.encryption import SegmentCipher
from tierstate.storage.segment.keyring import KeyRing
from tierstate.storage.segment.manifest import SegmentManifest, SegmentMetadata, SentChecksums, TierstateBlock
from tierstate.storage.segment.manifest_json import with_own_size
from tierstate.storage.segment.writer import SegmentSource, put_indexes, put_log, put_manifest

GOLDEN = Path(__file__).parents[1] / "data" / "kafka-logs"
NOW = TimestampMs(1_767_225_600_000)
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Return offset, milliseconds, timestamp type (0 create, 1 append), key, value, headers of each record."""
    records: list[Row] = []
    for batch in batches:
        times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("offset", "timestampType", "key", "value", "headers")]
        for time, offset, kind, key, value, headers in zip(times, *columns, strict=True):
            pairs = tuple((header["key"], header["value"]) for header in headers or ())
            records.append((offset, time, kind, key, value, pairs))
    return records


def rows_of(pieces: Iterable[Fetched]) -> list[Row]:
    return [row for piece in pieces for row in rows(records(piece, "t", 0))]


def golden_rows(case: str, isolation: Isolation) -> list[Row]:
    """Return the rows that librdkafka read from the folder's broker."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text)

    with gzip.open(GOLDEN / case / f"{isolation}.jsonl.gz", "rt") as lines:
        items = [json.loads(line) for line in lines]
    return [
        (o, t, k - 1, raw(key), raw(v), tuple((n, raw(h)) for n, h in headers)) for o, t, k, key, v, headers in items
    ]


@dataclass(frozen=True)
class Folder:
    """A partition's folder as a broker left it."""

    path: Path

    @property
    def bases(self) -> list[int]:
        return sorted(int(file.stem) for file in self.path.glob("*.log"))

    def file(self, base: int, suffix: str) -> bytes:
        path = self.path / f"{base:020d}{suffix}"
        return path.read_bytes() if path.exists() else b""

    def log(self) -> bytes:
        return b"".join(self.file(base, ".log") for base in self.bases)

    def lineage(self) -> Lineage:
        lines = (self.path / "leader-epoch-checkpoint").read_text().split("\n")[2:]
        pairs = [line.split() for line in lines if line]
        return Lineage(tuple(EpochEntry(LeaderEpoch(int(e)), Offset(int(s))) for e, s in pairs))

    def aborted(self) -> list[AbortedRange]:
        entries = []
        for base in self.bases:
            for _, producer, first, last, _ in struct.iter_unpack(">hqqqq", self.file(base, ".txnindex")):
                entries.append(AbortedRange(producer, Offset(first), Offset(last)))
        return entries

    def end(self) -> int:
        return max(header.last_offset for header in iter_batches(self.log(), source="folder")) + 1


class TwoTiers:
    """A tier-state topic, a store, and a view over both for one partition."""

    def __init__(
        self, partition: TopicIdPartition, name: str, store: ObjectStore, topic: TierTopic | None = None
    ) -> None:
        """``topic``: of one partition; None: a twin in memory."""
        self.partition, self.name, self.store = partition, name, store
        self.topic: TierTopic = topic or MemoryTierTopic()
        self.view: Follower = open_view(self.topic, "cluster", SystemClock())
        self._segments = 0
        self.compression = Compression.ZSTD
        self.keys: KeyRing | None = None
        """The keys that encrypt the segments; None: they are not encrypted."""
        self.random: Callable[[int], bytes] = os.urandom
        self.term = Term(LeaderEpoch(0), Position(0), FactId.of(bytes(16)))

    def say(self, fact: Fact) -> Position:
        return self.topic.append(0, key_of(fact), encode_fact(fact))

    def elect(self, lineage: Lineage) -> None:
        epoch = lineage.entries[-1].epoch
        self.term = Term(epoch, self.topic.end(0), FactId.of(epoch.to_bytes(16, "big")))
        self.say(
            LeaderElected(self.partition, self.name, epoch, self.term.id, BrokerId(1), "", lineage, Offset(0), NOW)
        )

    def start_log_at(self, offset: int) -> None:
        self._segments += 1
        self.say(LogStartAdvanced(self.partition, Offset(offset), self.term, self._segments, "first-term", NOW))

    def copy(
        self,
        folder: Folder,
        base: int,
        next_base: int,
        *,
        chunk_bytes: int = 4096,
        foreign: bool = False,
        older: bool = False,
        many_aborted: bool = False,
    ) -> RemoteSegment:
        """Copy one segment: write its objects, then its facts.

        ``foreign``: without our block in the manifest; ``older``: without checksums of the chunks.
        ``many_aborted``: more aborted ranges than a fact holds.
        """
        self._segments += 1
        segment_id = RemoteSegmentId.of(self._segments.to_bytes(16, "big"))
        key = ObjectKeys().base_key(self.name, self.partition.topic_id, self.partition.partition, base, segment_id)
        offsets = OffsetRange(Offset(base), Offset(next_base - 1))
        attempt = CopyAttempt(self.partition, self.name, segment_id, offsets, key, self.term, BrokerId(1), NOW)
        self.say(SegmentCopyStarted(attempt))
        segment = self._upload(folder, attempt, chunk_bytes, foreign, older, many_aborted)
        self.say(SegmentCopyFinished(segment))
        return segment

    def copy_all(self, folder: Folder, copies: int | None = None, **copy: Any) -> list[RemoteSegment]:
        """Begin the log at 0, copy all segments but the last, or the first ``copies``, and let the view read them."""
        self.elect(folder.lineage())
        self.start_log_at(0)
        segments = [self.copy(folder, *ends, **copy) for ends in list(pairwise(folder.bases))[:copies]]
        self.view.require_fresh(0, 0)
        return segments

    def reader(self, local: FolderTier, cache_bytes: int = 1 << 20) -> LogReader:
        """Return a reader of both tiers, with an empty cache."""
        control: Any = OneTopic(self.name, self.partition.topic_id)
        remote = RemoteTier(self.store, ChunkCache(cache_bytes), SystemClock())
        return LogReader(self.view, control, local, remote, SystemClock())

    def _upload(
        self, folder: Folder, attempt: CopyAttempt, chunk_bytes: int, foreign: bool, older: bool, many_aborted: bool
    ) -> RemoteSegment:
        base, log = attempt.offsets.start, folder.file(attempt.offsets.start, ".log")
        headers = list(iter_batches(log, source="folder"))
        touching = tuple(span for span in folder.aborted() if span.first <= attempt.offsets.end and span.last >= base)
        if many_aborted:  # by a producer that wrote nothing here
            touching += tuple(AbortedRange(10**6, Offset(base), Offset(base + n)) for n in range(MAX_INLINE_ENTRIES))
        source = SegmentSource(
            log=(log,),
            log_bytes=len(log),
            offset_index=folder.file(base, ".index"),
            time_index=folder.file(base, ".timeindex"),
            producer_snapshot=folder.file(base, ".snapshot"),
            leader_epochs=(folder.path / "leader-epoch-checkpoint").read_bytes(),
            transaction_index=folder.file(base, ".txnindex") or None,
        )
        cipher, encryption = (None, None) if self.keys is None else SegmentCipher.new(self.keys, self.random)
        written = put_log(
            self.store, attempt.object_key, source, self.compression, cipher=cipher, chunk_bytes=chunk_bytes
        )
        indexes = put_indexes(self.store, attempt.object_key, source, cipher=cipher)
        epochs = folder.lineage().within(attempt.offsets)
        segment = RemoteSegment(
            partition=attempt.partition,
            topic=attempt.topic,
            segment_id=attempt.segment_id,
            object_key=attempt.object_key,
            offsets=attempt.offsets,
            last_record_offset=Offset(headers[-1].last_offset),
            record_count=sum(header.record_count for header in headers if not header.is_control),
            leader_epochs=epochs,
            max_timestamp=TimestampMs(max(h.max_timestamp for h in headers)),  # markers count, too, as for an agent
            log_bytes=len(log),
            log_object_bytes=written.stored_bytes,
            indexes_object_bytes=indexes.stored_bytes,
            manifest_bytes=0,
            log_sha256=written.sha256,
            log_crc32c=written.crc32c,
            indexes_sha256=indexes.sha256,
            compression=self.compression,
            encryption_key_id=None if encryption is None else encryption.key_id,
            transaction_index_empty=source.transaction_index is None,
            aborted=AbortedRanges.of(touching),
            broker_id=BrokerId(1),
            term=attempt.term,
            copied_at=NOW,
        )
        firsts = first_offsets(((h.position, Offset(h.base_offset)) for h in headers), chunk_bytes, len(log))
        sent = SentChecksums(written.object_crc32c, indexes.object_crc32c, () if older else written.chunk_crc32c)
        block = TierstateBlock(segment, "cluster", TopicId.of(b"t" * 16), Offset(0), firsts, touching, sent)
        metadata = SegmentMetadata(
            attempt.partition, attempt.topic, attempt.segment_id, attempt.offsets.start, attempt.offsets.end,
            segment.max_timestamp, 1, NOW, epochs, segment.transaction_index_empty,
        )  # fmt: skip
        manifest = with_own_size(
            SegmentManifest(
                written.chunks,
                indexes.spans,
                self.compression is Compression.ZSTD,
                encryption,
                metadata,
                None if foreign else block,
            )
        )
        put_manifest(self.store, attempt.object_key, manifest)
        return segment if manifest.tierstate is None else manifest.tierstate.segment


class FolderTier:
    """The local tier's twin: a folder's batches from ``local_start`` on, as a broker would answer."""

    def __init__(self, folder: Folder, partition: TopicIdPartition, name: str) -> None:
        self.partition, self.name = partition, name
        self._aborted = folder.aborted()
        self._log = folder.log()
        self._headers = list(iter_batches(self._log, source="folder"))
        self.local_start = 0
        self.high_watermark = self.last_stable_offset = folder.end()
        self.epochs = [(int(entry.epoch), int(entry.start_offset)) for entry in folder.lineage().entries]
        self.epoch: LeaderEpoch | None = LeaderEpoch(self.epochs[-1][0])
        self.asked: list[int] = []
        """The epochs whose end was asked for."""
        self.answers: list[Callable[[], None]] = []
        """Run before each answer, first in first out, so that a test lets something happen in between."""

    def bounds(self, topic: str, partition: TopicIdPartition) -> LocalBounds:
        self._happen()
        return self._bounds()

    def _bounds(self) -> LocalBounds:
        return LocalBounds(
            Offset(self.local_start), Offset(self.high_watermark), Offset(self.last_stable_offset), self.epoch
        )

    def _happen(self) -> None:
        if self.answers:
            self.answers.pop(0)()

    def fetch(self, spec: FetchSpec) -> LocalPiece:
        self._happen()
        bounds = self._bounds()
        end = bounds.end(spec.isolation)
        if spec.leader_epoch is not None and self.epoch is not None and spec.leader_epoch < self.epoch:
            raise Fenced("a newer leader epoch exists")
        if not bounds.local_start <= spec.offset <= end:
            raise OffsetOutOfRange("not here", valid_start=bounds.local_start, valid_end=end)
        headers = [h for h in self._headers if h.last_offset >= spec.offset and h.base_offset < end]
        size = 0
        kept: list[BatchHeader] = []
        for header in headers:
            if kept and size + header.size_bytes > spec.max_bytes:
                break
            kept.append(header)
            size += header.size_bytes
        if not kept:
            return LocalPiece(b"", (), spec.offset, bounds)
        data = self._log[kept[0].position : kept[-1].position + kept[-1].size_bytes]
        last = Offset(kept[-1].last_offset)
        aborted: tuple[AbortedRange, ...] = ()
        if spec.isolation is Isolation.READ_COMMITTED:
            listed = [(span.producer_id, span.first) for span in self._aborted if span.last >= spec.offset]
            markers = sorted(
                (span.last, span.producer_id) for span in self._aborted if spec.offset <= span.last <= last
            )
            aborted = closed_ranges(listed, [(producer, at) for at, producer in markers], last)
        return LocalPiece(data, aborted, Offset(last + 1), bounds)

    def end_of_epoch(
        self, topic: str, partition: TopicIdPartition, epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> EpochEnd | None:
        self._happen()
        if self.epoch is not None and leader_epoch < self.epoch:
            raise Fenced("a newer leader epoch exists")
        self.asked.append(epoch)
        return said_of_epoch(self.epochs, self.local_start, self.high_watermark, epoch)

    def elect(self, epoch: int, end: int | None = None) -> None:
        """Begin an epoch with another leader; ``end``: of its log, after an unclean election."""
        self.high_watermark = self.high_watermark if end is None else end
        self.last_stable_offset = min(self.last_stable_offset, self.high_watermark)
        kept = [entry for entry in self.epochs if entry[1] < self.high_watermark]
        self.epochs = [*kept, (epoch, self.high_watermark)]
        self.epoch = LeaderEpoch(epoch)

    def delete_records(self, before: int) -> None:
        """Move the local start to ``before``; the broker forgets the epochs that end there."""
        self.local_start = before
        covering = [epoch for epoch, start in self.epochs if start <= before][-1:]
        self.epochs = [(epoch, before) for epoch in covering] + [entry for entry in self.epochs if entry[1] > before]

    def offset_at(
        self, topic: str, partition: TopicIdPartition, timestamp: TimestampMs
    ) -> tuple[Offset, TimestampMs] | None:
        self._happen()
        return None


class OneTopic:
    """The part of `BrokerControl` that a reader needs: one topic with one partition."""

    def __init__(self, name: str, topic_id: TopicId) -> None:
        self._described = TopicDescription(name, topic_id, False, (PartitionDescription(0, BrokerId(1), None),))
        self.deleted = False

    def cluster(self) -> ClusterDescription:
        return ClusterDescription("cluster", (BrokerId(1),))

    def topics(self) -> tuple[TopicDescription, ...]:
        return () if self.deleted else (self._described,)

    def topic(self, name: str) -> TopicDescription:
        if self.deleted or name != self._described.name:
            raise UnknownTopic("no such topic", topic=name)
        return self._described

    def topic_exists(self, topic_id: TopicId, *, broker: BrokerId) -> bool:
        return not self.deleted and topic_id == self._described.topic_id


@dataclass
class Golden:
    """A golden folder in two tiers: all but the last segment copied."""

    folder: Folder
    tiers: TwoTiers
    local: FolderTier
    reader: LogReader
    remote: RemoteTier
    segments: list[RemoteSegment]
    gets: list[Callable[[str], None]]
    """Run before each read of the store, first in first out."""
    fetched: list[RemoteFetched]
    """All requests for readers."""
    control: OneTopic

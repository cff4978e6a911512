"""The `TierView` of topics that Kafka tiers itself (KIP-405), from Kafka's metadata topic. It writes nothing.

The view has no thread: `require_fresh` captures the end of the metadata topic, and reads up to this end. The lineage of
a partition is the leader epoch index of its newest segment: the complete checkpoint of the leader that copied it. While
a newer leader has copied nothing, the broker confirms the lineage (`fetch/confirmation.py`), as for tierstate's facts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cachetools import LRUCache

from ..broker.tier_reader import TierReader
from ..log.partition import parse_epoch_checkpoint
from ..runtime.clock import Clock
from ..runtime.watchdog import alive, go_round
from ..state.coverage import Coverage
from ..state.epochs import LeaderEpoch, Lineage
from ..state.errors import CorruptData, InvalidRequest, ObjectNotFound, PositionLost, TierstateError, ViewBehind
from ..state.facts import LeaderElected, LiveFact
from ..state.ids import FactId, RemoteSegmentId, TopicId, TopicIdPartition
from ..state.object_keys import ObjectKeys, ObjectKind, object_key
from ..state.offsets import Offset, Position, TimestampMs
from ..state.partition_view import PartitionView, SegmentMeaning
from ..state.segment import UNKNOWN, UNKNOWN_RANGES, Compression, CopyAttempt, RemoteSegment, SegmentState, Term
from ..state.view import READY_AGE_S, SecondValue
from ..storage.object_store import ObjectReader
from ..storage.segment.encryption import KeyUnwrapper
from ..storage.segment.manifest import IndexKind
from ..storage.segment.reader import SegmentReader, read_manifest
from .fold import Fold, SegmentNow, open_rows
from .records import SegmentRecord
from .topic import MetadataTopic, metadata_partition_of

SILENCE_S = 20.0
"""Seconds without a record after which a read of the topic raises ViewBehind."""
POLL_S = 0.1
NO_TERM = FactId.of(bytes(16))
"""The id of the term in these views: Kafka's records have no terms."""
CACHE_ENTRIES = 4096


class MetadataView:
    """A `TierView`. Thread-safe. ``prefixes``: all values that the plugin's ``key.prefix`` had, the newest first.

    ``topics``: only these topics are read; None: all. ``folder``: where the view is kept over restarts; None: in
    memory. ``keys`` opens the indexes of encrypted segments. Close the view after its last use.
    """

    def __init__(
        self,
        topic: MetadataTopic,
        store: ObjectReader,
        clock: Clock,
        prefixes: Iterable[str] = ("",),
        *,
        topics: frozenset[TopicId] | None = None,
        folder: Path | None = None,
        keys: KeyUnwrapper | None = None,
    ) -> None:
        self._topic, self._store, self._clock, self._keys = topic, store, clock, keys
        self._names = tuple(ObjectKeys(prefix) for prefix in prefixes)
        self._fold = Fold(open_rows(folder, f"{topic.topic_id} {topic.partitions}"), topics)
        self._lock = threading.RLock()
        self._reader: TierReader | None = None
        self._numbers: set[int] = set()
        """The metadata partitions that the reader reads."""
        self._fresh_at: dict[int, float] = {}
        """When the view was last at the end of each metadata partition, in seconds of the monotonic clock."""
        self._views: dict[TopicIdPartition, tuple[object, PartitionView]] = {}
        self._lineages: LRUCache[RemoteSegmentId, Lineage] = LRUCache(CACHE_ENTRIES)
        self._keys_of: LRUCache[RemoteSegmentId, str] = LRUCache(CACHE_ENTRIES)

    def close(self) -> None:
        with self._lock:
            self._close_reader()
            self._fold.close()

    @property
    def metadata_partitions(self) -> int:
        return self._topic.partitions

    def tier_partition(self, partition: TopicIdPartition) -> int:
        return metadata_partition_of(partition, self._topic.partitions)

    def partitions(self) -> list[TopicIdPartition]:
        """Return every partition with a segment, from all metadata partitions."""
        with self._lock:
            for number in range(self._topic.partitions):
                self._require_read(number)
            return list(self._fold.partitions())

    def partition(self, partition: TopicIdPartition) -> PartitionView:
        """Return the view of a partition; empty if Kafka tiered nothing of it. It is the same object until it changes.

        Raises CorruptData if the newest segment's epochs cannot be read, and the errors of the store.
        """
        number = self.tier_partition(partition)
        with self._lock:
            self._require_read(number)
            version = self._fold.version(partition), self._fold.problems(number)
            cached = self._views.get(partition)
            if cached is None or cached[0] != version:
                cached = self._views[partition] = version, self._build(partition, version[1])
            return cached[1]

    def facts(self, partition: TopicIdPartition) -> list[LiveFact]:
        """Return no facts: Kafka's metadata has none."""
        return []

    def second_values(self, partition: TopicIdPartition) -> list[SecondValue]:
        return []

    def forget_second_value(self, partition: TopicIdPartition, key: str) -> None:
        """Do nothing: this view has no second values."""

    def wait_applied(self, tier_partition: int, position: Position, timeout: float) -> None:
        with self._lock:
            self._read_to(tier_partition, Position(position + 1))

    def require_fresh(self, tier_partition: int, max_age: float) -> None:
        with self._lock:
            age = self.age_s(tier_partition)
            if age is None or age >= max_age:
                now = self._clock.monotonic()
                self._read_to(tier_partition, self._topic.end(tier_partition))
                self._fresh_at[tier_partition] = now

    def require_ready(self, tier_partition: int) -> None:
        self.require_fresh(tier_partition, READY_AGE_S)

    def age_s(self, tier_partition: int) -> float | None:
        fresh_at = self._fresh_at.get(tier_partition)
        return None if fresh_at is None else self._clock.monotonic() - fresh_at

    # --- reading the topic ---------------------------------------------------------------------------------------

    def _require_read(self, number: int) -> None:
        if number not in self._fresh_at:
            self.require_fresh(number, 0.0)

    def _read_to(self, number: int, end: Position) -> None:
        """Apply all records before ``end``. If the topic lost the view's position, begin at the topic's start again."""
        try:
            self._read(number, end)
        except PositionLost:
            self._close_reader()
            partitions = [each for each in self._fold.partitions() if self.tier_partition(each) == number]
            self._fold.forget(number, partitions)
            self._read(number, end)

    def _read(self, number: int, end: Position) -> None:
        progress = self._clock.monotonic()
        while (position := self._fold.position(number)) is None or position < end:
            if position is None:
                self._fold.apply(number, (), self._topic.start(number), -1)
                self._close_reader()
                continue
            for batch in self._reader_of(number).poll(POLL_S):
                if batch.entries:
                    progress = self._clock.monotonic()
                self._fold.apply(batch.tier_partition, batch.entries, batch.following, batch.epoch)
            if self._clock.monotonic() - progress > SILENCE_S:
                raise ViewBehind("the metadata topic does not answer", partition=number, position=position, end=end)

    def _reader_of(self, number: int) -> TierReader:
        """Return a reader that also reads ``number``."""
        if self._reader is None or number not in self._numbers:
            self._close_reader()
            self._numbers.add(number)
            positions = {each: at for each in self._numbers if (at := self._fold.position(each)) is not None}
            self._reader = self._topic.reader(positions, {each: self._fold.epoch(each) for each in positions})
        return self._reader

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- from records to a partition's view ----------------------------------------------------------------------

    def _build(self, partition: TopicIdPartition, problems: tuple[str, ...]) -> PartitionView:
        segments = {each.record.segment_id: each for each in self._fold.segments(partition)}
        if not segments:
            return PartitionView(partition, degraded=problems)
        readable = [each for each in segments.values() if each.state is SegmentState.COPY_SEGMENT_FINISHED]
        remote = {each.record.segment_id: self._remote(each) for each in readable}
        newest = max(
            readable, key=lambda each: (_last_epoch(each.record.leader_epochs), each.record.offsets.end), default=None
        )
        leader = None if newest is None else self._leader(newest, remote[newest.record.segment_id])
        meanings = {key: _meaning(each, remote.get(key)) for key, each in segments.items()}
        ordered = tuple(sorted(remote.values(), key=lambda each: (each.offsets.start, each.offsets.end)))
        return PartitionView(
            partition,
            next(iter(segments.values())).record.topic,
            leader,
            None if leader is None else Term(leader.epoch, Position(0), NO_TERM),
            segments=meanings,
            unsettled=tuple(each for each in meanings.values() if each.state is not SegmentState.COPY_SEGMENT_FINISHED),
            readable=ordered,
            coverage=Coverage(ordered, Lineage() if leader is None else leader.lineage),
            degraded=problems,
        )

    def _remote(self, segment: SegmentNow) -> RemoteSegment:
        return segment_of(segment.record, self._object_key(segment), segment.custom.remote_bytes, segment.at)

    def _object_key(self, segment: SegmentNow) -> str:
        """Return the key that the plugin recorded, or else the first possible key that has a manifest."""
        record, custom = segment.record, segment.custom
        if custom.prefix is not None and custom.key is not None:
            return custom.prefix + custom.key
        if (cached := self._keys_of.get(record.segment_id)) is not None:
            return cached
        place = record.topic, record.partition.topic_id, record.partition.partition
        keys = [names.base_key(*place, record.offsets.start, record.segment_id) for names in self._names]
        key = keys[0] if len(keys) == 1 else next((each for each in keys if self._exists(each)), keys[0])
        self._keys_of[record.segment_id] = key
        return key

    def _exists(self, base_key: str) -> bool:
        with suppress(ObjectNotFound):
            self._store.head(object_key(base_key, ObjectKind.MANIFEST))
            return True
        return False

    def _leader(self, newest: SegmentNow, remote: RemoteSegment) -> LeaderElected:
        """Return the leader that copied the newest segment, with its lineage."""
        lineage = self._lineage(remote)
        epoch = max(_last_epoch(lineage), _last_epoch(remote.leader_epochs))
        return LeaderElected(
            remote.partition, remote.topic, epoch, NO_TERM, remote.broker_id, "", lineage, Offset(0), newest.at
        )

    def _lineage(self, segment: RemoteSegment) -> Lineage:
        if (cached := self._lineages.get(segment.segment_id)) is not None:
            return cached
        file = object_key(segment.object_key, ObjectKind.INDEXES)
        try:
            manifest = read_manifest(self._store, segment.object_key)
            index = SegmentReader(self._store, segment.object_key, manifest, keys=self._keys).indexes(
                IndexKind.LEADER_EPOCHS
            )
        except (ObjectNotFound, InvalidRequest) as error:
            raise CorruptData(
                f"the newest segment that Kafka tiered cannot be opened: {error.message}",
                topic=segment.topic,
                partition=segment.partition,
                **{"file": file, **error.facts},
            ) from error
        lineage = parse_epoch_checkpoint(index or b"", file)
        if not lineage.entries:
            raise CorruptData("the leader epoch index is empty", file=file)
        self._lineages[segment.segment_id] = lineage
        return lineage


def segment_of(
    record: SegmentRecord, object_key: str, stored_bytes: int | None, copied_at: TimestampMs
) -> RemoteSegment:
    """Return the segment that Kafka's record describes. It is not `described`. ``stored_bytes``: None if unknown."""
    return RemoteSegment(
        record.partition,
        record.topic,
        record.segment_id,
        object_key,
        record.offsets,
        last_record_offset=Offset(UNKNOWN),
        record_count=UNKNOWN,
        leader_epochs=record.leader_epochs,
        max_timestamp=record.max_timestamp,
        log_bytes=record.log_bytes,
        log_object_bytes=record.log_bytes if stored_bytes is None else stored_bytes,
        indexes_object_bytes=0,
        manifest_bytes=0,
        log_sha256=b"",
        log_crc32c=UNKNOWN,
        indexes_sha256=b"",
        compression=Compression.NONE,
        encryption_key_id=None,
        transaction_index_empty=record.transaction_index_empty,
        aborted=UNKNOWN_RANGES,
        broker_id=record.broker_id,
        term=Term(_last_epoch(record.leader_epochs), Position(0), NO_TERM),
        copied_at=copied_at,
    )


def _last_epoch(lineage: Lineage) -> LeaderEpoch:
    return lineage.entries[-1].epoch


def _meaning(segment: SegmentNow, remote: RemoteSegment | None) -> SegmentMeaning:
    record = segment.record
    attempt = CopyAttempt(
        record.partition,
        record.topic,
        record.segment_id,
        record.offsets,
        "" if remote is None else remote.object_key,
        Term(_last_epoch(record.leader_epochs), Position(0), NO_TERM),
        record.broker_id,
        record.at,
    )
    return SegmentMeaning(record.segment_id, segment.state, attempt, remote, Position(0))


LOOK_S = 5.0


class MetadataWatch:
    """Reads every metadata partition periodically. Reading its results is thread-safe and never waits."""

    def __init__(self, view: MetadataView, clock: Clock) -> None:
        self._view, self._clock, self._began = view, clock, clock.monotonic()
        self._trouble: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Call `look` every `LOOK_S` seconds until ``stop`` is set."""
        go_round("view watch", stop, lambda: self.look(stop), lambda: LOOK_S)

    def look(self, stop: threading.Event) -> None:
        """Read each metadata partition up to its end once."""
        try:
            for number in range(self._view.metadata_partitions):
                if stop.is_set():
                    return
                alive()
                self._view.require_fresh(number, LOOK_S)
            self._trouble = None
        except TierstateError as error:
            self._trouble = str(error)

    def ages(self) -> dict[int, float]:
        """Return, by metadata partition, the seconds since the view was at its end, or else since the watch began."""
        running = self._clock.monotonic() - self._began
        numbers = range(self._view.metadata_partitions)
        return {number: running if (age := self._view.age_s(number)) is None else age for number in numbers}

    def behind(self, max_age: float) -> list[str]:
        """Return the reasons why a reader that accepts a view of ``max_age`` seconds must not rely on this view."""
        reasons = [] if self._trouble is None else [f"the view makes no progress: {self._trouble}"]
        numbers = range(self._view.metadata_partitions)
        unread = [number for number in numbers if self._view.age_s(number) is None]
        if unread:
            reasons.append(f"metadata partitions were not read to their end yet: {len(unread)}")
        elif (oldest := max(self.ages().values(), default=0.0)) >= max_age:
            reasons.append(f"the view is {oldest:.0f} s behind Kafka's metadata topic")
        return reasons

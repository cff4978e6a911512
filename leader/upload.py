"""Upload the three objects of one copy attempt: log, indexes, then the manifest. `put_log` documents the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..log.batch import first_codec
from ..log.local_log import SegmentFiles
from ..log.partition import format_epoch_checkpoint
from ..runtime.id_source import RandomBytes, system_random
from ..runtime.listener import Listener, TransactionIndexRebuilt
from ..runtime.operation import Operation
from ..state.errors import CorruptData, ObjectNotFound
from ..state.ids import TopicId
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Offset
from ..state.segment import AbortedRange, AbortedRanges, Compression, CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectReader, ObjectStore
from ..storage.segment.encryption import KeyWrapper, SegmentCipher
from ..storage.segment.manifest import (
    Encryption,
    IndexKind,
    SegmentManifest,
    SentChecksums,
    TierstateBlock,
    metadata_of,
)
from ..storage.segment.manifest_json import with_own_size
from ..storage.segment.writer import (
    IndexesObject,
    LogObject,
    Pace,
    SegmentSource,
    plan_compression,
    put_indexes,
    put_log,
    put_manifest,
)
from .checked_log import CheckedLog
from .term import TermSession


@dataclass(frozen=True, slots=True)
class FormatPolicy:
    """The ``[format]`` settings, and the cluster and topic ids that every manifest of this agent names.

    ``keys``: public keys are sufficient; if None, nothing is encrypted.
    """

    compression: str
    zstd_level: int
    chunk_bytes: int
    cluster_id: str
    tier_state_topic_id: TopicId
    keys: KeyWrapper | None = None
    random: RandomBytes = system_random

    def cipher(self) -> tuple[SegmentCipher, Encryption] | tuple[None, None]:
        """Return a cipher with a new data key for one attempt; (None, None) if nothing is encrypted."""
        return (None, None) if self.keys is None else SegmentCipher.new(self.keys, self.random)


def upload(
    session: TermSession,
    attempt: CopyAttempt,
    files: SegmentFiles,
    store: ObjectStore,
    policy: FormatPolicy,
    pace: Pace,
    listener: Listener,
) -> Operation[RemoteSegment]:
    """Upload the objects and verify their sizes. Return the segment's descriptor for the copy-finished fact.

    ``pace`` is called with the size of every piece before it is sent. A transaction index that contradicts its log's
    markers is reported and replaced (0029). Raises CorruptData if a check of the log or of an object's size fails.
    """
    log = CheckedLog(files, attempt.offsets, policy.chunk_bytes)
    compression = plan_compression(policy.compression, first_codec(files.head(), source=str(files.path)))
    cipher, encryption = policy.cipher()
    yield "put log"
    source = SegmentSource(
        log=log.pieces(),
        log_bytes=files.log_bytes,
        offset_index=b"",
        time_index=b"",
        producer_snapshot=files.producer_snapshot,
        leader_epochs=format_epoch_checkpoint(files.lineage.up_to(attempt.offsets.end)),
        transaction_index=None,
    )
    written = put_log(
        store,
        attempt.object_key,
        source,
        compression,
        cipher=cipher,
        chunk_bytes=policy.chunk_bytes,
        level=policy.zstd_level,
        pace=pace,
    )
    # the broker's indexes where they match the log that was just read, otherwise the rebuilt indexes
    transaction_index, difference = log.transaction_index()
    aborted = log.aborted()
    source = replace(
        source,
        offset_index=log.offset_index(),
        time_index=log.time_index(),
        transaction_index=transaction_index,
    )
    if difference is not None:
        listener(
            TransactionIndexRebuilt(
                session.partition, session.name, attempt.offsets, log.transaction_index_file, difference
            )
        )
    yield "put indexes"
    indexes = put_indexes(store, attempt.object_key, source, cipher=cipher, pace=pace)
    _verify(store, attempt.object_key, ObjectKind.LOG, written.stored_bytes)
    _verify(store, attempt.object_key, ObjectKind.INDEXES, indexes.stored_bytes)
    segment = _describe(session, attempt, files, log, written, indexes, aborted, compression, encryption)
    manifest = with_own_size(
        SegmentManifest(
            chunks=written.chunks,
            indexes=indexes.spans,
            compression=compression is Compression.ZSTD,
            encryption=encryption,
            metadata=metadata_of(segment, attempt.started_at),
            tierstate=TierstateBlock(
                segment=segment,
                cluster_id=policy.cluster_id,
                tier_state_topic_id=policy.tier_state_topic_id,
                log_start_offset=Offset(session.view().log_start or 0),
                chunk_first_offsets=log.chunk_first_offsets(),
                aborted=aborted,
                sent=SentChecksums(written.object_crc32c, indexes.object_crc32c, written.chunk_crc32c),
                undecodable=log.undecodable,
            ),
        )
    )
    assert manifest.tierstate is not None
    yield "put manifest"
    manifest_bytes = put_manifest(store, attempt.object_key, manifest, pace=pace)
    _verify(store, attempt.object_key, ObjectKind.MANIFEST, manifest_bytes)
    return manifest.tierstate.segment


def _verify(store: ObjectReader, base_key: str, kind: ObjectKind, expected: int) -> None:
    key = object_key(base_key, kind)
    try:
        size = store.head(key).size
    except ObjectNotFound as error:
        raise CorruptData("object is missing right after it was written", object_key=key) from error
    if size != expected:
        raise CorruptData("object has another size than was written", object_key=key, expected=expected, found=size)


def _describe(
    session: TermSession,
    attempt: CopyAttempt,
    files: SegmentFiles,
    log: CheckedLog,
    written: LogObject,
    indexes: IndexesObject,
    aborted: tuple[AbortedRange, ...],
    compression: Compression,
    encryption: Encryption | None,
) -> RemoteSegment:
    """Return the descriptor for facts and manifest. `with_own_size` fills in ``manifest_bytes`` later."""
    return RemoteSegment(
        partition=attempt.partition,
        topic=attempt.topic,
        segment_id=attempt.segment_id,
        object_key=attempt.object_key,
        offsets=attempt.offsets,
        last_record_offset=log.last_record_offset,
        record_count=log.record_count,
        leader_epochs=files.lineage.within(attempt.offsets),
        max_timestamp=log.max_timestamp,
        log_bytes=files.log_bytes,
        log_object_bytes=written.stored_bytes,
        indexes_object_bytes=indexes.stored_bytes,
        manifest_bytes=0,
        log_sha256=written.sha256,
        log_crc32c=written.crc32c,
        indexes_sha256=indexes.sha256,
        compression=compression,
        encryption_key_id=None if encryption is None else encryption.key_id,
        transaction_index_empty=indexes.spans[IndexKind.TRANSACTION] is None,
        aborted=AbortedRanges.of(aborted),
        broker_id=attempt.broker_id,
        term=attempt.term,
        copied_at=session.now(),
    )

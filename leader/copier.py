"""Copies one rolled segment to the object store, and records the copy in facts.

    copy-started applied  →  log  →  indexes  →  manifest  →  checks  →  copy-finished   ← the commit point

If an attempt fails, it removes its objects, and its term appends delete-started. The next attempt has a new segment id.
If the process dies, its copy-started remains; the next term makes the segment ABANDONED, and it is swept later.
Rules marked * are in `docs/tier-state.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from ..log.batch import MAGIC_AT, first_codec
from ..log.local_log import SegmentFiles
from ..log.partition import format_epoch_checkpoint
from ..rules.candidates import CopyCandidate
from ..runtime.id_source import system_random
from ..runtime.listener import Listener, SegmentCopied, TransactionIndexRebuilt
from ..runtime.operation import Operation
from ..state.errors import (
    CorruptData,
    Fenced,
    NotTiered,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
    TierstateError,
    TimedOut,
)
from ..state.facts import (
    DeleteReason,
    SegmentCopyFinished,
    SegmentCopyStarted,
    SegmentDeleteFinished,
    SegmentDeleteStarted,
)
from ..state.ids import RemoteSegmentId, TopicId
from ..state.object_keys import ObjectKeys, ObjectKind, object_key
from ..state.offsets import Offset, TimestampMs
from ..state.segment import AbortedRange, AbortedRanges, Compression, CopyAttempt, RemoteSegment
from ..storage.object_store import ObjectReader, ObjectStore, ObjectWriter
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
    delete_segment,
    plan_compression,
    put_indexes,
    put_log,
    put_manifest,
)
from .checked_log import CheckedLog
from .object_proof import ObjectProof
from .term import TermSession


@dataclass(frozen=True, slots=True)
class CopyTools:
    """The tools that every copy of this agent uses. ``throttle`` gets the size of each piece before it is sent.

    ``longest_s``: an attempt that takes longer aborts itself, long before a sweep could treat it as abandoned*.
    """

    store: ObjectStore
    proof: ObjectProof
    keys: ObjectKeys
    format: FormatPolicy
    throttle: Callable[[int], object]
    listener: Listener
    longest_s: float


def copy_segment(session: TermSession, candidate: CopyCandidate, tools: CopyTools) -> Operation[RemoteSegment]:
    """Make one attempt to copy. Raises CorruptData if a check fails, NotTiered for an old format, Fenced, Unavailable.

    Every file is opened before the first fact is appended, so that reads succeed even if the broker deletes the segment
    during the attempt. `_check_again` then raises Fenced.
    """
    context = session.context
    start_s = context.clock.monotonic()

    def pace(size: int) -> None:
        tools.throttle(size)
        if context.clock.monotonic() - start_s > tools.longest_s:
            raise TimedOut("the copy took too long", offsets=candidate.offsets, seconds=tools.longest_s)

    with context.log.open_segment(session.partition, session.name, candidate.base_offset, candidate.next_base) as files:
        _check_format(files, candidate)
        attempt = _new_attempt(session, candidate, tools)
        _check_store(tools.store, attempt)
        yield "append copy-started"
        session.append(SegmentCopyStarted(attempt))
        try:
            segment = yield from upload(
                attempt, files, tools, pace, ManifestSource(session.now, lambda: _log_start(session))
            )
            _check_again(session, candidate, files)
            pace(0)  # if the objects move to another store now, all of these were there before it stood still*
        except Exception as error:  # copy-finished was never sent, so this attempt must remove its objects
            yield from _give_up(session, attempt, tools.store, error)
            raise
    yield "append copy-finished"
    # The commit point: once this is in the topic, readers everywhere may read the segment.
    session.append(SegmentCopyFinished(segment))
    tools.listener(
        SegmentCopied(
            session.partition,
            session.name,
            segment.segment_id,
            segment.offsets,
            segment.log_bytes,
            segment.object_bytes,
            context.clock.monotonic() - start_s,
        )
    )
    return segment


def _check_format(files: SegmentFiles, candidate: CopyCandidate) -> None:
    """Raise NotTiered if the first batch has a format older than v2. Old formats come first in a segment."""
    head = files.head()
    if len(head) > MAGIC_AT and head[MAGIC_AT] < 2:
        raise NotTiered(
            "message format older than v2", file=files.path, offsets=candidate.offsets, magic=head[MAGIC_AT]
        )


def _check_store(store: ObjectReader, attempt: CopyAttempt) -> None:
    """Check that the store answers before the first fact is appended*. Raises the store's errors.

    Without this check, an outage of hours would leave two facts per attempt and partition: they cannot be erased before
    the store answers. Requests a key at which no object is ever written, because a store may cache "missing".
    """
    with suppress(ObjectNotFound):
        store.head(attempt.object_key)


def _new_attempt(session: TermSession, candidate: CopyCandidate, tools: CopyTools) -> CopyAttempt:
    segment_id = RemoteSegmentId.of(session.context.ids.uuid())
    key = tools.keys.base_key(
        session.name, session.partition.topic_id, session.partition.partition, candidate.base_offset, segment_id
    )
    return CopyAttempt(
        partition=session.partition,
        topic=session.name,
        segment_id=segment_id,
        offsets=candidate.offsets,
        object_key=key,
        term=session.term,
        broker_id=session.broker_id,
        started_at=session.now(),
    )


def _check_again(session: TermSession, candidate: CopyCandidate, files: SegmentFiles) -> None:
    """Check that leadership, epoch, topic id, last stable offset and directory are unchanged. Raises Fenced."""
    session.confirm_leadership()
    bounds = session.bounds()
    if candidate.next_base > bounds.last_stable_offset:
        raise Fenced(
            "the last stable offset went back", offsets=candidate.offsets, last_stable_offset=bounds.last_stable_offset
        )
    files.confirm()
    session.view(max_age=0)  # as of now: a fenced copy-finished would leave its objects to the sweeper


def _give_up(session: TermSession, attempt: CopyAttempt, store: ObjectWriter, error: Exception) -> Operation[None]:
    """Remove the attempt's objects, and append facts about it, as far as possible. Raises no tierstate error.

    The objects are removed first: no reader knows them, and a fenced term may still remove objects that it wrote.
    Delete-finished is appended only if no object can land later. A write of unknown outcome may land later, and then a
    sweep needs the facts that name the segment id.
    """
    removed = False
    yield "delete own objects"
    with suppress(TierstateError):
        delete_segment(store, attempt)
        removed = not isinstance(error, (StorageUnavailable, Throttled))
    with suppress(TierstateError):
        yield "append delete-started"
        reason, now = DeleteReason.FAILED_ATTEMPT, session.now()
        session.append(SegmentDeleteStarted(attempt, session.term, session.counter(), reason, now))
        if removed:
            yield "append delete-finished"
            session.append(SegmentDeleteFinished(attempt, session.term, session.counter(), session.now()))


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


def _log_start(session: TermSession) -> Offset:
    return Offset(session.view().log_start or 0)


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """Functions that return the time and the log start for a manifest, right before it is written.

    ``require`` gets the segment before that. Its errors end the copy.
    """

    now: Callable[[], TimestampMs]
    log_start: Callable[[], Offset]
    require: Callable[[RemoteSegment], object] = lambda segment: None


def upload(
    attempt: CopyAttempt, files: SegmentFiles, tools: CopyTools, pace: Pace, facts: ManifestSource
) -> Operation[RemoteSegment]:
    """Upload the objects and verify their sizes. Return the segment's descriptor for the copy-finished fact.

    ``pace`` is called with the size of every piece before it is sent. A transaction index that contradicts its log's
    markers is reported and replaced (0029). Raises CorruptData if a check of the log or of an object's size fails.
    """
    store, policy, key = tools.store, tools.format, attempt.object_key
    log = CheckedLog(files, attempt.offsets, policy.chunk_bytes)
    compression = plan_compression(policy.compression, first_codec(files.head(), source=str(files.path)))
    cipher, encryption = SegmentCipher.new(policy.keys, system_random) if policy.keys else (None, None)
    source = SegmentSource(
        log=log.pieces(),
        log_bytes=files.log_bytes,
        offset_index=b"",
        time_index=b"",
        producer_snapshot=files.producer_snapshot,
        leader_epochs=format_epoch_checkpoint(files.lineage.up_to(attempt.offsets.end)),
        transaction_index=None,
    )
    options = {"chunk_bytes": policy.chunk_bytes, "level": policy.zstd_level}
    yield "put log"
    written = put_log(store, key, source, compression, cipher=cipher, pace=pace, **options)
    # the broker's indexes where they match the log that was just read, otherwise the rebuilt indexes
    transaction_index, difference = log.transaction_index()
    aborted = log.aborted()
    source = replace(
        source, offset_index=log.offset_index(), time_index=log.time_index(), transaction_index=transaction_index
    )
    if difference is not None:
        where = attempt.partition, attempt.topic, attempt.offsets
        tools.listener(TransactionIndexRebuilt(*where, log.transaction_index_file, difference))
    yield "put indexes"
    indexes = put_indexes(store, key, source, cipher=cipher, pace=pace)
    _verify(store, key, ObjectKind.LOG, written.stored_bytes)
    _verify(store, key, ObjectKind.INDEXES, indexes.stored_bytes)
    segment = _describe(facts.now(), attempt, files, log, written, indexes, aborted, compression, encryption)
    manifest, block = _manifest(policy, attempt, segment, log, facts.log_start(), written, indexes, aborted, encryption)
    facts.require(block.segment)
    yield "put manifest"
    _verify(store, key, ObjectKind.MANIFEST, put_manifest(store, key, manifest, pace=pace))
    return block.segment


def _manifest(
    policy: FormatPolicy,
    attempt: CopyAttempt,
    segment: RemoteSegment,
    log: CheckedLog,
    log_start: Offset,
    written: LogObject,
    indexes: IndexesObject,
    aborted: tuple[AbortedRange, ...],
    encryption: Encryption | None,
) -> tuple[SegmentManifest, TierstateBlock]:
    """Return the manifest, and its block, in which `with_own_size` filled in the segment's ``manifest_bytes``."""
    manifest = with_own_size(
        SegmentManifest(
            chunks=written.chunks,
            indexes=indexes.spans,
            compression=segment.compression is Compression.ZSTD,
            encryption=encryption,
            metadata=metadata_of(segment, attempt.started_at),
            tierstate=TierstateBlock(
                segment=segment,
                cluster_id=policy.cluster_id,
                tier_state_topic_id=policy.tier_state_topic_id,
                log_start_offset=log_start,
                chunk_first_offsets=log.chunk_first_offsets(),
                aborted=aborted,
                sent=SentChecksums(written.object_crc32c, indexes.object_crc32c, written.chunk_crc32c),
                undecodable=log.undecodable,
            ),
        )
    )
    assert manifest.tierstate is not None
    return manifest, manifest.tierstate


def _verify(store: ObjectReader, base_key: str, kind: ObjectKind, expected: int) -> None:
    key = object_key(base_key, kind)
    try:
        size = store.head(key).size
    except ObjectNotFound as error:
        raise CorruptData("object is missing right after it was written", object_key=key) from error
    if size != expected:
        raise CorruptData("object has another size than was written", object_key=key, expected=expected, found=size)


def _describe(
    now: TimestampMs,
    attempt: CopyAttempt,
    files: SegmentFiles,
    log: CheckedLog,
    written: LogObject,
    indexes: IndexesObject,
    aborted: tuple[AbortedRange, ...],
    compression: Compression,
    encryption: Encryption | None,
) -> RemoteSegment:
    """Return the descriptor, still without ``manifest_bytes``."""
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
        copied_at=now,
    )

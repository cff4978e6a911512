"""The result of a fetch: bytes of one tier as stored, and all that a decoder needs to show exactly its records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..log.batch import iter_batches
from ..state.errors import (
    UNNAMED_STORE,
    CorruptData,
    InvalidSettings,
    LineageUnconfirmed,
    ObjectNotFound,
    TierstateError,
)
from ..state.ids import TopicId
from ..state.object_keys import ObjectKind, object_key
from ..state.offsets import Extent, Offset
from ..state.routing import Isolation, ReadRemote, Tier
from ..state.segment import AbortedRange

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 * 1024 * 1024
PIECES_AHEAD = 2
Batches: TypeAlias = "Generator[tuple[pa.RecordBatch, Tier], None, None]"
Names: TypeAlias = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class LogicalTopic:
    """A topic as the broker knows it now. ``gone``: the broker does not know it, and ``name`` is its topic id."""

    name: str
    topic_id: TopicId
    partitions: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LogicalBounds:
    """The bounds of one partition in both tiers. Starts and ``highest_remote`` are inclusive, the last two exclusive.

    ``log_start``: None while it cannot be determined (`state/routing.py`, `sure_log_start`).
    """

    log_start: Offset | None
    local_start: Offset
    highest_remote: Offset | None
    last_stable_offset: Offset
    high_watermark: Offset

    def end(self, isolation: Isolation) -> Offset:
        """Return the first offset that a reader may not see yet."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def extent(
        self, topic: str, partition: int, isolation: Isolation, tier: Tier, copied_end: Callable[[Offset], Offset]
    ) -> Extent:
        """Return the offsets that can be read from this tier, or from both. ``copied_end`` is called with the start.

        Raises LineageUnconfirmed.
        """
        end = self.end(isolation)
        if tier is Tier.LOCAL:
            return Extent(max(self.log_start or self.local_start, self.local_start), end)
        start = self.start(topic, partition)
        return Extent(start, min(end, copied_end(start)) if tier is Tier.REMOTE else end)

    def start(self, topic: str, partition: int) -> Offset:
        """Return ``log_start``. Raises LineageUnconfirmed if it is unknown."""
        if self.log_start is None:
            raise LineageUnconfirmed(
                "the leader's epoch has no term yet, and the broker does not confirm where the log begins; "
                "the agent of the broker that leads may be down",
                topic=topic,
                partition=partition,
            )
        return self.log_start


@dataclass(frozen=True, slots=True)
class Fetched:
    """One piece of one tier: complete record batches as stored, offsets ascending.

    The first batch may begin below ``offset`` and the last may reach ``limit`` or beyond: a decoder shows the records
    of ``[offset, limit)``. ``aborted`` holds every aborted range that can touch the data, and is empty under
    read_uncommitted. ``next_offset`` is the offset to continue at. It is above ``offset`` whenever there is data, even
    if no record in the data is shown. ``view_age_s``: the view's age in seconds, if no broker was asked. ``topic_id``:
    the topic that was read; None: the requested topic.
    """

    data: bytes | memoryview
    tier: Tier
    aborted: tuple[AbortedRange, ...]
    offset: Offset
    next_offset: Offset
    limit: Offset
    bounds: LogicalBounds
    view_age_s: float | None = None
    topic_id: TopicId | None = None
    read: ReadRemote | None = field(default=None, compare=False)
    """The route in the remote tier; None for the local tier."""
    position: int = field(default=0, compare=False)
    """The byte of the segment's plain log at which the data begins; 0 for the local tier."""
    proven: bool = field(default=False, compare=False)
    """Whether the manifest's checksums prove that these are the bytes that were copied, so their CRCs are right."""

    def source(self, topic: str, partition: int) -> str:
        """Return the source that errors name: the log object, or the partition and the offset of the fetch."""
        if self.read is None:
            return f"{topic}-{partition}@{self.offset}"
        return object_key(self.read.segment.object_key, ObjectKind.LOG)


@dataclass(frozen=True, slots=True)
class StoredBatches:
    """Complete batches as one tier stores them, the aborted ranges that touch them, and the offset after them."""

    data: bytes | memoryview
    aborted: tuple[AbortedRange, ...]
    next_offset: Offset


@contextmanager
def naming(topic: str, partition: int, offset: int | None = None) -> Iterator[None]:
    """Add the partition and the requested offset to a CorruptData or ObjectNotFound that is raised in this block."""
    try:
        yield
    except (CorruptData, ObjectNotFound) as error:
        _name(error, topic, partition, offset)
        raise


def _name(error: TierstateError, topic: str, partition: int, offset: int | None = None) -> None:
    """Add the facts that ``error`` lacks. If an object is damaged, ``next`` is the command that reports details."""
    facts: dict[str, object] = {"topic": topic, "partition": partition}
    if offset is not None:
        facts["offset"] = offset
    if "/" in str(error.facts.get("file", "")):  # in the local tier, ``file`` is the partition's name
        facts["next"] = f"tierstate verify {topic}:{partition} --level 3"
    for name, value in facts.items():
        error.facts.setdefault(name, value)


def missing_object(error: ObjectNotFound, topic: str, partition: int, **facts: object) -> TierstateError:
    """Return the error of a missing object that must exist, because current facts name it."""
    if (unnamed := no_rule(error, topic=topic, partition=partition, **facts)) is not None:
        return unnamed
    damage = CorruptData("an object of a live segment is missing", file=error.facts.get("key"), **facts)
    _name(damage, topic, partition)
    return damage


def no_rule(error: ObjectNotFound, **facts: object) -> InvalidSettings | None:
    """Return the error of a process that lacks a rule of ``store.topics``, or None if it lacks none."""
    if (store := error.facts.get(UNNAMED_STORE)) is None:
        return None
    problem = f"no rule for this topic names {store}, where the object may be: no other store has it (docs/stores.md)"
    settings = InvalidSettings([f"store.topics: {problem}"])
    settings.facts |= {"object_key": error.facts.get("key"), **facts}
    return settings


def records(fetched: Fetched, topic: str, partition: int, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece, exactly those of ``[offset, limit)``. Options are `log.decode.decode_batches`'s."""
    # Not at the top: numba and the kernels take longer to load than all else, and planning decodes nothing.
    from ..log.decode import decode_batches

    with naming(topic, partition):
        yield from decode_batches(
            fetched.data,
            source=fetched.source(topic, partition),
            position=fetched.position,
            topic=topic,
            partition=partition,
            aborted=fetched.aborted,
            start=fetched.offset,
            end=fetched.limit,
            **options,
        )


class Search:
    """``key``: exactly this key. ``contains``: these bytes in the key, the value, or a header's name or value.

    ``report``: called at each progress, by the thread that reads.
    """

    def __init__(self, key: bytes | None, contains: bytes | None, report: Callable[[Search], None]) -> None:
        self.key, self.contains = key, contains
        self.records = self.bytes = 0
        """Searched so far, in all partitions together; ``bytes`` are uncompressed."""
        self.reached = Offset(0)
        """The offset at which the search continues, in the partition that is being searched."""
        self._report = report

    def count(self, records: int, size: int) -> None:
        """Add records and bytes that were searched."""
        self.records += records
        self.bytes += size

    def reach(self, offset: int) -> None:
        self.reached = Offset(offset)
        self._report(self)


def as_written(piece: Fetched, source: str) -> Fetched:
    """Return the leading batches whose CRC is right and that do not exceed the limit of their part of the log. The CRCs
    are compared unless the piece is ``proven``.

    This is for readers that decode nothing: clients get complete batches, and librdkafka checks no CRC. A batch that
    exceeds a limit at the broker's local start belongs to the same log, so it is kept. Raises CorruptData if no batch
    remains, as in a read that begins at a wrong one. Branches of the log diverge between batches, so only a wrong batch
    exceeds another limit.
    """
    limit = piece.limit if piece.limit < piece.bounds.local_start else None
    stop, reached, wrong = 0, piece.offset, None
    try:
        for batch in iter_batches(piece.data, source=source, position=piece.position, verify_crc=not piece.proven):
            if limit is not None and batch.last_offset >= limit:
                wrong = CorruptData(
                    "a batch reaches beyond where its log ends", file=source, offset=piece.offset, limit=limit
                )
                break
            stop = batch.position + batch.size_bytes - piece.position
            reached = Offset(batch.last_offset + 1)
    except CorruptData as error:
        wrong = error
    if wrong is None:
        return piece
    if not stop:
        raise wrong
    return replace(piece, data=piece.data[:stop], next_offset=min(reached, piece.next_offset))


def below(piece: Fetched, offset: Offset) -> Fetched:
    """Return the batches that begin below the offset. The records in them are not checked."""
    stop = 0
    for batch in iter_batches(piece.data, source="", verify_crc=False, partial_tail_ok=True):
        if batch.base_offset >= offset:
            break
        stop = batch.position + batch.size_bytes
    return replace(piece, data=piece.data[:stop], limit=offset)

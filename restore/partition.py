"""Restore one partition: exactly once, whatever process is killed at whatever step.

    begin  →  fence  →  term  →  match what has landed  →  send, send, …, ranges, …  →  ranges to the end

The target's log is the truth, and the ledger is an index of it. A process first fences off all earlier producers. Then
no batch of theirs can land, and the log behind the last recorded range holds exactly the batches that they sent, in the
order of the source. Each is matched with the source's next batch, and sending continues after the last.

- Killed between a send and its ranges: the next process matches what has landed.
- Killed between fence and term: nothing was sent in that epoch. Its marker is no record.
- Two processes: the later one fences off the earlier. The leader refuses the earlier one's next batch, and the key of
  its next step is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..broker.answers import FetchSpec
from ..broker.fenced_producer import Appended, FencedProducer, ProducerIdentity
from ..broker.local_reads import LocalReader
from ..fetch.piece import Fetched
from ..log.batch import BatchHeader, iter_batches
from ..log.produced_batch import stamped
from ..runtime.clock import Clock
from ..runtime.operation import Operation
from ..state.errors import Fenced, InvalidRequest, TimedOut
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset
from ..state.routing import Isolation
from .batches import Sendable, sendables
from .ledger import Ledger, Origin, Progress
from .offset_map import MappedRange, merged, ranges_of

CHUNK_BYTES = 256 * 1024 * 1024
"""Bytes between two recorded ranges: at most so many are read from the target after a kill."""
FETCH_BYTES = 8 * 1024 * 1024
MARKER_S, MARKER_WAIT_MS = 60.0, 200
"""The time that the coordinator has to write the marker of a fence."""
TERM_TRIES = 5
ReadPieces = Callable[[Offset, Offset], Iterable[Fetched]]
"""Returns the pieces with the committed records of offsets ``[start, end)``, as `LogReader.scan` does."""
AGAIN = "delete the target topic, and restore again"


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A partition to restore into. ``reads``: of its cluster."""

    topic: str
    topic_id: TopicId
    partition: int
    reads: LocalReader

    @property
    def facts(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.partition}


@dataclass(frozen=True, slots=True)
class Tools:
    """``throttle`` gets the size of each batch before it is sent. ``advance`` gets the number of source offsets that
    were done."""

    clock: Clock
    throttle: Callable[[int], object]
    advance: Callable[[int], object]
    chunk_bytes: int = CHUNK_BYTES


@dataclass(slots=True)
class Restored:
    """The result. ``records``, ``bytes``, ``batches``: sent by this process. ``rewritten``: batches of those that were
    not sent as stored. ``matched``: records that earlier processes had sent without recording it.
    """

    progress: Progress
    records: int = 0
    bytes: int = 0
    batches: int = 0
    rewritten: int = 0
    matched: int = 0


class PartitionRestore:
    """Restores one partition by `steps`. The caller closes ``producer``."""

    def __init__(
        self,
        origin: Origin,
        read: ReadPieces,
        target: TargetPartition,
        ledger: Ledger,
        producer: FencedProducer,
        tools: Tools,
    ) -> None:
        self._origin, self._read, self._target = origin, read, target
        self._ledger, self._producer, self._tools = ledger, producer, tools
        self._in_flight: deque[Sequence[int]] = deque()
        self._ranges: list[MappedRange] = []
        """Ranges that are in the target, and not recorded."""
        self._end = Offset(0)
        """The target's end, as far as it was answered."""

    def steps(self, extent: Extent) -> Operation[Restored]:
        """Restore the source offsets ``[start, end)`` that are not there yet.

        Raises Fenced if another restore into the partition has begun. Raises InvalidRequest if the target is not empty,
        has another source, or has records of other producers. Also raises the errors of reading and producing.
        """
        progress = self._ledger.read()
        if progress is None:
            end = self._empty_end()
            yield "record the beginning"
            progress = self._ledger.begin(self._origin, extent.start, end)
        self._check(progress, extent)
        restored = Restored(progress)
        if progress.source_end >= extent.end:
            return restored
        yield "fence"
        identity = self._producer.fence()
        yield "record the term"
        progress = restored.progress = self._new_term(progress, identity)
        landed = deque(self._landed(progress, identity))
        pieces = self._read(progress.source_end, extent.end)
        unrecorded = 0
        for batch in self._missing(pieces, landed, restored):
            yield "send"
            self._tools.throttle(len(batch.data))
            self._in_flight.append(batch.offsets)
            self._take(self._producer.send(partial(stamped, batch.data), len(batch.offsets)))
            self._count(batch, restored)
            unrecorded += len(batch.data)
            if unrecorded >= self._tools.chunk_bytes:
                self._take(self._producer.drain())
                yield "record ranges"
                self._ledger.add_ranges(progress, self._taken(), Offset(batch.offsets[-1] + 1))
                unrecorded = 0
        self._take(self._producer.drain())
        yield "record ranges"
        # The commit point of this restore: from here on, a run with the same range does nothing.
        self._ledger.add_ranges(progress, self._taken(), extent.end)
        return restored

    def _empty_end(self) -> Offset:
        bounds = self._target.reads.bounds(self._target.topic, self._target.partition)
        if bounds.local_start != bounds.high_watermark:
            raise InvalidRequest(
                "the target is not empty, and no restore of ours has begun in it", **self._target.facts
            )
        return bounds.high_watermark

    def _check(self, progress: Progress, extent: Extent) -> None:
        if progress.origin != self._origin:
            raise InvalidRequest(
                "another partition is being restored into this target",
                **self._target.facts,
                restored=f"{progress.origin.topic}-{progress.origin.partition}",
                topic_id=progress.origin.topic_id,
            )
        if not progress.source_start <= extent.start <= progress.source_end:
            raise InvalidRequest(
                "this restore began at another offset: repeat its --from",
                **self._target.facts,
                began_at=progress.source_start,
                goes_on_at=progress.source_end,
                start=extent.start,
            )

    def _new_term(self, progress: Progress, identity: ProducerIdentity) -> Progress:
        """Record that this process restores from here on. Steps of an earlier process may still arrive before it."""
        for _ in range(TERM_TRIES):
            try:
                self._ledger.add_term(progress, identity.producer_id)
                return progress
            except Fenced:
                progress = self._ledger.read() or progress
        raise Fenced("others restore into this partition, too", **self._target.facts)

    def _landed(self, progress: Progress, identity: ProducerIdentity) -> Iterator[Appended]:
        """Yield the batches between the recorded ranges and the fence of ``identity``. Sets the target's end."""
        deadline = self._tools.clock.monotonic() + MARKER_S
        self._end = progress.target_end
        while True:
            for batch in self._batches():
                if batch.base_offset != self._end or batch.last_offset - self._end + 1 != batch.record_count:
                    raise InvalidRequest(
                        f"the target was compacted while it was restored: {AGAIN}",
                        **self._target.facts,
                        offset=self._end,
                    )
                self._end = Offset(batch.last_offset + 1)
                if batch.is_control:
                    if (batch.producer_id, batch.producer_epoch) == (identity.producer_id, identity.epoch):
                        return
                elif batch.producer_id in progress.producers:
                    yield Appended(Offset(batch.base_offset), batch.record_count)
                else:
                    raise self._foreign()
            if self._tools.clock.monotonic() > deadline:
                raise TimedOut("the transaction coordinator does not fence the partition", **self._target.facts)

    def _batches(self) -> Iterable[BatchHeader]:
        target = self._target
        spec = FetchSpec(
            target.topic,
            target.partition,
            self._end,
            FETCH_BYTES,
            Isolation.READ_UNCOMMITTED,
            wait_ms=MARKER_WAIT_MS,
            topic_id=target.topic_id,
        )
        source = f"{target.topic}-{target.partition}@{self._end}"
        return list(iter_batches(target.reads.fetch(spec).batches, source=source, verify_crc=False))

    def _missing(self, pieces: Iterable[Fetched], landed: deque[Appended], restored: Restored) -> Iterator[Sendable]:
        """Yield the batches that have not landed. Raises InvalidRequest if others have."""
        for batch in sendables(pieces, self._origin.topic, self._origin.partition):
            if not landed:
                yield batch
                continue
            there = landed.popleft()
            if there.count != len(batch.offsets):
                landed.append(there)
                break
            self._ranges = _joined(self._ranges, ranges_of(batch.offsets, there.base))
            restored.matched += there.count
            self._tools.advance(there.count)
        if landed:
            raise InvalidRequest(
                f"the target has batches that this range does not have: repeat the same --to, or {AGAIN}",
                **self._target.facts,
                offset=landed[0].base,
            )

    def _take(self, appended: Iterable[Appended]) -> None:
        """Add the ranges of answered batches."""
        for each in appended:
            if each.base != self._end:
                raise self._foreign()
            self._ranges = _joined(self._ranges, ranges_of(self._in_flight.popleft(), each.base))
            self._end = Offset(each.base + each.count)

    def _taken(self) -> list[MappedRange]:
        ranges, self._ranges = self._ranges, []
        return ranges

    def _foreign(self) -> InvalidRequest:
        return InvalidRequest(
            f"another producer writes into the target: {AGAIN}", **self._target.facts, offset=self._end
        )

    def _count(self, batch: Sendable, restored: Restored) -> None:
        restored.records += len(batch.offsets)
        restored.bytes += len(batch.data)
        restored.batches += 1
        restored.rewritten += not batch.as_stored
        self._tools.advance(len(batch.offsets))


def _joined(ranges: list[MappedRange], following: Iterable[MappedRange]) -> list[MappedRange]:
    """Return ``ranges`` with more ranges behind them. Only the last one can be joined with the next."""
    last = ranges.pop() if ranges else None
    ranges += merged([*([last] if last else []), *following])
    return ranges

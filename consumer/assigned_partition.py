"""The state of one assigned partition: the tier that serves it, waiting pieces, and the last offset handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from confluent_kafka import OFFSET_INVALID, TopicPartition

from ..fetch.piece import Fetched, naming
from ..log.decode import decode_records
from ..log.record_block import RecordBlock
from ..state.errors import OffsetOutOfRange, TierstateError
from ..state.ids import TopicId
from .tiered_message import BlockMessages, TieredMessage

PIECES_WAITING = 2
"""The most pieces that wait to be decoded. Another piece is being handed out, with one unpacked block of it."""
BLOCK_BYTES = 512 * 1024
"""Bytes unpacked at a time. They are still in the processor's cache when records are made of them."""


class Server(Enum):
    """The source of a partition's records. UNKNOWN: the next look decides. NOBODY: no source until a seek or assign."""

    UNKNOWN = auto()
    REMOTE = auto()
    KAFKA = auto()
    NOBODY = auto()


@dataclass(frozen=True, slots=True)
class LookResult:
    """The result of one look at the tiers. If ``piece`` is None, Kafka's consumer continues at ``offset``, or the
    partition ``waits`` if only the remote tier may be read. ``reset``: the error that reset the position, if any.
    """

    offset: int
    piece: Fetched | None
    topic_id: TopicId
    waits: bool = False
    reset: OffsetOutOfRange | None = None


@dataclass(frozen=True, slots=True)
class LookFailure:
    """A failed look. ``offset``: the offset of the record that cannot be read."""

    offset: int
    error: TierstateError


Outcome = LookResult | LookFailure


class AssignedPartition:
    """One assigned partition, guarded by the loop's lock. ``at``: the next offset to hand out, or a logical offset."""

    def __init__(self, assignment: TopicPartition) -> None:
        self.topic: str = assignment.topic
        self.number: int = assignment.partition
        self.assigned_offset: int = assignment.offset
        self.at: int = assignment.offset
        self.handed_out: int = OFFSET_INVALID
        self.stored: int = OFFSET_INVALID
        self.paused = False
        self.server = Server.UNKNOWN
        self.generation = 0
        self.looking = False
        self.not_before = 0.0
        self.topic_id: TopicId | None = None
        self.lost = False
        self.low, self.high = OFFSET_INVALID, OFFSET_INVALID
        self.reported_end = OFFSET_INVALID
        self._look_at: int = assignment.offset
        """The offset of the next look."""
        self._waiting: deque[Outcome] = deque()
        self._ahead = False
        """Whether the newest outcome came while records before it were still waiting."""
        self._blocks: Iterator[RecordBlock] = iter(())
        self._block: BlockMessages | None = None
        self._after: int | None = None
        """The offset after the piece that is being handed out."""

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.number

    def place(self, offset: int = OFFSET_INVALID) -> TopicPartition:
        """Return this partition at ``offset``, without a leader epoch: brokers report truncation for an old epoch."""
        return TopicPartition(self.topic, self.number, offset)

    def restart(self, at: int, *, lost: bool = False) -> None:
        """Continue at ``at``. Drop waiting and running looks. ``lost``: the log was truncated below ``at``."""
        self.at = self._look_at = at
        self.generation += 1
        self.server, self.lost = Server.UNKNOWN, lost
        self.not_before = 0.0
        self._waiting.clear()
        self._blocks, self._block, self._after = iter(()), None, None

    def try_again(self, at: int, not_before: float) -> None:
        """Look again at ``at`` after a failed look, at monotonic time ``not_before`` or later. Keeps `lost`: without
        it, the next look would continue in the new branch of the log without a report.
        """
        self.restart(at, lost=self.lost)
        self.not_before = not_before

    def next_look(self, now: float) -> int | None:
        """Return the offset at which the next look may begin now, or None if none may begin."""
        if self.looking or self.server in (Server.KAFKA, Server.NOBODY) or now < self.not_before:
            return None
        last = self._waiting[-1] if self._waiting else None
        is_final = last is not None and (isinstance(last, LookFailure) or last.piece is None)
        return None if is_final or len(self._waiting) >= PIECES_WAITING else self._look_at

    def add(self, outcome: Outcome) -> None:
        self._ahead = self._after is not None or bool(self._waiting)
        self._waiting.append(outcome)
        if isinstance(outcome, LookFailure):
            return
        self.lost, self.topic_id = False, outcome.topic_id
        self._look_at = outcome.offset if outcome.piece is None else outcome.piece.next_offset
        if outcome.piece is not None:
            bounds = outcome.piece.bounds
            self.high = max(self.high, bounds.high_watermark)
            self.low = self.low if bounds.log_start is None else bounds.log_start

    def take(self, limit: int) -> list[TieredMessage]:
        """Take up to ``limit`` records of the remote tier, in order. If the list is empty, call `end`."""
        while True:
            taken = [] if self._block is None else self._block.take(limit)
            if taken:
                self.at = self.handed_out = taken[-1].offset() + 1
                return taken
            try:
                with naming(self.topic, self.number):
                    block = next(self._blocks, None)
            except TierstateError as error:  # waiting pieces are dropped, so no later record comes before the error
                self.restart(self.at, lost=self.lost)
                self._waiting.append(LookFailure(self.at, error))
                return []
            except BaseException:  # the ended decoder must not look like the end of its piece
                self.restart(self.at, lost=self.lost)
                raise
            if block is not None:
                self._block = BlockMessages(block, self.topic, self.number)
            elif self._after is not None:
                self.at, self._after = max(self.at, self._after), None
            elif not self._open_next():
                return []

    def _open_next(self) -> bool:
        head = self._waiting[0] if self._waiting else None
        if not isinstance(head, LookResult) or head.piece is None:
            return False
        self._waiting.popleft()
        piece, self.server = head.piece, Server.REMOTE
        self.at, self._after = piece.offset, piece.next_offset
        self._blocks = decode_records(
            piece.data,
            source=piece.source(self.topic, self.number),
            position=piece.position,
            aborted=piece.aborted,
            start=piece.offset,
            end=piece.limit,
            piece_bytes=BLOCK_BYTES,
        )
        return True

    def end(self) -> Outcome | None:
        """Remove and return the next outcome, after all records: a change to Kafka's consumer, a wait, or an error.

        Returns None if there is none. Also drops a change that was added while records waited, because it may be
        outdated: a new look then begins.
        """
        if self._after is not None or not self._waiting:
            return None
        head = self._waiting[0]
        if isinstance(head, LookResult) and head.piece is not None:
            return None
        self._waiting.popleft()
        return None if isinstance(head, LookResult) and not head.waits and self._ahead else head

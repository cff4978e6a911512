"""One partition a consumer has: where it is read, what waits to be handed out, and what was handed out."""

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
"""Pieces that wait to be decoded. With the one that is being handed out, and one unpacked block of it, that is all."""
BLOCK_BYTES = 512 * 1024
"""Unpacked at a time: what is made of it finds it in the processor's cache."""


class Server(Enum):
    """Who serves a partition. UNKNOWN: it is being found out. NOBODY: an error stands, until a seek or an assign."""

    UNKNOWN = auto()
    REMOTE = auto()
    KAFKA = auto()
    NOBODY = auto()


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look at the tiers brought. ``piece`` None: Kafka's own consumer goes on at ``offset``; ``waits``: nobody
    has that offset yet, and Kafka's may not be asked. ``reset``: why the position is another than asked for.
    """

    offset: int
    piece: Fetched | None
    topic_id: TopicId
    waits: bool = False
    reset: OffsetOutOfRange | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """``offset``: of the record that cannot be had."""

    offset: int
    error: TierstateError


Outcome = Looked | Failed


class AssignedPartition:
    """Not thread-safe: the loop's lock guards it. ``at``: the next offset to hand out, or a logical one."""

    def __init__(self, given: TopicPartition) -> None:
        self.topic: str = given.topic
        self.number: int = given.partition
        self.given: int = given.offset
        self.at: int = given.offset
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
        self.told_end = OFFSET_INVALID
        self._reached: int = given.offset
        self._waiting: deque[Outcome] = deque()
        self._ahead = False
        self._blocks: Iterator[RecordBlock] = iter(())
        self._block: BlockMessages | None = None
        self._after: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.number

    def place(self, offset: int = OFFSET_INVALID) -> TopicPartition:
        """Never with a leader epoch: below the local start a broker would call it truncated."""
        return TopicPartition(self.topic, self.number, offset)

    def restart(self, at: int, *, lost: bool = False) -> None:
        """What waits is dropped, and what is under way will be. ``lost``: the log was cut off below ``at``."""
        self.at = self._reached = at
        self.generation += 1
        self.server, self.lost = Server.UNKNOWN, lost
        self.not_before = 0.0
        self._waiting.clear()
        self._blocks, self._block, self._after = iter(()), None, None

    def try_again(self, at: int, not_before: float) -> None:
        """A look failed. That the log was cut off is still to be told: forgotten, the next look would read on in the
        other branch.
        """
        self.restart(at, lost=self.lost)
        self.not_before = not_before

    def next_look(self, now: float) -> int | None:
        """The offset to look for now, if any."""
        if self.looking or self.server in (Server.KAFKA, Server.NOBODY) or now < self.not_before:
            return None
        last = self._waiting[-1] if self._waiting else None
        ends = last is not None and (isinstance(last, Failed) or last.piece is None)
        return None if ends or len(self._waiting) >= PIECES_WAITING else self._reached

    def add(self, outcome: Outcome) -> None:
        self._ahead = self._after is not None or bool(self._waiting)
        self._waiting.append(outcome)
        if isinstance(outcome, Failed):
            return
        self.lost, self.topic_id = False, outcome.topic_id
        self._reached = outcome.offset if outcome.piece is None else outcome.piece.next_offset
        if outcome.piece is not None:
            bounds = outcome.piece.bounds
            self.high = max(self.high, bounds.high_watermark)
            self.low = self.low if bounds.log_start is None else bounds.log_start

    def take(self, limit: int) -> list[TieredMessage]:
        """Records of the remote tier, in order. Empty: see `end`, or wait."""
        while True:
            taken = [] if self._block is None else self._block.take(limit)
            if taken:
                self.at = self.handed_out = taken[-1].offset() + 1
                return taken
            try:
                with naming(self.topic, self.number):
                    block = next(self._blocks, None)
            except TierstateError as error:
                self._fail(error)
                return []
            except BaseException:  # the decoder is over now, as one is that has handed out all of its piece
                self.restart(self.at, lost=self.lost)
                raise
            if block is not None:
                self._block = BlockMessages(block, self.topic, self.number)
            elif self._after is not None:
                self.at, self._after = max(self.at, self._after), None
            elif not self._open_next():
                return []

    def _fail(self, error: TierstateError) -> None:
        """A decode error is an outcome of this partition, as a read error is. Nothing behind it is handed out first."""
        self.restart(self.at, lost=self.lost)
        self._waiting.append(Failed(self.at, error))

    def _open_next(self) -> bool:
        head = self._waiting[0] if self._waiting else None
        if not isinstance(head, Looked) or head.piece is None:
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
        """What comes after all records were handed out: Kafka's turn, or an error. Taken away by asking.

        Kafka's turn that was found while records waited is looked for again: it may have been long ago.
        """
        if self._after is not None or not self._waiting:
            return None
        head = self._waiting[0]
        if isinstance(head, Looked) and head.piece is not None:
            return None
        self._waiting.popleft()
        return None if isinstance(head, Looked) and not head.waits and self._ahead else head

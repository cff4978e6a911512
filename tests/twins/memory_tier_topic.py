"""The in-memory twin of the tier-state topic; passes the contract suite (`tests/broker/test_tier_topic.py`)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress

from tierstate.broker.tier_reader import UNKNOWN_EPOCH, TierBatch, TierReader, check_head, lost_heads
from tierstate.broker.tier_topic import AppendTime
from tierstate.runtime.clock import Clock, SystemClock
from tierstate.state.errors import PositionLost, TierstateError
from tierstate.state.offsets import Position, TimestampMs
from tierstate.state.view import Anchor, Entry

NAME = "_tier-state"
WAITED_S = 0.02
"""The longest wait of one poll. Closing a follower waits for its poll, and tests close thousands of them."""


class _Log:
    """One partition: its records, when each was appended and in which epoch, and where each epoch began."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.times: list[TimestampMs] = []
        self.epochs: list[int] = []
        self.begun: list[tuple[int, int]] = [(0, 0)]
        self.start = Position(0)

    def end_of(self, epoch: int) -> int:
        """Return Kafka's answer to OffsetForLeaderEpoch: where the next epoch began, or else the end."""
        return next((start for later, start in self.begun if later > epoch), len(self.entries))


class MemoryTierTopic:
    """A topic with partitions as lists. ``clock`` timestamps appended records, as the broker's clock does."""

    def __init__(
        self, partitions: int = 1, topic_id: str = "AAAAAAAAAAAAAAAAAAAAAg", clock: Clock | None = None
    ) -> None:
        self._topic_id, self._clock = topic_id, clock or SystemClock()
        self._logs = [_Log() for _ in range(partitions)]
        self.append_times: dict[int, AppendTime] = {}
        self._grown = threading.Condition()
        self.compacted: set[tuple[int, int]] = set()
        """(tier-state partition, position) of records that compaction has removed."""
        self.drift: list[str] = []
        """Further problems that `problems` returns."""

    def copied(self) -> MemoryTierTopic:
        """Return a copy, as of all brokers' disks: it has the same past, and changes independently from now on."""
        with self._grown:
            other = MemoryTierTopic(len(self._logs), self._topic_id, self._clock)
            other._logs = copy.deepcopy(self._logs)
            other.compacted = set(self.compacted)
            return other

    @property
    def topic_id(self) -> str:
        return self._topic_id

    @property
    def mapped_partitions(self) -> int:
        return len(self._logs)

    def append(self, tier_partition: int, key: str, value: bytes | None) -> Position:
        with self._grown:
            log = self._logs[tier_partition]
            position = Position(len(log.entries))
            log.entries.append(Entry(key, position, value))
            log.times.append(self._clock.now_ms())
            log.epochs.append(log.begun[-1][0])
            now = self._clock.monotonic()
            self.append_times[tier_partition] = AppendTime(log.times[-1], now, now)
            self._grown.notify_all()
            return position

    def end(self, tier_partition: int) -> Position:
        with self._grown:
            return Position(len(self._logs[tier_partition].entries))

    def ends(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        found = {}
        for number in tier_partitions:
            with suppress(TierstateError):
                found[number] = self.end(number)
        return found

    def starts(self, tier_partitions: Collection[int]) -> dict[int, Position]:
        with self._grown:
            return {number: self._logs[number].start for number in tier_partitions}

    def position_at(self, tier_partition: int, timestamp_ms: TimestampMs) -> Position:
        with self._grown:
            log = self._logs[tier_partition]
            later = (at for at, time in enumerate(log.times) if at >= log.start and time >= timestamp_ms)
            return Position(next(later, len(log.times)))

    def anchor_at(self, tier_partition: int, position: Position) -> Anchor | None:
        with self._grown:
            log = self._logs[tier_partition]
            if position >= len(log.entries) or (tier_partition, position) in self.compacted:
                return None
            entry = log.entries[position]
            return Anchor.of(position, log.times[position], entry.key, entry.value)

    def reader(self, positions: Mapping[int, Position], epochs: Mapping[int, int] | None = None) -> TierReader:
        check_head(NAME, positions, self.starts(positions))
        return _MemoryReader(self._logs, dict(positions), dict(epochs or {}), self._grown, self.compacted)

    def truncate(self, tier_partition: int, to: int) -> None:
        """Truncate at ``to``, as an unclean election does. The next leader epoch begins there."""
        with self._grown:
            log = self._logs[tier_partition]
            del log.entries[to:], log.times[to:], log.epochs[to:]
            epoch = log.begun[-1][0] + 1
            log.begun = [(each, start) for each, start in log.begun if start < to or start == 0]
            log.begun.append((epoch, len(log.entries)))
            self._grown.notify_all()

    def cut_head(self, tier_partition: int, to: int) -> None:
        """Delete everything below ``to``, as DeleteRecords or retention does."""
        with self._grown:
            self._logs[tier_partition].start = Position(to)

    def restore(self, tier_partition: int, to: int) -> None:
        """Put an older backup back: everything from ``to`` on is lost, and the epochs are restored too."""
        with self._grown:
            # records whose later values are lost now exist again, though they were compacted
            self.compacted -= {each for each in self.compacted if each[0] == tier_partition}
            log = self._logs[tier_partition]
            del log.entries[to:], log.times[to:], log.epochs[to:]
            log.begun = [(each, start) for each, start in log.begun if start < to or start == 0]
            self._grown.notify_all()

    def current_topic_id(self) -> str:
        return self._topic_id

    def problems(self) -> list[str]:
        return lost_heads(NAME, self.starts(range(self.mapped_partitions))) + self.drift

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _MemoryReader:
    def __init__(
        self,
        logs: list[_Log],
        positions: dict[int, Position],
        epochs: dict[int, int],
        grown: threading.Condition,
        compacted: set[tuple[int, int]],
    ) -> None:
        self._logs, self._positions, self._epochs, self._grown = logs, positions, epochs, grown
        self._compacted = compacted

    def poll(self, timeout: float) -> list[TierBatch]:
        with self._grown:
            self._check()
            if timeout > 0 and not any(at < len(self._logs[n].entries) for n, at in self._positions.items()):
                self._grown.wait(min(timeout, WAITED_S))
                self._check()
            return [
                self._take(number) for number, at in self._positions.items() if at < len(self._logs[number].entries)
            ]

    def _check(self) -> None:
        for number, position in self._positions.items():
            log, epoch = self._logs[number], self._epochs.get(number, UNKNOWN_EPOCH)
            facts = {"tier_partition": number, "position": position}
            if position > len(log.entries):
                raise PositionLost("position is past the end", **facts)
            if position < log.start:
                raise PositionLost("position is below the start", **facts)
            if position and epoch != UNKNOWN_EPOCH and position > log.end_of(epoch):
                raise PositionLost("the log was truncated below the position", **facts, leader_epoch=epoch)

    def _take(self, number: int) -> TierBatch:
        log, at = self._logs[number], self._positions[number]
        following = Position(len(log.entries))
        self._positions[number], self._epochs[number] = following, log.epochs[-1]
        left = [each for each in range(at, following) if (number, each) not in self._compacted]
        entries, times = tuple(log.entries[each] for each in left), tuple(log.times[each] for each in left)
        return TierBatch(number, entries, following, times, log.epochs[-1])

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

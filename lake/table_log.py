"""The log that a table follows: one topic's, as both tiers show it now."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager

import pyarrow as pa

from ..app.split_reads import SplitReads
from ..fetch.plan import Groups, planned
from ..fetch.planned_split import PlannedSplit, Skipped
from ..fetch.reader import LogReader
from ..state.epochs import Lineage
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, OffsetRange
from ..state.routing import Isolation, Tier

Open = Callable[[Iterable[PlannedSplit]], AbstractContextManager[SplitReads]]
"""Opens the reads of splits: `app.split_reads.Access.reads`, with a clock."""


class TopicLog:
    """The log of the topic that has this name now. Raises UnknownTopic, LineageUnconfirmed, and what reading raises."""

    def __init__(self, reader: LogReader, topic: str, isolation: Isolation, reads: Open, *, local: bool) -> None:
        """``local``: up to the last stable offset; else finished segments of the remote tier alone."""
        self._reader, self.topic, self._isolation, self._reads = reader, topic, isolation, reads
        self._tier = Tier.AUTO if local else Tier.REMOTE

    def topic_id(self) -> TopicId:
        return self._reader.topic(self.topic).topic_id

    def partitions(self) -> int:
        return self._reader.topic(self.topic).partitions

    def extent(self, partition: int) -> Extent:
        """Return where the log begins, and where the part to follow ends (exclusive)."""
        start, end = self._reader.extent(self.topic, partition, isolation=self._isolation, tier=self._tier)
        return Extent(start, Offset(max(start, min(end, self._sure_end(partition)))))

    def lineage(self, partition: int) -> Lineage:
        """Return the lineage of the leader's log below the end of `extent`; empty while no fact has it."""
        return self._reader.partition(self.topic, partition).view().lineage

    def splits(
        self, partition: int, start: Offset, end: Offset, split_bytes: int, tier: Tier = Tier.PREFER_REMOTE
    ) -> list[PlannedSplit]:
        """Return that range, cut at about every ``split_bytes`` of log."""
        ranges = {(self.topic, partition): (start, end)}
        planned_ranges = planned(self._reader, ranges, isolation=self._isolation, tier=tier)
        return [split for each in planned_ranges for split, _ in each.cut(Groups(split_bytes, split_bytes))]

    def skipped(self, partition: int, start: Offset, end: Offset) -> list[Skipped]:
        """Return the accepted gaps within that range."""
        log = self._reader.partition(self.topic, partition)
        end = min(end, log.local_bounds().local_start)
        gaps = log.fresh_view().skipped(OffsetRange(start, Offset(end - 1))) if start < end else []
        return [Skipped(partition, gap.start, Offset(gap.end + 1)) for gap in gaps]

    def log_bytes(self, partition: int, start: Offset, end: Offset) -> int:
        """Return the approximate bytes of log in that range."""
        ranges = {(self.topic, partition): (start, end)}
        return sum(each.log_bytes for each in planned(self._reader, ranges, isolation=self._isolation))

    def read(self, split: PlannedSplit) -> Generator[pa.RecordBatch, None, None]:
        """Yield exactly the records of a split. Close it."""
        with self._reads([split]) as reads:
            yield from reads.records(split)

    def _sure_end(self, partition: int) -> Offset:
        """Return the offset up to which the lineage in a commit is surely that of the log that is read."""
        log = self._reader.partition(self.topic, partition)
        return log.sure_end(log.fresh_view(), log.local_bounds())

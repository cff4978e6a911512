"""The logs of several topics as one, for a table that has the records of all.

    source = 2^20 * the topic's place among them + the partition      a column, and the number in the table's place

A topic that was deleted, or created again, stops itself alone: its partitions wait, and its rows stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..fetch.planned_split import PlannedSplit, Skipped
from ..state.epochs import Lineage
from ..state.errors import CorruptData, UnknownTopic
from ..state.ids import TopicId
from ..state.offsets import Extent, Offset, TimestampMs
from .columns import SPAN
from .log import TopicLog
from .table_facts import TableFacts


class SeveralLogs(TopicLog):
    """``logs``: in the order of the facts' topics. Each partition has the number of its source."""

    def __init__(self, logs: Sequence[TopicLog], facts: TableFacts) -> None:
        """Raises InvalidRequest for a log that cannot be one of several."""
        self._logs, self._ids = logs, (facts.topic_id, *facts.more)
        self.topic, self.access = facts.topic, logs[0].access

    def topic_id(self) -> TopicId:
        return self._ids[0]

    def numbers(self) -> Iterator[int]:
        for at, log in enumerate(self._logs):
            try:
                count = log.partitions()
            except UnknownTopic:
                count = 1  # which is reported as gone
            yield from range(at * SPAN, at * SPAN + count)

    def is_tiered(self) -> bool:
        return any(
            self.lineage(number).last_epoch is not None for number in self.numbers() if not self._is_gone(number)
        )

    def number_of(self, topic: object, partition: int) -> int | None:
        return next((at * SPAN + partition for at, log in enumerate(self._logs) if log.topic == topic), None)

    def views(self) -> None:
        """Return None: a topic may be gone."""

    def extent(self, partition: int) -> Extent:
        log, number = self._of(partition)
        return log.extent(number)

    def lineage(self, partition: int) -> Lineage:
        log, number = self._of(partition)
        return log.lineage(number)

    def splits(self, partition: int, start: Offset, end: Offset, split_bytes: int) -> list[PlannedSplit]:
        log, number = self._of(partition)
        return log.splits(number, start, end, split_bytes)

    def skipped(self, partition: int, start: Offset, end: Offset) -> list[Skipped]:
        log, number = self._of(partition)
        return [gap._replace(partition=partition) for gap in log.skipped(number, start, end)]

    def copied_at(self, partition: int, offset: Offset) -> TimestampMs | None:
        log, number = self._of(partition)
        return log.copied_at(number, offset)

    def log_bytes(self, partition: int, start: Offset, end: Offset) -> int:
        log, number = self._of(partition)
        return log.log_bytes(number, start, end)

    def _of(self, source: int) -> tuple[TopicLog, int]:
        at, number = divmod(source, SPAN)
        if self._is_gone(source):
            raise CorruptData(
                "a topic of this table was deleted or made anew; its rows stay, and the other topics go on",
                topic=self._logs[at].topic,
                followed=self._ids[at],
            )
        return self._logs[at], number

    def _is_gone(self, source: int) -> bool:
        at = source // SPAN
        try:
            return self._logs[at].topic_id() != self._ids[at]
        except UnknownTopic:
            return True

"""The logs of several topics as one, for a table that has the records of all.

    source = 2^20 * the topic's place among them + the partition      a column, and the number in the table's place

A topic that was deleted, or created again, stops itself alone: its partitions wait, and its rows stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..app.opening.split_reads import LogAccess
from ..fetch.reader import LogReader
from ..state.errors import CorruptData, UnknownTopic
from ..state.ids import TopicId
from .columns import SPAN
from .log import TopicLog
from .table_facts import TableFacts


class SeveralLogs(TopicLog):
    """The log of the facts' topics, in their order. Each partition has the number of its source."""

    def __init__(self, reader: LogReader, facts: TableFacts, access: LogAccess, *, local: bool) -> None:
        super().__init__(reader, facts.topic, facts.isolation, access, local=local)
        self._topics, self._ids = facts.topics, (facts.topic_id, *facts.more)

    def topic_id(self) -> TopicId:
        return self._ids[0]

    def numbers(self) -> Iterator[int]:
        for at, topic in enumerate(self._topics):
            try:
                count = self._reader.topic(topic).partitions
            except UnknownTopic:
                count = 1  # which is reported as gone
            yield from range(at * SPAN, at * SPAN + count)

    def is_tiered(self) -> bool:
        return any(
            self.lineage(number).last_epoch is not None
            for number in self.numbers()
            if not self._is_gone(number // SPAN)
        )

    def number_of(self, topic: object, partition: int) -> int | None:
        return next((at * SPAN + partition for at, name in enumerate(self._topics) if name == topic), None)

    def views(self) -> None:
        """Return None: a topic may be gone."""

    def _topic_partition(self, number: int) -> tuple[str, int]:
        at, partition = divmod(number, SPAN)
        if self._is_gone(at):
            raise CorruptData(
                "a topic of this table was deleted or made anew; its rows stay, and the other topics go on",
                topic=self._topics[at],
                followed=self._ids[at],
            )
        return self._topics[at], partition

    def _is_gone(self, at: int) -> bool:
        try:
            return self._reader.topic(self._topics[at]).topic_id != self._ids[at]
        except UnknownTopic:
            return True

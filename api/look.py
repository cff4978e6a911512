"""An answer about topics is made from brokers and view, or from the view alone while no broker answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..fetch.piece import Fetched, LogicalBounds, LogicalTopic
from ..fetch.reader import LogReader
from ..state.errors import BrokerUnavailable, Unavailable
from ..state.partition_view import PartitionView
from ..state.routing import Isolation, Tier

R = TypeVar("R")


class Look:
    """The reads for one answer, by one thread. After a read found that no broker answers, later reads ask no broker."""

    def __init__(self, reader: LogReader, alone: bool, is_outage: Callable[[BaseException], bool]) -> None:
        """``alone``: no broker is asked. ``is_outage`` returns whether an error means that no broker answers."""
        self._reader, self._is_outage = reader, is_outage
        self.view_age_s: float | None = None
        """Age in seconds of the oldest view that was read without a broker; None if no view was."""
        self.alone = alone
        """Whether no broker is asked."""

    def topics(self) -> list[str]:
        return self._asked(self._reader.topics, self._reader.topics_without_brokers)

    def topic(self, name: str) -> LogicalTopic:
        return self._asked(lambda: self._reader.topic(name), lambda: self._reader.topic_without_brokers(name))

    def view(self, topic: str, partition: int) -> PartitionView:
        """Return the view of a partition. Raises UnknownTopic, and ViewBehind if the view is too old."""

        def alone() -> PartitionView:
            view, age_s = self._reader.view_without_brokers(topic, partition)
            self.view_age_s = max(age_s, self.view_age_s or 0.0)
            return view

        return self._asked(lambda: self._reader.view(topic, partition), alone)

    def bounds(self, topic: str, partition: int) -> LogicalBounds:
        """Return the bounds. Raises the errors of the reader, and BrokerUnavailable if no broker is asked."""
        if self.alone:
            raise BrokerUnavailable("no broker answers: what only the broker has is unknown")
        return self._reader.bounds(topic, partition)

    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, isolation: Isolation, tier: Tier
    ) -> Fetched:
        return self._reader.fetch(topic, partition, offset, max_bytes=max_bytes, isolation=isolation, tier=tier)

    def _asked(self, ask: Callable[[], R], alone: Callable[[], R]) -> R:
        if not self.alone:
            try:
                return ask()
            except Unavailable as error:
                if not self._is_outage(error):
                    raise
                self.alone = True
        return alone()

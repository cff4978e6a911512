"""Open a log reader of the partitions that the options choose: of both tiers, or of the bucket alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ..app.opening.connection import Connection
from ..app.opening.open import open_connection
from ..app.opening.partitions import find_partition
from ..app.operating.orders import issuer
from ..app.operating.reader_leases import take_leases
from ..broker.control import TopicDirectory
from ..fetch.reader import LogReader
from ..follower.follower import Follower
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..state.errors import AccessDenied, Unavailable, UnknownTopic
from ..state.ids import TopicIdPartition
from ..state.offsets import Extent
from .options import Assigned, Choice, SourceOptions, Subscribed
from .positions import TopicPartition

log = logging.getLogger("tierstate.spark")
TakeLeases = Callable[[Mapping[TopicPartition, Extent]], bool]


@dataclass(frozen=True, slots=True)
class OpenLog:
    """An open reader, and the partitions that the options choose: as they exist now, in ascending order.

    ``take_leases`` takes leases on the ranges that are about to be planned, for the duration ``tierstate.lease``. It
    returns whether it wrote a lease. If leases are not possible, it logs a warning and returns False.
    """

    reader: LogReader
    partitions: tuple[TopicPartition, ...]
    take_leases: TakeLeases


@contextmanager
def open_log(options: SourceOptions, clock: Clock, choice: Choice | None = None) -> Iterator[OpenLog]:
    """Open the log for the duration of the block. ``choice`` replaces the choice of the options.

    The view is in memory or, if it is set, in ``tierstate.state_dir``. It has every fact that was written before the
    call; a view from the bucket has the facts that the bucket has. Raises UnknownTopic, also if there is no tier-state
    topic. Also raises InvalidRequest, InvalidSettings, AccessDenied and Unavailable.
    """
    settings = options.settings
    with open_connection(settings, clock) as connection:
        broker = connection.control
        chosen = chosen_partitions(choice or options.choice, broker, settings.tier_state.topic)
        view = connection.view(chosen.values(), options.view_folder)

        def take(ranges: Mapping[TopicPartition, Extent]) -> bool:
            if not (options.lease and isinstance(connection, Connection) and isinstance(view, Follower)):
                return False  # a reader of the bucket alone writes no facts
            extents = {chosen[key]: extent for key, extent in ranges.items()}
            try:
                return bool(take_leases(connection, view, extents, f"spark {issuer()}", options.lease, RandomIds()))
            except (AccessDenied, Unavailable) as error:
                log.warning("no lease keeps what this query reads, should it expire meanwhile: %s", error)
                return False

        yield OpenLog(connection.reader(view), tuple(chosen), take)


class KeptLog:
    """The log of a stream, kept open between micro-batches so that a view of 10,000 segments is read only once.

    It is opened at the first use, and opened again if its view does not follow the facts of newly chosen partitions.
    Closing it is optional: the view's thread ends with the process, and the log is only read.
    """

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._settings, self._folder, self._clock = options.settings, options.view_folder, clock
        self._connection = open_connection(self._settings, clock)
        self._followed: set[TopicIdPartition] = set()
        self._reader: LogReader | None = None

    def chosen(self, choice: Choice) -> dict[TopicPartition, TopicIdPartition]:
        """Return the ids of the chosen partitions, as the broker has them now. Raises as `chosen_partitions`."""
        return chosen_partitions(choice, self.control, self._settings.tier_state.topic)

    @property
    def control(self) -> TopicDirectory:
        return self._connection.control

    def reader(self, partitions: Collection[TopicIdPartition]) -> LogReader:
        """Return a reader of these partitions. Raises as `open_log`."""
        if self._reader is None or not self._followed.issuperset(partitions):
            self.close()
            self._connection = open_connection(self._settings, self._clock)
            view = self._connection.view(partitions, self._folder)
            self._reader, self._followed = self._connection.reader(view), set(partitions)
        return self._reader

    def close(self) -> None:
        self._reader = None
        self._connection.close()


def _assigned(control: TopicDirectory, topic: str, partition: int) -> TopicIdPartition:
    try:
        return find_partition(control, topic, partition)
    except UnknownTopic as error:
        raise UnknownTopic(f"option assign: {error.message}", **error.facts) from error


def chosen_partitions(
    choice: Choice, control: TopicDirectory, tier_state_topic: str
) -> dict[TopicPartition, TopicIdPartition]:
    """Return the ids of the chosen partitions, in ascending order. ``assign`` can name a deleted topic by its topic id.

    A pattern chooses neither Kafka's internal topics nor the tier-state topic. Raises UnknownTopic for a named topic or
    partition that does not exist.
    """
    if isinstance(choice, Assigned):
        return {key: _assigned(control, *key) for key in choice.partitions}
    if isinstance(choice, Subscribed):
        names = sorted(choice.topics)
    else:
        topics = [topic.name for topic in control.topics() if not topic.internal and topic.name != tier_state_topic]
        names = sorted(name for name in topics if choice.pattern.fullmatch(name))
    described = {name: control.topic(name) for name in names}
    return {
        (name, each.partition): TopicIdPartition(topic.topic_id, each.partition)
        for name, topic in described.items()
        for each in topic.partitions
    }

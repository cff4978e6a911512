"""Options -> one reader of both tiers, over a view of just the partitions that are read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ..app.connection import Connection
from ..app.orders import issuer
from ..app.reader_leases import take_leases
from ..broker.control import BrokerControl
from ..fetch.gone import place_of
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..state.errors import AccessDenied, Unavailable, UnknownTopic
from ..state.ids import TopicIdPartition
from .options import Assigned, Choice, SourceOptions, Subscribed
from .positions import TopicPartition
from .ranges import Extent

log = logging.getLogger("tierstate.spark")
TakeLeases = Callable[[Mapping[TopicPartition, Extent]], bool]


@dataclass(frozen=True, slots=True)
class OpenLog:
    """``partitions``: what the options choose, as the broker has it now, in order.

    ``take_leases``: on these ranges, for ``tierstate.lease``, before they are planned; says whether any was written;
    where nobody may, the log says so.
    """

    reader: LogReader
    partitions: tuple[TopicPartition, ...]
    take_leases: TakeLeases


@contextmanager
def open_log(options: SourceOptions, clock: Clock, choice: Choice | None = None) -> Iterator[OpenLog]:
    """For as long as the block lasts; ``choice`` stands in for the options' own.

    The view is replayed into memory, or follows into ``tierstate.state_dir``; it has every fact of the moment of the
    call. Raises UnknownTopic (the tier-state topic too), InvalidRequest, InvalidSettings, AccessDenied, Unavailable.
    """
    settings = options.settings
    with Connection(settings, clock) as connection:
        broker = connection.broker.control
        chosen = chosen_partitions(choice or options.choice, broker, settings.tier_state.topic)
        view = connection.view(chosen.values(), options.view_folder)

        def take(ranges: Mapping[TopicPartition, Extent]) -> bool:
            if not options.lease:
                return False
            wanted = {chosen[key]: extent for key, extent in ranges.items()}
            try:
                return bool(take_leases(connection, view, wanted, f"spark {issuer()}", options.lease, RandomIds()))
            except (AccessDenied, Unavailable) as error:
                log.warning("no lease keeps what this query reads, should it expire meanwhile: %s", error)
                return False

        yield OpenLog(connection.reader(view), tuple(chosen), take)


def _assigned(control: BrokerControl, topic: str, partition: int) -> TopicIdPartition:
    try:
        return place_of(control, topic, partition)
    except UnknownTopic as error:
        raise UnknownTopic(f"option assign: {error.message}", **error.facts) from error


def chosen_partitions(
    choice: Choice, control: BrokerControl, tier_state_topic: str
) -> dict[TopicPartition, TopicIdPartition]:
    """By topic and partition, ascending; ``assign`` takes a topic that is gone by its topic id.

    A pattern chooses neither Kafka's own topics nor the tier-state topic. Raises UnknownTopic for a topic or partition
    that is named and not there.
    """
    if isinstance(choice, Assigned):
        return {key: _assigned(control, *key) for key in choice.partitions}
    if isinstance(choice, Subscribed):
        names = sorted(choice.topics)
    else:
        found = [topic.name for topic in control.topics() if not topic.internal and topic.name != tier_state_topic]
        names = sorted(name for name in found if choice.pattern.fullmatch(name))
    described = {name: control.topic(name) for name in names}
    return {
        (name, each.partition): TopicIdPartition(topic.topic_id, each.partition)
        for name, topic in described.items()
        for each in topic.partitions
    }

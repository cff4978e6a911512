"""Options -> one reader of both tiers, or of the bucket alone, over a view of just the partitions that are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..app.connection import open_connection
from ..broker.control import TopicDirectory
from ..fetch.gone import place_of
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..state.errors import UnknownTopic
from ..state.ids import TopicIdPartition
from .options import Assigned, Choice, SourceOptions, Subscribed
from .positions import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenLog:
    """``partitions``: what the options choose, as the broker has it now, in order."""

    reader: LogReader
    partitions: tuple[TopicPartition, ...]


@contextmanager
def open_log(options: SourceOptions, clock: Clock, choice: Choice | None = None) -> Iterator[OpenLog]:
    """For as long as the block lasts; ``choice`` stands in for the options' own.

    The view is replayed into memory, or follows into ``tierstate.state_dir``; it has every fact of the moment of the
    call. Raises UnknownTopic (the tier-state topic too), InvalidRequest, InvalidSettings, AccessDenied, Unavailable.
    """
    settings = options.settings
    with open_connection(settings, clock) as connection:
        broker = connection.control
        chosen = chosen_partitions(choice or options.choice, broker, settings.tier_state.topic)
        view = connection.view(chosen.values(), options.view_folder)
        yield OpenLog(connection.reader(view), tuple(chosen))


def _assigned(control: TopicDirectory, topic: str, partition: int) -> TopicIdPartition:
    try:
        return place_of(control, topic, partition)
    except UnknownTopic as error:
        raise UnknownTopic(f"option assign: {error.message}", **error.facts) from error


def chosen_partitions(
    choice: Choice, control: TopicDirectory, tier_state_topic: str
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

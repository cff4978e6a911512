"""Wiring of the driver: options -> one reader of both tiers, over a view of just the partitions that are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from ..broker.control import BrokerControl
from ..broker.open import open_broker
from ..broker.tier_topic_setup import TierTopicSpec, open_tier_topic
from ..fetch.gone import place_of
from ..fetch.open import open_reader
from ..fetch.reader import LogReader
from ..follower.open import open_view
from ..runtime.clock import Clock
from ..state.errors import UnknownTopic
from ..state.ids import TopicIdPartition
from ..state.keys import tier_partition_of
from ..storage.object_store import ObjectStore
from ..storage.open import open_store
from ..storage.segment.keyring import KeyRing
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
    call. Raises UnknownTopic (the tier-state topic too), InvalidRequest, AccessDenied, Unavailable.
    """
    with open_broker(options.kafka, clock) as broker:
        chosen = chosen_partitions(choice or options.choice, broker.control, options.tier_state_topic)
        # A reader can do without the promises that writers need of this topic: replicas and in-sync replicas.
        topic = open_tier_topic(options.kafka, TierTopicSpec(options.tier_state_topic, 1, 1))
        try:
            numbers = sorted({tier_partition_of(place, topic.mapped_partitions) for place in chosen.values()})
            cluster_id = broker.control.cluster().cluster_id
            view = open_view(
                topic,
                cluster_id,
                clock,
                state_dir=options.state_dir,
                tier_partitions=None if options.state_dir else numbers,  # what is kept on disk is kept whole
            )
            try:
                for number in numbers:
                    view.require_fresh(number, 0.0)
                store = open_object_store(options, clock)
                keys = open_key_ring(options)
                with closing(open_reader(view, broker, store, clock=clock, keys=keys)) as reader:
                    yield OpenLog(reader, tuple(chosen))
            finally:
                view.close()
        finally:
            topic.close()


def _assigned(control: BrokerControl, topic: str, partition: int) -> TopicIdPartition:
    try:
        return place_of(control, topic, partition)
    except UnknownTopic as error:
        raise UnknownTopic(f"option assign: {error.message}", **error.facts) from error


def open_object_store(options: SourceOptions, clock: Clock) -> ObjectStore:
    """Raises InvalidRequest, AccessDenied."""
    return open_store(options.store, endpoint=options.endpoint, region=options.region, clock=clock)


def open_key_ring(options: SourceOptions) -> KeyRing | None:
    """What opens encrypted segments. Raises InvalidRequest."""
    return None if options.keyring is None else KeyRing.load(options.keyring)


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

"""What commands open: settings in, ready objects out, closed in reverse order when the command ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .context import Context

if TYPE_CHECKING:
    from ..broker.control import BrokerControl
    from ..broker.open import Broker
    from ..broker.tier_topic import KafkaTierTopic
    from ..broker.tier_topic_setup import TierTopicSpec
    from ..follower.follower import Follower
    from ..runtime.listener import Listener
    from ..runtime.settings import Settings
    from ..state.ids import TopicIdPartition
    from ..state.object_keys import ObjectKeys
    from ..state.partition_view import PartitionView
    from ..state.routing import LocalBounds
    from ..storage.object_store import ObjectStore
    from ..storage.s3 import S3Options

SILENCE_S = 20.0
"""How long reading the tier-state topic may bring nothing before a command gives up."""


def tier_topic_spec(settings: Settings) -> TierTopicSpec:
    """What the settings ask of the tier-state topic."""
    from ..broker.tier_topic_setup import TierTopicSpec

    wanted = settings.tier_state
    return TierTopicSpec(wanted.topic, wanted.partitions, wanted.replication_factor)


def open_store_of(settings: Settings, listener: Listener | None = None, *, make: bool = False) -> ObjectStore:
    """The object store of the settings. ``make``: a folder that is not there is made. Raises InvalidSettings for half a
    pair of S3 keys.
    """
    from ..runtime.listener import ignore
    from ..storage.open import open_store

    wanted = settings.store
    return open_store(
        wanted.url,
        endpoint=wanted.endpoint or None,
        region=wanted.region or None,
        s3=s3_options_of(settings),
        listener=listener or ignore,
        make=make,
    )


def object_names(settings: Settings, cluster_id: str) -> ObjectKeys:
    """As agents with these settings name objects."""
    from ..state.object_keys import ObjectKeys

    return ObjectKeys.minting(settings.format.key_prefix, cluster_id, settings.format.salt_bits)


def s3_options_of(settings: Settings) -> S3Options:
    """Section ``[store]`` without its place. Raises InvalidSettings, InvalidRequest."""
    from ..state.errors import InvalidSettings
    from ..storage.s3 import S3Options

    wanted = settings.store
    if bool(wanted.access_key_id) != (wanted.secret_access_key is not None):
        raise InvalidSettings(["store.access_key_id, store.secret_access_key: both or neither"])
    secret = wanted.secret_access_key
    return S3Options(
        path_style=wanted.path_style,
        proxy=wanted.proxy or None,
        sse=wanted.sse,
        sse_kms_key_id=wanted.sse_kms_key_id or None,
        connect_timeout=wanted.connect_timeout,
        read_timeout=wanted.read_timeout,
        max_attempts=wanted.max_attempts,
        request_timeout=wanted.request_timeout,
        throttle_timeout=wanted.throttle_timeout,
        part_bytes=wanted.part_bytes,
        concurrency=wanted.upload_concurrency,
        credentials=(wanted.access_key_id, secret.get_secret_value()) if secret is not None else None,
    )


@contextmanager
def opened_broker(context: Context) -> Iterator[Broker]:
    """The cluster; nothing is connected before it is asked."""
    from ..broker.open import open_broker

    broker = open_broker(context.settings_with("kafka.bootstrap.servers").kafka)
    try:
        yield broker
    finally:
        broker.close()


def reachable(context: Context) -> Settings:
    """The settings, once a broker of theirs answers.

    Asked by ourselves before librdkafka is: it would go on for ten seconds, and its error names no address.
    """
    with opened_broker(context) as broker:
        broker.control.cluster()
    return context.settings


@contextmanager
def opened_topic(context: Context) -> Iterator[KafkaTierTopic]:
    """The tier-state topic, checked."""
    from ..broker.tier_topic_setup import open_tier_topic

    settings = reachable(context)
    topic = open_tier_topic(settings.kafka, tier_topic_spec(settings))
    try:
        yield topic
    finally:
        topic.close()


@contextmanager
def opened_view(context: Context, partitions: list[TopicIdPartition] | None = None) -> Iterator[Follower]:
    """A one-shot follower in memory, fresh: of the tier-state partitions these partitions map to (None: all)."""
    with opened_topic(context) as topic, following(context, topic, partitions) as follower:
        yield follower


@contextmanager
def following(
    context: Context, topic: KafkaTierTopic, partitions: list[TopicIdPartition] | None = None
) -> Iterator[Follower]:
    """`opened_view`, of a topic that is open already."""
    from ..follower.open import open_view
    from ..runtime.clock import SystemClock
    from ..state.keys import tier_partition_of

    mapped = topic.mapped_partitions
    wanted = sorted({tier_partition_of(each, mapped) for each in partitions or ()}) or list(range(mapped))
    follower = open_view(topic, "", SystemClock(), tier_partitions=wanted)
    try:
        with context.output.progress("reading the tier-state topic", len(wanted)) as advance:
            for number in wanted:
                _catch_up(follower, number, wanted)
                advance(1)
        yield follower
    finally:
        follower.close()


def view_now(follower: Follower, partition: TopicIdPartition) -> PartitionView:
    """Up to now."""
    follower.require_fresh(follower.tier_partition(partition), 0, SILENCE_S)
    return follower.partition(partition)


def both_tiers_now(
    broker: BrokerControl, follower: Follower, topic: str | None, partition: TopicIdPartition
) -> tuple[LocalBounds | None, PartitionView]:
    """What the broker has, None where it does not answer or the topic is gone (None); then the view, up to after that.

    In this order: every trim that the bounds show is in the view, so nothing that it took looks missing, or as if
    somebody else had cut it.
    """
    from ..state.errors import TierstateError

    bounds = None
    if topic is not None:
        with suppress(TierstateError):
            bounds = broker.bounds(topic, partition.partition)
    return bounds, view_now(follower, partition)


def _catch_up(follower: Follower, number: int, wanted: list[int]) -> None:
    """Until the view has the end of this partition, however long that takes, as long as it gets on."""
    from ..state.errors import ViewBehind

    while True:
        before = [follower.store.position(each) for each in wanted]
        try:
            return follower.require_fresh(number, 0, SILENCE_S)
        except ViewBehind:
            if [follower.store.position(each) for each in wanted] == before:
                raise


def partitions_meant(broker: Broker, topic: str, partition: int | None) -> list[TopicIdPartition] | None:
    """As `user_partitions`, and of a topic that is gone by its topic id; None: all of one that is gone, and only facts
    tell which there are. Raises UnknownTopic.
    """
    from ..fetch.gone import gone_id
    from ..state.errors import UnknownTopic
    from ..state.ids import TopicIdPartition

    try:
        return user_partitions(broker, topic, partition)
    except UnknownTopic:
        found = gone_id(broker.control, topic)
        if found is None:
            raise
        return None if partition is None else [TopicIdPartition(found, partition)]


def user_partitions(broker: Broker, topic: str, partition: int | None) -> list[TopicIdPartition]:
    """The partitions of a topic by its name, or one of them. Raises UnknownTopic."""
    from ..state.errors import UnknownTopic
    from ..state.ids import TopicIdPartition

    described = broker.control.topic(topic)
    numbers = [each.partition for each in described.partitions]
    if partition is not None and partition not in numbers:
        raise UnknownTopic("no such partition", topic=topic, partition=partition, partitions=len(numbers))
    return [TopicIdPartition(described.topic_id, each) for each in numbers if partition in (None, each)]

"""One cluster and its remote tier, as every entry point opens them: command line, Python, Spark, gateway, agent.

Each part is opened once, at its first use, and all parts are closed in reverse order. Modules are imported at the first
use, too: a wrong topic name is reported without spending a second on imports for reading the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import Listener, ignore
from ...runtime.settings import Settings, require
from ...state.errors import InvalidRequest, ViewBehind
from ...state.ids import TopicIdPartition
from ...state.keys import tier_partition_of
from ...state.object_keys import ObjectKeys
from ...state.partition_view import PartitionView
from ...state.view import TierView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...broker.control import BrokerControl
    from ...broker.kafka_access import KafkaAccess
    from ...broker.open import Broker
    from ...broker.tier_topic import KafkaTierTopic
    from ...broker.tier_topic_setup import TierTopicSpec
    from ...fetch.reader import LogReader
    from ...follower.followed_store import FollowedStore
    from ...follower.follower import Follower
    from ...follower.view_identity import ViewIdentity
    from ...storage.object_store import ObjectStore
    from ...storage.segment.keyring import KeyRingFile
    from .growing_view import GrowingView

SILENCE_S = 20.0
"""Seconds without progress after which reading the tier-state topic is abandoned."""

POLL_S = 0.02
"""Poll interval in seconds at the end of the topic. It is short because closing a connection waits for the poll."""

BUCKET = "bucket"
"""Value of ``view.source``: no broker is queried (`bucket_connection.py`)."""

KIP405 = "kip405"
"""Value of ``view.source``: Kafka tiers the topics itself (`kip405_connection.py`)."""

BROKER, STORE = "kafka.bootstrap.servers", "store.url"
"""The settings that are required to open the broker and the store."""

FOR_READERS: Mapping[str, object] = {"tier_state.partitions": 1, "tier_state.replication_factor": 1}
"""Settings for readers: they do not need the replicas that writers require of the tier-state topic."""

Advance = Callable[[int], None]
"""A function that reports how many more units of the work are done."""


class ShowProgress(Protocol):
    """Shows the progress of some work. Takes a label and the total amount of work (None: unknown)."""

    def __call__(self, label: str, total: int | None = None, /) -> AbstractContextManager[Advance]: ...


@contextmanager
def no_progress(label: str, total: int | None = None, /) -> Iterator[Advance]:
    """A `ShowProgress` that shows nothing."""
    yield lambda amount: None


class _Closeable(Protocol):
    def close(self) -> None: ...


Closed = TypeVar("Closed", bound=_Closeable)


class Opened(ExitStack):
    """Parts that are closed together, in reverse order of their opening. Use it as a context manager."""

    def _keep(self, part: Closed) -> Closed:
        return self.enter_context(closing(part))


class Connection(Opened):
    """A cluster and its remote tier. Each property opens its part at the first use. Use it as a context manager.

    Opening a part raises InvalidSettings if its settings are missing or incomplete, and the errors of the part itself.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        listener: Listener = ignore,
        progress: ShowProgress = no_progress,
    ) -> None:
        super().__init__()
        self.settings, self.clock, self.listener, self.progress = settings, clock or SystemClock(), listener, progress

    @cached_property
    def kafka(self) -> KafkaAccess:
        """Return the access to the cluster, with the current secrets."""
        from ...broker.kafka_access import KafkaAccess

        live = {key.removeprefix("kafka."): each for key, each in self.settings.live.items()}
        names = live.keys() & self.settings.kafka.keys()
        return KafkaAccess(self.settings.kafka, {name: live[name] for name in names}, self.listener)

    @cached_property
    def broker(self) -> Broker:
        """Return the cluster. Nothing is connected before the first request."""
        from ...broker.open import open_broker

        refuse_bucket(self.settings)
        require(self.settings, BROKER)
        return self._keep(open_broker(self.kafka, self.clock))

    @property
    def control(self) -> BrokerControl:
        """Return the broker's administrative requests: cluster, topics, configurations, bounds, groups."""
        return self.broker.control

    @cached_property
    def cluster_id(self) -> str:
        """Return the cluster's id, requested from a broker once. Raises BrokerUnavailable."""
        return self.broker.control.cluster().cluster_id

    @property
    def reachable(self) -> Settings:
        """Return the settings after one of their brokers has answered. Raises BrokerUnavailable.

        This request precedes those of librdkafka, which retries for ten seconds and names no address in its error.
        """
        _ = self.cluster_id
        return self.settings

    @cached_property
    def topic(self) -> KafkaTierTopic:
        """Return the tier-state topic, checked. Raises the errors of `open_tier_topic`."""
        from ...broker.tier_topic_setup import open_tier_topic

        refuse_kip405(self.settings)
        _ = self.cluster_id  # before librdkafka connects: see `reachable`
        return self._keep(open_tier_topic(self.kafka, tier_topic_spec(self.settings)))

    @cached_property
    def store(self) -> ObjectStore:
        """Return the store of all objects: that of the settings, with those of ``store.topics``."""
        from .moved import place_of

        return self._keep(place_of(self.settings).with_topics(self.followed, self.clock, self.listener))

    @property
    def stores(self) -> tuple[ObjectStore, ...]:
        """Return the stores that `store` consists of, the default one first."""
        stores: tuple[ObjectStore, ...] = getattr(self.store, "stores", (self.store,))
        return stores

    def holders(self, key: str) -> tuple[ObjectStore, ...]:
        """Return those of `stores` that may have the object with this key."""
        of_key: Callable[[str], tuple[ObjectStore, ...]] | None = getattr(self.store, "holders", None)
        return self.stores if of_key is None else of_key(key)

    @cached_property
    def followed(self) -> FollowedStore:
        """Return the store, with its methods for a move to another store."""
        from .moved import place_of

        require(self.settings, STORE)
        return self._keep(place_of(self.settings).open(self.clock, self.listener))

    @cached_property
    def keys(self) -> KeyRingFile | None:
        """Return the key ring that decrypts segments, or None if no key ring is set. Raises InvalidRequest."""
        ring = self.settings.encryption.keyring
        if not ring:
            return None
        from ...storage.segment.keyring import KeyRingFile

        return KeyRingFile(ring, self.listener)

    @cached_property
    def names(self) -> ObjectKeys:
        """Return the naming of objects that agents with these settings use."""
        form = self.settings.format
        return ObjectKeys.minting(form.key_prefix, self.cluster_id, form.salt_bits)

    @property
    def topic_identity(self) -> ViewIdentity:
        """Return the identity of a view of this tier-state topic, with the first history: the store is not read."""
        from ...follower.view_identity import ViewIdentity

        return ViewIdentity(self.cluster_id, self.topic.topic_id, self.topic.mapped_partitions)

    @cached_property
    def identity(self) -> ViewIdentity:
        """Return `topic_identity` with the newest history, for archive and checkpoints. Raises store errors."""
        from ...follower.archives import newest_history

        return replace(self.topic_identity, history=newest_history(self.store, self.topic.topic_id))

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: Path | None = None) -> Follower:
        """Return a follower with every current fact of ``partitions`` (None: of all partitions).

        Without ``folder`` the view is in memory and has only the tier-state partitions that hold these facts. With
        ``folder`` the view is in ``folder``/view and has all of them; the next call continues there. Raises ViewBehind
        if reading makes no progress.
        """
        return self._following(tier_partitions(self.topic.mapped_partitions, partitions), folder)

    def growing_view(self) -> GrowingView:
        """Return an empty view in memory, which reads only the tier-state partitions that are requested."""
        from .growing_view import GrowingView

        return GrowingView(self.topic.mapped_partitions, self._following)

    def _following(self, numbers: list[int], folder: Path | None = None) -> Follower:
        from ...follower.following import Following
        from ...follower.open import open_view

        follower = self._keep(
            open_view(
                self.topic,
                "" if folder is None else self.cluster_id,
                self.clock,
                Following(tier_partitions=None if folder else numbers, poll_s=POLL_S),
                state_dir=folder,
            )
        )
        with self.progress("reading the tier-state topic", len(numbers)) as advance:
            for number in numbers:
                _catch_up(follower, number, numbers)
                advance(1)
        return follower

    def reader(self, view: TierView) -> LogReader:
        """Return a reader of both tiers that routes reads by ``view``."""
        from ...fetch.open import Reading, open_reader

        reading = Reading(self.settings.cache, self.settings.state_dir, self.keys, self.names)
        return self._keep(open_reader(view, self.broker, self.store, self.clock, reading, self.listener))


class ConnectionParts(Opened):
    """The base of connections whose views are not the tier-state topic's. ``parts`` opens and closes their parts."""

    def __init__(self, parts: Connection) -> None:
        super().__init__()
        self.parts = self._keep(parts)
        self.settings, self.clock, self.progress = parts.settings, parts.clock, parts.progress

    @property
    def store(self) -> ObjectStore:
        return self.parts.store

    @property
    def keys(self) -> KeyRingFile | None:
        return self.parts.keys


def refuse_bucket(settings: Settings) -> None:
    """Raise InvalidRequest if ``view.source`` is the bucket: no broker may be queried then."""
    if settings.view.source == BUCKET:
        raise InvalidRequest("view.source=bucket: no broker is asked, and this needs one")


def refuse_kip405(settings: Settings) -> None:
    """Raise InvalidRequest if Kafka tiers the topics itself: it writes and deletes, and tierstate only reads."""
    if settings.view.source == KIP405:
        raise InvalidRequest(
            "view.source=kip405: Kafka tiers these topics itself, tierstate only reads them, and this needs the "
            "tier-state topic of agents"
        )


def tier_topic_spec(settings: Settings) -> TierTopicSpec:
    from ...broker.tier_topic_setup import TierTopicSpec

    settings_of_topic = settings.tier_state
    return TierTopicSpec(settings_of_topic.topic, settings_of_topic.partitions, settings_of_topic.replication_factor)


def open_store_of(
    settings: Settings, clock: Clock | None = None, listener: Listener = ignore, *, make: bool = False
) -> ObjectStore:
    """Return the object store of the settings. ``make``: create the folder of a file store if it is missing."""
    from ...storage.open import open_store
    from .moved import store_options

    require(settings, STORE)
    return open_store(settings.store.url, store_options(settings), clock=clock, listener=listener, make=make)


def tier_partitions(mapped: int, partitions: Iterable[TopicIdPartition] | None) -> list[int]:
    """Return, in ascending order, the tier-state partitions with the facts of ``partitions`` (None: of all)."""
    if partitions is None:
        return list(range(mapped))
    return sorted({tier_partition_of(each, mapped) for each in partitions})


def view_now(follower: Follower, partition: TopicIdPartition) -> PartitionView:
    """Return the view of a partition after the follower has caught up with the topic."""
    follower.require_fresh(follower.tier_partition(partition), 0, SILENCE_S)
    return follower.partition(partition)


def _catch_up(follower: Follower, number: int, numbers: list[int]) -> None:
    """Wait until the view has read tier-state partition ``number``. Raises ViewBehind once there is no progress."""
    while True:
        before = [follower.store.position(each) for each in numbers]
        try:
            return follower.require_fresh(number, 0, SILENCE_S)
        except ViewBehind:
            if [follower.store.position(each) for each in numbers] == before:
                raise

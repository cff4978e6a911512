"""One cluster and its remote tier, as every entry point opens them: command line, Python, Spark, gateway, agent.

Each part is opened once, when it is first asked for, and all are closed in reverse order. Modules are imported then,
too: a wrong topic name is reported before a second is spent on importing what would read the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ...runtime.clock import SystemClock
from ...runtime.listener import ignore
from ...runtime.settings import require
from ...state.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...broker.control import BrokerControl
    from ...broker.kafka_access import KafkaAccess
    from ...broker.open import Broker
    from ...broker.tier_topic import KafkaTierTopic
    from ...broker.tier_topic_setup import TierTopicSpec
    from ...fetch.reader import LogReader
    from ...follower.follower import Follower
    from ...follower.view_identity import ViewIdentity
    from ...runtime.clock import Clock
    from ...runtime.listener import Listener
    from ...runtime.settings import Settings
    from ...state.ids import TopicIdPartition
    from ...state.object_keys import ObjectKeys
    from ...state.partition_view import PartitionView
    from ...state.view import TierView
    from ...storage.object_store import ObjectStore
    from ...storage.options import StoreOptions
    from ...storage.segment.keyring_file import KeyRingFile
    from .growing_view import GrowingView

SILENCE_S = 20.0
"""How long reading the tier-state topic may bring nothing before it is given up."""

POLL_S = 0.02
"""Poll interval at the tail of a view: a connection is often closed soon, and closing waits for the poll to end."""

BUCKET = "bucket"
"""Value of ``view.source``: no broker is asked (`bucket_connection.py`)."""

BROKER, STORE = "kafka.bootstrap.servers", "store.url"
"""The settings that the broker and the store cannot be opened without."""

FOR_READERS: Mapping[str, object] = {"tier_state.partitions": 1, "tier_state.replication_factor": 1}
"""Readers do not need what writers require of the tier-state topic: replicas and in-sync replicas."""

Advance = Callable[[int], None]
"""Reports that so many more units of the work are done."""


class ShowProgress(Protocol):
    """Shows how far work has come: takes a label and the amount of work (None: unknown)."""

    def __call__(self, label: str, total: int | None = None, /) -> AbstractContextManager[Advance]: ...


@contextmanager
def no_progress(label: str, total: int | None = None, /) -> Iterator[Advance]:
    """A `ShowProgress` that shows nothing."""
    yield lambda amount: None


class Connection:
    """Its properties open the parts; nothing is connected before it is asked for. Use as a context manager.

    Raises InvalidSettings for a part whose settings are missing or half given, and what opening the part raises.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        listener: Listener = ignore,
        progress: ShowProgress = no_progress,
    ) -> None:
        self.settings, self.clock, self.listener, self.progress = settings, clock or SystemClock(), listener, progress
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all parts, in reverse order of their opening."""
        self._opened.close()

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
        """Return the part of the broker that answers about the cluster itself."""
        return self.broker.control

    @cached_property
    def cluster_id(self) -> str:
        """Return the id that a broker answered, once. Raises BrokerUnavailable."""
        return self.broker.control.cluster().cluster_id

    @property
    def reachable(self) -> Settings:
        """Return the settings after one of their brokers has answered. Raises BrokerUnavailable.

        We ask before librdkafka does: it would go on trying for ten seconds, and its error names no address.
        """
        _ = self.cluster_id
        return self.settings

    @cached_property
    def topic(self) -> KafkaTierTopic:
        """Return the tier-state topic, checked. Raises what `open_tier_topic` raises."""
        from ...broker.tier_topic_setup import open_tier_topic

        _ = self.cluster_id  # asked by ourselves before librdkafka asks: see `reachable`
        return self._keep(open_tier_topic(self.kafka, tier_topic_spec(self.settings)))

    @cached_property
    def store(self) -> ObjectStore:
        return self._keep(open_store_of(self.settings, self.clock, self.listener))

    @cached_property
    def keys(self) -> KeyRingFile | None:
        """Return the key ring that opens encrypted segments; None: none is set. Raises InvalidRequest."""
        ring = self.settings.encryption.keyring
        if not ring:
            return None
        from ...storage.segment.keyring_file import KeyRingFile

        return KeyRingFile(ring, self.listener)

    @cached_property
    def names(self) -> ObjectKeys:
        """Return the object names as agents with these settings choose them."""
        from ...state.object_keys import ObjectKeys

        form = self.settings.format
        return ObjectKeys.minting(form.key_prefix, self.cluster_id, form.salt_bits)

    @property
    def topic_identity(self) -> ViewIdentity:
        """Return the identity of the view that this tier-state topic makes, whichever history counts."""
        from ...follower.view_identity import ViewIdentity

        return ViewIdentity(self.cluster_id, self.topic.topic_id, self.topic.mapped_partitions)

    @cached_property
    def identity(self) -> ViewIdentity:
        """Return `topic_identity` with the history that counts, for archive and checkpoints. Raises store errors."""
        from ...follower.histories import newest_history

        return replace(self.topic_identity, history=newest_history(self.store, self.topic.topic_id))

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: Path | None = None) -> Follower:
        """Return a follower that has every current fact of the tier-state partitions that hold these (None: all).

        It is in memory and has these alone; with a ``folder`` it has all of them, in ``folder``/view, and the next call
        continues there. Raises ViewBehind when reading makes no progress.
        """
        return self._following(tier_partitions(self.topic.mapped_partitions, partitions), folder)

    def growing_view(self) -> GrowingView:
        """Return a view in memory that has read nothing yet, and reads only the tier-state partitions asked for."""
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
        """Return a reader of both tiers, by this view."""
        from ...fetch.open import Reading, open_reader

        reading = Reading(self.settings.cache, self.settings.state_dir, self.keys, self.names)
        return self._keep(open_reader(view, self.broker, self.store, self.clock, reading, self.listener))

    def _keep(self, part: Closed) -> Closed:
        self._opened.enter_context(closing(part))
        return part


class _Closeable(Protocol):
    def close(self) -> None: ...


Closed = TypeVar("Closed", bound=_Closeable)


def refuse_bucket(settings: Settings) -> None:
    """Raise InvalidRequest where the settings say that no broker is asked."""
    if settings.view.source == BUCKET:
        raise InvalidRequest("view.source=bucket: no broker is asked, and this needs one")


def tier_topic_spec(settings: Settings) -> TierTopicSpec:
    """Return what the settings require of the tier-state topic."""
    from ...broker.tier_topic_setup import TierTopicSpec

    settings_of_topic = settings.tier_state
    return TierTopicSpec(settings_of_topic.topic, settings_of_topic.partitions, settings_of_topic.replication_factor)


def open_store_of(
    settings: Settings, clock: Clock | None = None, listener: Listener = ignore, *, make: bool = False
) -> ObjectStore:
    """Return the object store of the settings. ``make``: a missing folder is created."""
    from ...storage.open import open_store

    require(settings, STORE)
    return open_store(settings.store.url, store_options(settings), clock=clock, listener=listener, make=make)


def store_options(settings: Settings) -> StoreOptions:
    """Return section ``[store]`` without its URL. Raises InvalidRequest, and InvalidSettings for half a key pair."""
    from ...state.errors import InvalidSettings
    from ...storage.options import StoreOptions

    section = settings.store
    if bool(section.access_key_id) != (section.secret_access_key is not None):
        raise InvalidSettings(["store.access_key_id, store.secret_access_key: both or neither"])
    secret = section.secret_access_key
    return StoreOptions(
        endpoint=section.endpoint or None,
        region=section.region or None,
        path_style=section.path_style,
        proxy=section.proxy or None,
        sse=section.sse,
        sse_kms_key_id=section.sse_kms_key_id or None,
        connect_timeout=section.connect_timeout,
        read_timeout=section.read_timeout,
        max_attempts=section.max_attempts,
        request_timeout=section.request_timeout,
        throttle_timeout=section.throttle_timeout,
        part_bytes=section.part_bytes,
        concurrency=section.upload_concurrency,
        credentials=(
            None
            if secret is None
            else (
                settings.live.get("store.access_key_id", section.access_key_id),
                settings.live.get("store.secret_access_key", secret.get_secret_value()),
            )
        ),
    )


def tier_partitions(mapped: int, partitions: Iterable[TopicIdPartition] | None) -> list[int]:
    """Return the tier-state partitions that hold the facts of these partitions; None: of all partitions."""
    from ...state.keys import tier_partition_of

    if partitions is None:
        return list(range(mapped))
    return sorted({tier_partition_of(each, mapped) for each in partitions})


def view_now(follower: Follower, partition: TopicIdPartition) -> PartitionView:
    """Return the partition's view after the view has caught up with the topic."""
    follower.require_fresh(follower.tier_partition(partition), 0, SILENCE_S)
    return follower.partition(partition)


def _catch_up(follower: Follower, number: int, numbers: list[int]) -> None:
    """Wait until the view has the end of this partition, however long, as long as reading makes progress."""
    from ...state.errors import ViewBehind

    while True:
        before = [follower.store.position(each) for each in numbers]
        try:
            return follower.require_fresh(number, 0, SILENCE_S)
        except ViewBehind:
            if [follower.store.position(each) for each in numbers] == before:
                raise

"""One cluster and its remote tier, as every face opens them: the command line, Python, Spark, the gateway, an agent.

Each part is opened when it is first asked for, once, and all are closed in reverse order. Modules are imported then,
too: a wrong name of a topic is said before a second is spent on what would read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from ..runtime.clock import SystemClock
from ..runtime.listener import ignore
from ..runtime.settings import require
from ..state.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..broker.control import BrokerControl
    from ..broker.kafka_access import KafkaAccess
    from ..broker.open import Broker
    from ..broker.tier_topic import KafkaTierTopic
    from ..broker.tier_topic_setup import TierTopicSpec
    from ..fetch.reader import LogReader
    from ..follower.follower import Follower
    from ..follower.view_identity import ViewIdentity
    from ..runtime.clock import Clock
    from ..runtime.listener import Listener
    from ..runtime.settings import Settings
    from ..state.ids import TopicIdPartition
    from ..state.object_keys import ObjectKeys
    from ..state.partition_view import PartitionView
    from ..state.view import TierView
    from ..storage.object_store import ObjectStore
    from ..storage.options import StoreOptions
    from ..storage.segment.keyring_file import KeyRingFile
    from .bucket_connection import BucketConnection, ViewAge
    from .growing_view import GrowingView

SILENCE_S = 20.0
"""How long reading the tier-state topic may bring nothing before it is given up."""

POLL_S = 0.02
"""Of the tail of a view: who opens a connection closes it soon, and does not wait for a poll to end."""

BUCKET = "bucket"
"""Of ``view.source``: no broker is asked (`bucket_connection.py`)."""

BROKER, STORE = "kafka.bootstrap.servers", "store.url"
"""The settings without which there is no such part."""

FOR_READERS: Mapping[str, object] = {"tier_state.partitions": 1, "tier_state.replication_factor": 1}
"""A reader can do without the promises that writers need of the tier-state topic: replicas and in-sync replicas."""

Advance = Callable[[int], None]
"""Tells that so much more is done."""


class ShowProgress(Protocol):
    """Shows how long work gets on: a label, and how much there is to do; None: unknown."""

    def __call__(self, label: str, total: int | None = None, /) -> AbstractContextManager[Advance]: ...


@contextmanager
def no_progress(label: str, total: int | None = None, /) -> Iterator[Advance]:
    """A `ShowProgress` that nobody watches."""
    yield lambda amount: None


class Connection:
    """What is opened lies in the properties; nothing is connected before it is asked. Use as a context manager.

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
        """The last opened first."""
        self._opened.close()

    @cached_property
    def kafka(self) -> KafkaAccess:
        """What reaches the cluster, with the secrets of now."""
        from ..broker.kafka_access import KafkaAccess

        live = {key.removeprefix("kafka."): each for key, each in self.settings.live.items()}
        names = live.keys() & self.settings.kafka.keys()
        return KafkaAccess(self.settings.kafka, {name: live[name] for name in names}, self.listener)

    @cached_property
    def broker(self) -> Broker:
        """The cluster. Nothing is connected before something is asked of it."""
        from ..broker.open import open_broker

        refuse_bucket(self.settings)
        require(self.settings, BROKER)
        return self._keep(open_broker(self.kafka, self.clock))

    @property
    def control(self) -> BrokerControl:
        """What the cluster says of itself."""
        return self.broker.control

    @cached_property
    def cluster_id(self) -> str:
        """Asked of the broker, once. Raises BrokerUnavailable."""
        return self.broker.control.cluster().cluster_id

    @property
    def reachable(self) -> Settings:
        """The settings, once a broker of theirs has answered. Raises BrokerUnavailable.

        Asked by ourselves before librdkafka is: it would go on for ten seconds, and its error names no address.
        """
        _ = self.cluster_id
        return self.settings

    @cached_property
    def topic(self) -> KafkaTierTopic:
        """The tier-state topic, checked. Raises what `open_tier_topic` does."""
        from ..broker.tier_topic_setup import open_tier_topic

        _ = self.cluster_id  # by ourselves before librdkafka is: see `reachable`
        return self._keep(open_tier_topic(self.kafka, tier_topic_spec(self.settings)))

    @cached_property
    def store(self) -> ObjectStore:
        return self._keep(open_store_of(self.settings, self.clock, self.listener))

    @cached_property
    def keys(self) -> KeyRingFile | None:
        """What opens encrypted segments. Raises InvalidRequest."""
        ring = self.settings.encryption.keyring
        if not ring:
            return None
        from ..storage.segment.keyring_file import KeyRingFile

        return KeyRingFile(ring, self.listener)

    @cached_property
    def names(self) -> ObjectKeys:
        """As agents with these settings name objects."""
        from ..state.object_keys import ObjectKeys

        form = self.settings.format
        return ObjectKeys.minting(form.key_prefix, self.cluster_id, form.salt_bits)

    @property
    def topic_identity(self) -> ViewIdentity:
        """Of the tier-state topic: whose view it makes, whichever history counts."""
        from ..follower.view_identity import ViewIdentity

        return ViewIdentity(self.cluster_id, self.topic.topic_id, self.topic.mapped_partitions)

    @cached_property
    def identity(self) -> ViewIdentity:
        """`topic_identity`, of the history that counts: whose archive and checkpoints. Raises what the store does."""
        from ..follower.histories import newest_history

        return replace(self.topic_identity, history=newest_history(self.store, self.topic.topic_id))

    def view(self, partitions: Iterable[TopicIdPartition] | None = None, folder: Path | None = None) -> Follower:
        """A follower that has every fact of now, of the tier-state partitions these map to (None: all).

        In memory and of these alone; or of all of them in ``folder``/view, where the next one goes on from.
        Raises ViewBehind when it does not get on.
        """
        return self._following(tier_partitions(self.topic.mapped_partitions, partitions), folder)

    def growing_view(self) -> GrowingView:
        """In memory: nothing is read yet, and no more of the tier-state topic than what is asked about."""
        from .growing_view import GrowingView

        return GrowingView(self.topic.mapped_partitions, self._following)

    def _following(self, wanted: list[int], folder: Path | None = None) -> Follower:
        from ..follower.following import Following
        from ..follower.open import open_view

        follower = self._keep(
            open_view(
                self.topic,
                "" if folder is None else self.cluster_id,
                self.clock,
                Following(tier_partitions=None if folder else wanted, poll_s=POLL_S),
                state_dir=folder,
            )
        )
        with self.progress("reading the tier-state topic", len(wanted)) as advance:
            for number in wanted:
                _catch_up(follower, number, wanted)
                advance(1)
        return follower

    def reader(self, view: TierView) -> LogReader:
        """Of both tiers, by this view."""
        from ..fetch.open import Reading, open_reader

        reading = Reading(self.settings.cache, self.settings.state_dir, self.keys, self.names)
        return self._keep(open_reader(view, self.broker, self.store, self.clock, reading, self.listener))

    def _keep(self, part: Closed) -> Closed:
        self._opened.enter_context(closing(part))
        return part


class _Closeable(Protocol):
    def close(self) -> None: ...


Closed = TypeVar("Closed", bound=_Closeable)


def open_connection(
    settings: Settings,
    clock: Clock | None = None,
    *,
    listener: Listener = ignore,
    progress: ShowProgress = no_progress,
    tell: Callable[[ViewAge], None] | None = None,
) -> Connection | BucketConnection:
    """For who only reads, as ``view.source`` says: the cluster and its remote tier, or the bucket alone.

    ``tell``: how old the bucket's view is, before anything is read by it; None: into Python's own log. Raises
    InvalidRequest for a past that no topic has.
    """
    view = settings.view
    if view.source != BUCKET:
        if view.as_of or view.topic_id or view.history is not None:
            raise InvalidRequest(
                "view.as_of, view.topic_id and view.history choose among what a bucket keeps: --source bucket is needed"
                " with them (view.source)"
            )
        return Connection(settings, clock, listener=listener, progress=progress)
    from .bucket_connection import BucketConnection, to_log

    return BucketConnection(settings, clock, listener=listener, progress=progress, tell=tell or to_log)


def refuse_bucket(settings: Settings) -> None:
    """Raises InvalidRequest where the settings say that no broker is asked."""
    if settings.view.source == BUCKET:
        raise InvalidRequest("view.source=bucket: no broker is asked, and this needs one")


def tier_topic_spec(settings: Settings) -> TierTopicSpec:
    """What the settings ask of the tier-state topic."""
    from ..broker.tier_topic_setup import TierTopicSpec

    wanted = settings.tier_state
    return TierTopicSpec(wanted.topic, wanted.partitions, wanted.replication_factor)


def open_store_of(
    settings: Settings, clock: Clock | None = None, listener: Listener = ignore, *, make: bool = False
) -> ObjectStore:
    """The object store of the settings. ``make``: a folder that is not there is made."""
    from ..storage.open import open_store

    require(settings, STORE)
    return open_store(settings.store.url, store_options(settings), clock=clock, listener=listener, make=make)


def store_options(settings: Settings) -> StoreOptions:
    """Section ``[store]`` without its URL. Raises InvalidSettings for half a key pair, InvalidRequest."""
    from ..state.errors import InvalidSettings
    from ..storage.options import StoreOptions

    wanted = settings.store
    if bool(wanted.access_key_id) != (wanted.secret_access_key is not None):
        raise InvalidSettings(["store.access_key_id, store.secret_access_key: both or neither"])
    secret = wanted.secret_access_key
    return StoreOptions(
        endpoint=wanted.endpoint or None,
        region=wanted.region or None,
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
        credentials=(
            None
            if secret is None
            else (
                settings.live.get("store.access_key_id", wanted.access_key_id),
                settings.live.get("store.secret_access_key", secret.get_secret_value()),
            )
        ),
    )


def tier_partitions(mapped: int, partitions: Iterable[TopicIdPartition] | None) -> list[int]:
    """Where the facts of these partitions are; None: of all."""
    from ..state.keys import tier_partition_of

    if partitions is None:
        return list(range(mapped))
    return sorted({tier_partition_of(each, mapped) for each in partitions})


def view_now(follower: Follower, partition: TopicIdPartition) -> PartitionView:
    """Up to now."""
    follower.require_fresh(follower.tier_partition(partition), 0, SILENCE_S)
    return follower.partition(partition)


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

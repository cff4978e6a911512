"""The parts of a process that reads and serves: a view, a reader of both tiers, a management port, and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from ...broker.broker_watch import BrokerWatch
from ...broker.kafka_access import KafkaAccess
from ...broker.open import Broker
from ...fetch.open import add_cache_gauges, make_room
from ...fetch.reader import LogReader
from ...follower.following import Following
from ...follower.open import open_view
from ...follower.view_watch import ViewWatch
from ...kip405.view import MetadataWatch
from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import Listener, fan_out
from ...runtime.logs import log_events
from ...runtime.management import Health, ManagementServer
from ...runtime.metrics import Metrics
from ...runtime.service import Service
from ...runtime.settings import Process, Settings
from ...runtime.watchdog import Supervisor, Watchdog, loop
from ...state.view import READY_AGE_S
from ...storage.wrapped_stores import living
from ..looking.bucket_watch import BucketWatch
from ..looking.store_watches import StoreWatches
from ..looking.watching import (
    ending_with,
    feed_loop_gauges,
    feed_view_gauges,
    longest_silence,
    why_behind,
    why_hanging,
    why_unhealthy,
)
from ..opening.bucket_connection import BucketConnection
from ..opening.connection import BUCKET, KIP405, Connection
from ..opening.kip405_connection import Kip405Connection
from ..opening.open import refuse_past
from .plans import Plans, plans_of
from .upkeep import identity_or_first, seed_of


@dataclass(frozen=True, slots=True)
class ServingParts:
    """The parts of one process. ``brokers``: advertised host and port, by node id."""

    reader: LogReader
    broker: Broker | None
    """None: only the bucket is read, or Kafka itself tiers the topics."""
    plans: Plans | None
    """None: Kafka itself tiers the topics. Leases, on which plans rest, are not possible."""
    brokers: Mapping[int, tuple[str, int]]
    clock: Clock
    metrics: Metrics
    kafka: KafkaAccess
    management: ManagementServer
    services: list[Service]
    """All services of the process. The caller adds that of its server before it runs them."""
    not_ready: list[Callable[[], Sequence[str]]]
    """Functions that return further reasons not to rely on the process now. The caller adds those of its server."""


@contextmanager
def open_serving_parts(settings: Settings, logger: FilteringBoundLogger, name: Process) -> Iterator[ServingParts]:
    """Open the parts of a process. ``name`` is also the view's folder in state_dir, which no other process may use.

    Raises the errors of opening each part.
    """
    clock, metrics = SystemClock(), Metrics()
    listener = fan_out(metrics.listen, log_events(logger))
    with ExitStack() as stack:
        watchdog = Watchdog(clock, longest_silence(settings), Supervisor(), logger.warning)
        stack.enter_context(watchdog)
        with loop("start"):
            refuse_past(settings)
            make_room(settings.cache, settings.state_dir, listener)
            of_bucket = settings.view.source == BUCKET and name == "proxy"
            open_served = _bucket if of_bucket else _kafkas_view if settings.view.source == KIP405 else _view
            served = open_served(settings, clock, metrics, name, listener, stack)
            connection = served.connection
            brokers = None if of_bucket else BrokerWatch(connection.broker, clock)
            feed_loop_gauges(metrics, watchdog)
            services: list[Service] = []
            more: list[Callable[[], Sequence[str]]] = []
            health = Health(
                not_healthy=lambda: served.not_healthy(services, watchdog),
                # reads continue with an older view, too, and those of remote records alone without brokers
                not_ready=lambda: (
                    why_hanging(watchdog)
                    + connection.kafka.logins.troubles()
                    + ([f"the brokers are away: {away}"] if brokers and (away := brokers.trouble) else [])
                    + served.behind()
                    + [reason for why in more for reason in why()]
                ),
                metrics=metrics.exposition,
                status=lambda name, partition: None,
            )
            management = ManagementServer(settings.management.of(name), health, hosts=settings.management.hosts)
            stack.callback(management.close)
            services += [management.service(), *served.services, *served.stores.services()]
            brokers_at = {}
            if brokers is not None:
                services.append(Service("broker watch", brokers.run))
                brokers_at = {int(node): at for node, at in connection.control.cluster().addresses.items()}
            reader, plans = served.reader, served.plans
            add_cache_gauges(metrics, reader.remote)
        alone = of_bucket or settings.view.source == KIP405
        yield ServingParts(
            reader,
            None if alone else connection.broker,
            plans,
            brokers_at,
            clock,
            metrics,
            connection.kafka,
            management,
            services,
            more,
        )


@dataclass(frozen=True, slots=True)
class _Served:
    """The parts that a process serves with: those of agents' facts, of Kafka's own metadata, or of the bucket."""

    connection: Connection
    reader: LogReader
    plans: Plans | None
    services: Sequence[Service]
    stores: StoreWatches
    not_healthy: Callable[[Sequence[Service], Watchdog], list[str]]
    behind: Callable[[], list[str]]


def _view(
    settings: Settings, clock: Clock, metrics: Metrics, name: str, listener: Listener, stack: ExitStack
) -> _Served:
    connection = stack.enter_context(Connection(settings, clock, listener=listener))
    topic = connection.topic
    follower = open_view(
        topic,
        connection.cluster_id,
        clock,
        Following(
            seed=seed_of(connection, living(connection.store), identity_or_first(connection), listener),
            listener=listener,
        ),
        state_dir=settings.state_dir / name,
    )
    stack.callback(follower.close)
    watch = ViewWatch(topic, follower, clock)
    feed_view_gauges(metrics, watch)
    watches = Service("view watch", watch.run), Service("topic watch", watch.run_problems)
    reader, stores = connection.reader(follower), StoreWatches(connection, default=False)
    stores.feed(metrics)
    return _Served(
        connection,
        reader,
        plans_of(connection, reader, follower),
        (*watches, ending_with(follower)),
        stores,
        lambda services, watchdog: why_unhealthy(services, watchdog, follower),
        lambda: why_behind(follower, watch, READY_AGE_S),
    )


def _kafkas_view(
    settings: Settings, clock: Clock, metrics: Metrics, name: str, listener: Listener, stack: ExitStack
) -> _Served:
    connection = stack.enter_context(Kip405Connection(Connection(settings, clock, listener=listener)))
    view = connection.view(folder=settings.state_dir / name)
    watch = MetadataWatch(view, clock)
    metrics.gauge("tierstate_view_age_seconds", lambda: [((str(n),), age) for n, age in watch.ages().items()])
    return _Served(
        connection.parts,
        connection.reader(view),
        None,
        [Service("view watch", watch.run)],
        StoreWatches(connection.parts, default=False),
        why_unhealthy,
        lambda: watch.behind(READY_AGE_S),
    )


def _bucket(
    settings: Settings, clock: Clock, metrics: Metrics, name: str, listener: Listener, stack: ExitStack
) -> _Served:
    connection = stack.enter_context(BucketConnection(Connection(settings, clock, listener=listener)))
    view = connection.view()
    watch = BucketWatch(connection, view, clock, settings.proxy.follow, listener)
    follows, stores = not settings.view.as_of, StoreWatches(connection.parts, default=False)
    if follows:
        watch.feed(metrics, stores.samples)
    return _Served(
        connection.parts,
        connection.reader(view),
        None,
        [Service("store watch", watch.run)] if follows else [],
        stores,
        why_unhealthy,
        watch.behind,
    )

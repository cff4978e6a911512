"""The parts of a process that reads and serves: a view, a reader of both tiers, a management port, and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from ...broker.broker_watch import BrokerWatch
from ...broker.kafka_access import KafkaAccess
from ...fetch.cache_gauges import add_cache_gauges
from ...fetch.open import make_room
from ...fetch.reader import LogReader
from ...follower.following import Following
from ...follower.open import open_view
from ...follower.view_watch import ViewWatch
from ...runtime.clock import Clock, SystemClock
from ...runtime.listener import fan_out
from ...runtime.logs import log_events
from ...runtime.management import Health, ManagementServer
from ...runtime.metrics import Metrics
from ...runtime.service import Service
from ...runtime.setting_types import Address
from ...runtime.settings import Settings
from ...runtime.watchdog import Supervisor, Watchdog, loop
from ...state.view import READY_AGE_S
from ...storage.living_store import living
from ..looking.watching import (
    ending_with,
    feed_loop_gauges,
    feed_view_gauges,
    longest_silence,
    why_behind,
    why_brokers_away,
    why_hanging,
    why_unhealthy,
)
from ..opening.connection import Connection
from .plans import Plans, plans_of
from .upkeep import identity_or_first, seed_of


@dataclass(frozen=True, slots=True)
class ServingParts:
    """The parts of one process. ``brokers``: advertised host and port, by node id."""

    reader: LogReader
    plans: Plans
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
def open_serving_parts(
    settings: Settings, logger: FilteringBoundLogger, name: str, listen: Address
) -> Iterator[ServingParts]:
    """Open the parts of a process. ``name``: the view's folder in state_dir, which no other process may use.
    ``listen``: address of the management port. Raises the errors of opening each part.
    """
    clock, metrics = SystemClock(), Metrics()
    listener = fan_out(metrics.listen, log_events(logger))
    with ExitStack() as stack:
        watchdog = Watchdog(clock, longest_silence(settings), Supervisor(), logger.warning)
        stack.enter_context(watchdog)
        with loop("start"):
            connection = stack.enter_context(Connection(settings, clock, listener=listener))
            topic = connection.topic
            make_room(settings.cache, settings.state_dir, listener)
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
            watch, brokers = ViewWatch(topic, follower, clock), BrokerWatch(connection.broker, clock)
            feed_view_gauges(metrics, watch)
            feed_loop_gauges(metrics, watchdog)
            services: list[Service] = []
            more: list[Callable[[], Sequence[str]]] = []
            health = Health(
                not_healthy=lambda: why_unhealthy(services, follower, watchdog),
                # reads continue with an older view, too
                not_ready=lambda: (
                    why_hanging(watchdog)
                    + connection.kafka.logins.troubles()
                    + why_brokers_away(brokers)
                    + why_behind(follower, watch, READY_AGE_S)
                    + [reason for why in more for reason in why()]
                ),
                metrics=metrics.exposition,
                status=lambda name, partition: None,
            )
            management = ManagementServer(listen, health, hosts=settings.management.hosts)
            stack.callback(management.close)
            services += [
                management.service(),
                Service("view watch", watch.run),
                Service("topic watch", watch.run_problems),
                Service("broker watch", brokers.run),
                ending_with(follower),
            ]
            reader = connection.reader(follower)
            add_cache_gauges(metrics, reader.remote)
            brokers_at = {int(node): at for node, at in connection.control.cluster().addresses.items()}
        yield ServingParts(
            reader,
            plans_of(connection, reader, follower),
            brokers_at,
            clock,
            metrics,
            connection.kafka,
            management,
            services,
            more,
        )

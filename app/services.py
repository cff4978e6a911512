"""The parts of a gateway or a proxy: a view that follows, a reader of both tiers, a management port, and threads.

One process has all of them (`open_serving_parts`). In a gateway of several processes one follows and answers the
others (`open_following_parts`), which read by its view (`open_worker_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from prometheus_client.core import Metric
from structlog.typing import FilteringBoundLogger

from ..broker.broker_watch import BrokerWatch
from ..broker.kafka_access import KafkaAccess
from ..fetch.cache_gauges import add_cache_gauges
from ..fetch.open import make_room
from ..fetch.reader import LogReader
from ..follower.follower import Follower
from ..follower.following import Following
from ..follower.open import open_view
from ..follower.view_watch import ViewWatch
from ..runtime.added_metrics import added, exposition
from ..runtime.clock import Clock, SystemClock
from ..runtime.listener import fan_out
from ..runtime.logs import log_events
from ..runtime.management import Health, ManagementServer
from ..runtime.metrics import Metrics
from ..runtime.service import Service
from ..runtime.setting_types import Address
from ..runtime.settings import Settings
from ..runtime.watchdog import Supervisor, Watchdog, loop
from ..state.view import READY_AGE_S, TierView
from ..storage.living_store import living
from .connection import Connection
from .plans import Plans, plans_of
from .upkeep import identity_or_first, seed_of
from .watching import (
    ending_with,
    feed_loop_gauges,
    feed_view_gauges,
    longest_silence,
    why_behind,
    why_brokers_away,
    why_hanging,
    why_unhealthy,
)


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """``brokers``: host and port as each broker advertises them."""

    reader: LogReader
    plans: Plans
    brokers: Mapping[int, tuple[str, int]]
    clock: Clock
    metrics: Metrics
    kafka: KafkaAccess


@dataclass(frozen=True, slots=True)
class ServingParts(ReadingParts):
    """``services``: of the whole process; the caller adds the server before it runs them."""

    management: ManagementServer
    services: list[Service]
    not_ready: list[Callable[[], Sequence[str]]]
    """More reasons why the process is not ready: from the server that is added."""


@dataclass(frozen=True, slots=True)
class WorkerParts(ReadingParts):
    """The parts of a process that reads by the view of another process."""

    watchdog: Watchdog


@dataclass(frozen=True, slots=True)
class FollowingParts:
    """The parts before a reader. ``others``: metrics of the processes that read by this view."""

    connection: Connection
    view: Follower
    clock: Clock
    metrics: Metrics
    management: ManagementServer
    services: list[Service]
    not_ready: list[Callable[[], Sequence[str]]]
    others: list[Callable[[], Sequence[Sequence[Metric]]]]


@contextmanager
def open_serving_parts(
    settings: Settings, logger: FilteringBoundLogger, name: str, listen: Address
) -> Iterator[ServingParts]:
    """Yield all parts. ``name``: the view's folder, for one process alone. ``listen``: for management.

    Raises what opening each part raises.
    """
    with open_following_parts(settings, logger, name, listen) as parts:
        with loop("start"):
            reader = _reader(parts.connection, parts.view, parts.metrics)
        yield ServingParts(
            reader,
            plans_of(parts.connection, reader, parts.view),
            _brokers(parts.connection),
            parts.clock,
            parts.metrics,
            parts.connection.kafka,
            parts.management,
            parts.services,
            parts.not_ready,
        )


@contextmanager
def open_worker_parts(settings: Settings, logger: FilteringBoundLogger, view: TierView) -> Iterator[WorkerParts]:
    """Yield the parts of one worker. ``view``: another process's. Raises what opening each part raises."""
    clock, metrics = SystemClock(), Metrics()
    listener = fan_out(metrics.listen, log_events(logger))
    # the service manager hears only of the process that follows, which looks after its workers
    watchdog = Watchdog(clock, longest_silence(settings), Supervisor({}), logger.warning)
    with watchdog, Connection(settings, clock, listener=listener) as connection:
        with loop("start"):
            reader = _reader(connection, view, metrics)
            feed_loop_gauges(metrics, watchdog)
        plans, kafka = plans_of(connection, reader, view), connection.kafka
        yield WorkerParts(reader, plans, _brokers(connection), clock, metrics, kafka, watchdog)


def _reader(connection: Connection, view: TierView, metrics: Metrics) -> LogReader:
    reader = connection.reader(view)
    add_cache_gauges(metrics, reader.remote)
    return reader


def _brokers(connection: Connection) -> dict[int, tuple[str, int]]:
    return {int(node): at for node, at in connection.control.cluster().addresses.items()}


@contextmanager
def open_following_parts(
    settings: Settings, logger: FilteringBoundLogger, name: str, listen: Address
) -> Iterator[FollowingParts]:
    """Yield the parts before a reader, as `open_serving_parts` does."""
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
            others: list[Callable[[], Sequence[Sequence[Metric]]]] = []
            health = Health(
                not_healthy=lambda: why_unhealthy(services, follower, watchdog),
                # reads go on from an older view, too
                not_ready=lambda: (
                    why_hanging(watchdog)
                    + connection.kafka.logins.troubles()
                    + why_brokers_away(brokers)
                    + why_behind(follower, watch, READY_AGE_S)
                    + [reason for why in more for reason in why()]
                ),
                metrics=lambda: _exposed(metrics, others),
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
        yield FollowingParts(connection, follower, clock, metrics, management, services, more, others)


def _exposed(metrics: Metrics, others: Sequence[Callable[[], Sequence[Sequence[Metric]]]]) -> bytes:
    if not others:
        return metrics.exposition()
    return exposition(added([metrics.families(), *(some for ask in others for some in ask())]))

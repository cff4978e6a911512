"""``tierstate agent``: the agent beside one broker."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

import click

from .archived_deletes import ArchivedDeletes
from .context import Context
from .flags import pass_context
from .keeping import archive_every_s, identity_in, keeper_of, seed_of
from .opened import open_store_of, opened_broker, opened_topic
from .serving import serve, service_logs
from .watching import AgentWatches, longest_silence


@click.command("agent", epilog="Example: tierstate agent --config /etc/tierstate/tierstate.toml")
@click.option("--once", is_flag=True, help="Do what there is to do now, then end.")
@pass_context
def command(context: Context, once: bool) -> None:
    """Copy, and trim, the partitions that this broker leads. Ends on SIGTERM after the acts in progress."""
    from ..broker.acls import lacking
    from ..broker.rights_watch import RightsWatch
    from ..follower.archives import Archives
    from ..follower.open import open_view
    from ..leader.attention import Attention
    from ..leader.custody import led_by
    from ..leader.gauges import feed_gauges
    from ..leader.open import open_leader
    from ..leader.other_replicas import epochs_of
    from ..leader.wanted import Wanted
    from ..log.local_log import LogDirs
    from ..runtime.allocator import return_large_buffers
    from ..runtime.clock import SystemClock
    from ..runtime.heartbeat import Heartbeats
    from ..runtime.id_source import RandomIds
    from ..runtime.listener import fan_out
    from ..runtime.logs import log_events
    from ..runtime.management import Health, ManagementServer
    from ..runtime.metrics import Metrics
    from ..runtime.quota import ByteQuota, repeats_taken_from
    from ..runtime.service import Service
    from ..runtime.watchdog import Supervisor, Watchdog
    from ..state.errors import AccessDenied, StorageUnavailable
    from ..state.keys import tier_partition_of
    from ..storage.living_store import LivingStore
    from ..storage.probe import warn_if_overwriting

    return_large_buffers()
    settings = context.settings_with("kafka.bootstrap.servers", "store.url", "agent.log_dirs")
    clock, metrics = SystemClock(), Metrics()
    logger = service_logs(context)
    listener = fan_out(metrics.listen, log_events(logger))
    heartbeats = Heartbeats(clock, longest_silence(settings))
    starting = heartbeats.of("start")
    with ExitStack() as opened:
        opened.callback(Watchdog(heartbeats, Supervisor(), logger.warning).start().close)
        log = opened.enter_context(LogDirs(settings.agent.log_dirs, listener=listener))
        broker = opened.enter_context(opened_broker(context))
        topic = opened.enter_context(opened_topic(context))
        quota = ByteQuota(clock, settings.copy_.quota, heartbeats.alive)
        wire = open_store_of(settings, fan_out(listener, repeats_taken_from(quota)))
        store = LivingStore(wire, heartbeats.alive)
        opened.callback(store.close)
        cluster = broker.control.cluster()
        identity = identity_in(store, cluster.cluster_id, topic)
        archives = Archives(topic, store, identity, clock, archive_every_s(settings))
        name, mapped = settings.tier_state.topic, topic.mapped_partitions
        wanted = Wanted(log, led_by(broker.control, name, log.node_id, mapped))
        wanted.refresh()
        attention = Attention(clock, lambda partition: tier_partition_of(partition, topic.mapped_partitions))
        follower = open_view(
            topic,
            cluster.cluster_id,
            clock,
            state_dir=settings.state_dir / "agent",
            keep=wanted.keep,
            seed=seed_of(topic, store, identity, clock, listener),
            listener=fan_out(listener, attention.listen, archives.listen),
            heartbeats=heartbeats,
        )
        opened.callback(follower.close)

        rights = RightsWatch(lambda: lacking(broker.admin, name, leader.agent.led_topics), heartbeats)
        watches = AgentWatches(topic, follower, store, archives, rights, clock, heartbeats)
        listen = settings.management.of_agent
        settings.management.announced(listen)  # refused before the port is taken
        server = ManagementServer(
            listen,
            Health(
                not_healthy=watches.not_healthy,
                not_ready=lambda: watches.not_ready(leader),
                metrics=metrics.exposition,
                status=lambda name, partition: watches.told(leader.board.find(name, partition, clock.now_ms())),
                epochs=lambda name, partition: epochs_of(log, name, partition),
            ),
        )
        opened.callback(server.close)
        leader = open_leader(
            settings,
            log,
            broker.control,
            topic,
            follower,
            store,
            clock,
            RandomIds(),
            listener,
            str(settings.management.announced(server.address)),
            archives.archived_to,
            ArchivedDeletes(store, identity, clock, listener),
            lambda partition: archives.problem(follower.tier_partition(partition)),
            quota,
            attention,
            heartbeats,
        )
        watches.store.returned = partial(leader.agent.returned, StorageUnavailable)
        watches.rights.returned = partial(leader.agent.returned, AccessDenied)
        keeper = keeper_of(
            settings, leader.seat, topic, follower, wanted, store, identity, archives, listener, heartbeats
        )
        feed_gauges(metrics, leader.board, follower, clock)
        watches.feed(metrics, leader, keeper.names)

        def work(stop: threading.Event) -> None:
            # said from here: signals are taken by now
            logger.info("agent ready", broker=log.node_id, cluster=cluster.cluster_id, management=str(server.address))
            with heartbeats.of("start"):
                warn_if_overwriting(store, listener)
            if once:
                leader.agent.run_once(stop, lambda: keeper.advance(stop))
            else:
                leader.agent.run(stop)

        context.deadline.cancel()
        starting.end()
        kept = [] if once else [*watches.threads(), Service("keeper", keeper.run)]
        watches.services += [server.service(), *kept, Service("agent", work, on_stop=leader.quota.stop)]
        serve(context, watches.services, logger.warning)

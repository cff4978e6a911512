"""``tierstate agent``: the agent beside one broker."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack

import click

from .context import Context
from .flags import pass_context
from .keeping import Archives, keeper_of, seed_of, why_not_ready
from .opened import open_store_of, opened_broker, opened_topic


@click.command("agent", epilog="Example: tierstate agent --config /etc/tierstate/tierstate.toml")
@click.option("--once", is_flag=True, help="Do what there is to do now, then end.")
@pass_context
def command(context: Context, once: bool) -> None:
    """Copy, and trim, the partitions that this broker leads. Ends on SIGTERM after the acts in progress."""
    from ..follower.open import open_view
    from ..follower.rocksdb_view import ViewIdentity
    from ..leader.custody import led_by
    from ..leader.gauges import feed_gauges
    from ..leader.open import open_leader
    from ..leader.wanted import Wanted
    from ..log.local_log import LogDirs
    from ..runtime.clock import SystemClock
    from ..runtime.id_source import RandomIds
    from ..runtime.listener import fan_out
    from ..runtime.logs import log_events, open_logs
    from ..runtime.management import Health, ManagementServer
    from ..runtime.metrics import Metrics
    from ..runtime.service import Service, run_services
    from ..storage.probe import warn_if_overwriting

    settings = context.settings_with("kafka.bootstrap.servers", "store.url", "agent.log_dirs")
    clock, metrics = SystemClock(), Metrics()
    logger = open_logs(os.environ, as_json=context.as_json, colour=not context.no_color)
    listener = fan_out(metrics.listen, log_events(logger))
    with ExitStack() as opened:
        log = opened.enter_context(LogDirs(settings.agent.log_dirs))
        broker = opened.enter_context(opened_broker(context))
        topic = opened.enter_context(opened_topic(context))
        store = open_store_of(settings, listener)
        opened.callback(store.close)
        cluster = broker.control.cluster()
        identity = ViewIdentity(cluster.cluster_id, topic.topic_id, topic.mapped_partitions)
        archives = Archives(store, topic.topic_id, clock)
        wanted = Wanted(log, led_by(broker.control, settings.tier_state.topic, log.node_id))
        wanted.refresh()
        follower = open_view(
            topic,
            cluster.cluster_id,
            clock,
            state_dir=settings.state_dir / "agent",
            keep=wanted.keep,
            seed=seed_of(store, identity, clock, listener),
            listener=listener,
        )
        opened.callback(follower.close)

        def not_ready() -> list[str]:
            behind = why_not_ready(follower, topic.mapped_partitions)
            return behind or ([leader.agent.last_error] if leader.agent.last_error else [])

        server = ManagementServer(
            settings.management.listen,
            Health(
                not_healthy=list,
                not_ready=not_ready,
                metrics=metrics.exposition,
                status=lambda name, partition: leader.board.find(name, partition),
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
            str(server.address),
            archives.archived_to,
        )
        keeper = keeper_of(settings, leader.seat, topic, follower, wanted, store, identity, archives, listener)
        feed_gauges(metrics, leader.board, follower)
        logger.info("agent ready", broker=log.node_id, cluster=cluster.cluster_id, management=str(server.address))

        def work(stop: threading.Event) -> None:
            warn_if_overwriting(store, listener)
            (leader.agent.run_once if once else leader.agent.run)(stop)
            if once:
                keeper.advance(stop)

        context.deadline.cancel()
        keeping = [] if once else [Service("keeper", keeper.run)]
        run_services([server.service(), Service("agent", work), *keeping])

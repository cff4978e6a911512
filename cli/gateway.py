"""``tierstate gateway``: the HTTP fetch gateway and the console."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from .context import Context
from .flags import pass_context
from .keeping import identity_in, seed_of
from .opened import object_names, open_store_of, opened_broker, opened_topic
from .serving import serve, service_logs
from .watching import (
    ending_with,
    feed_loop_gauges,
    feed_view_gauges,
    longest_silence,
    why_behind,
    why_hanging,
    why_unhealthy,
)

LOOPBACK = ("127.", "::1", "localhost")


@click.command("gateway", epilog="Example: tierstate gateway --listen 127.0.0.1:8080")
@click.option("--listen", metavar="HOST:PORT", help="Instead of [gateway] listen; port 0 takes a free one.")
@pass_context
def command(context: Context, listen: str | None) -> None:
    """Serve both tiers over HTTP, with a console at /. Ends on SIGTERM after the answers in progress."""
    open_gateway = _gateway()
    from ..fetch.cache_gauges import add_cache_gauges
    from ..fetch.open import open_reader
    from ..follower.open import open_view
    from ..follower.view_watch import ViewWatch
    from ..runtime.clock import SystemClock
    from ..runtime.heartbeat import Heartbeats
    from ..runtime.listener import fan_out
    from ..runtime.logs import log_events
    from ..runtime.management import Health, ManagementServer
    from ..runtime.metrics import Metrics
    from ..runtime.service import Service
    from ..runtime.watchdog import Supervisor, Watchdog
    from ..state.view import READY_AGE_S
    from ..storage.living_store import LivingStore
    from ..storage.segment.keyring_file import KeyRingFile

    if listen is not None:
        context.overrides += (f"gateway.listen={listen}",)
    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    clock, metrics = SystemClock(), Metrics()
    logger = service_logs(context)
    listener = fan_out(metrics.listen, log_events(logger))
    heartbeats = Heartbeats(clock, longest_silence(settings))
    starting = heartbeats.of("start")
    with ExitStack() as opened:
        opened.callback(Watchdog(heartbeats, Supervisor(), logger.warning).start().close)
        broker = opened.enter_context(opened_broker(context))
        topic = opened.enter_context(opened_topic(context))
        store = open_store_of(settings, listener)
        opened.callback(store.close)
        cluster_id = broker.control.cluster().cluster_id
        identity = identity_in(store, cluster_id, topic)
        follower = open_view(
            topic,
            cluster_id,
            clock,
            state_dir=settings.state_dir / "gateway",
            seed=seed_of(topic, LivingStore(store, heartbeats.alive), identity, clock, listener),
            listener=listener,
            heartbeats=heartbeats,
        )
        opened.callback(follower.close)
        keyring = settings.encryption.keyring
        reader = open_reader(
            follower,
            broker,
            store,
            clock=clock,
            cache=settings.cache,
            state_dir=settings.state_dir,
            keys=KeyRingFile(keyring, listener) if keyring else None,
            names=object_names(settings, cluster_id),
            listener=listener,
        )
        opened.callback(reader.close)
        add_cache_gauges(metrics, reader.remote)
        server = open_gateway(reader, settings.gateway, clock, (settings.tier_state.topic,), heartbeats)
        opened.callback(server.close)

        watch = ViewWatch(topic, follower, clock, heartbeats)
        feed_view_gauges(metrics, watch)
        feed_loop_gauges(metrics, heartbeats)
        services: list[Service] = []
        health = Health(
            not_healthy=lambda: why_unhealthy(services, follower, heartbeats),
            # reads go on from an older view, too
            not_ready=lambda: why_hanging(heartbeats) + why_behind(follower, watch, READY_AGE_S),
            metrics=metrics.exposition,
            status=lambda name, partition: None,
        )
        management = ManagementServer(settings.management.of_gateway, health)
        opened.callback(management.close)
        _announce(context, server.url, str(management.address), open_to_all=settings.gateway.auth.tokens is None)
        context.deadline.cancel()
        starting.end()
        watches = [
            Service("view watch", watch.run),
            Service("topic watch", watch.run_problems),
            ending_with(follower),
        ]
        services += [management.service(), *watches, server.process()]
        serve(context, services, logger.warning)


def _gateway() -> Any:
    """The room, or the extra that it needs."""
    from ..state.errors import MissingExtra

    try:
        from ..api.open import open_gateway
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "uvicorn", "starlette"):
            raise MissingExtra("gateway", "the gateway") from error
        raise
    return open_gateway


def _announce(context: Context, url: str, management: str, *, open_to_all: bool) -> None:
    context.output.note(f"listening on {url}")
    if open_to_all and not url.partition("://")[2].strip("[").startswith(LOOPBACK):
        context.output.note("whoever reaches this address can read every topic: set gateway.auth.tokens")
    if context.as_json:
        context.output.item({"address": url, "management": management})

"""``tierstate gateway``: the HTTP fetch gateway and the console."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .context import Context
from .flags import pass_context
from .serving import keep_files_private, serve, service_logs

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ..api.open import GatewayServer
    from ..app.gateway_workers import GatewayWorker
    from ..app.services import ReadingParts
    from ..runtime.settings import Settings

LOOPBACK = ("127.", "::1", "localhost")
WORKER = f"{__package__}.gateway_worker"


@click.command("gateway", epilog="Example: tierstate gateway --listen 127.0.0.1:8080")
@click.option("--listen", metavar="HOST:PORT", help="Instead of [gateway] listen; port 0 takes a free one.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Instead of [gateway] workers: processes that answer."
)
@pass_context
def command(context: Context, listen: str | None, workers: int | None) -> None:
    """Serve both tiers over HTTP, with a console at /. Ends on SIGTERM after the answers in progress.

    With --workers N it takes N cores: N processes answer at the one port, by one view. One that dies is started again;
    SIGHUP starts each of them again, one after the other, while the others answer.
    """
    _gateway()
    from ..app.services import open_serving_parts
    from ..runtime.allocator import keep_buffers_of_reads

    keep_buffers_of_reads()
    keep_files_private(context)
    if listen is not None:
        context.overrides += (f"gateway.listen={listen}",)
    if workers is not None:
        context.overrides += (f"gateway.workers={workers}",)
    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    logger = service_logs(context)
    if settings.gateway.workers > 1:
        _serve_by_workers(context, settings, logger)
        return
    with open_serving_parts(settings, logger, "gateway", settings.management.of_gateway) as parts:
        with closing(opened_gateway(parts, settings)) as server:
            _announce(context, server.url, str(parts.management.address), settings)
            context.deadline.cancel()
            parts.services.append(server.process())
            serve(context, parts.services, logger.warning)


def opened_gateway(parts: ReadingParts, settings: Settings, listening: socket.socket | None = None) -> GatewayServer:
    """Return the server, with its metrics. ``listening``: an inherited socket; None: a new one, from the settings.

    Raises as `api.open.open_gateway`.
    """
    open_gateway, feed_gateway_metrics = _gateway()
    from ..broker.callers import Callers, callers_of

    callers = callers_of(parts.kafka, parts.clock, parts.brokers.values())
    groups = callers or Callers(parts.kafka, parts.clock, tuple(parts.brokers.values()))
    server: GatewayServer = open_gateway(
        parts.reader,
        settings.gateway,
        parts.clock,
        (settings.tier_state.topic,),
        callers,
        parts.metrics.listen,
        parts.plans,
        groups,
        settings.registry,
        listening,
    )
    feed_gateway_metrics(parts.metrics, server)
    gc.collect()
    gc.freeze()  # else each full collection scans all that was imported, and every answer waits a tenth of a second
    return server


def _serve_by_workers(context: Context, settings: Settings, logger: FilteringBoundLogger) -> None:
    from ..api.open import listen_at, url_of
    from ..app.gateway_workers import GatewayWorker, GatewayWorkers, WorkerStart, divided
    from ..app.services import open_following_parts
    from ..follower.asked_view import ViewAnswers
    from ..runtime.shared_socket import shared_counts

    own = {number: divided(settings, number) for number in range(1, settings.gateway.workers + 1)}
    with (
        open_following_parts(settings, logger, "gateway", settings.management.of_gateway) as parts,
        listen_at(settings.gateway.listen) as listening,
    ):
        counts = shared_counts(len(own))
        tier_partitions = parts.connection.topic.mapped_partitions

        def start(number: int) -> GatewayWorker:
            worker = WorkerStart(number, os.getpid(), own[number], tier_partitions, context.as_json, context.no_color)
            return GatewayWorker([sys.executable, "-m", WORKER], (listening.fileno(), counts), worker)

        url, management = url_of(settings.gateway, listening), str(parts.management.address)
        answering = GatewayWorkers(
            [partial(start, number) for number in own],
            ViewAnswers(parts.view),
            parts.clock,
            logger,
            lambda: _announce(context, url, management, settings),
        )
        parts.others.append(answering.families)
        parts.not_ready.append(answering.not_ready)
        parts.services.append(answering.service())
        context.deadline.cancel()
        if context.own_process:
            signal.signal(signal.SIGHUP, lambda number, frame: answering.renew())
        serve(context, parts.services, logger.warning)


def _gateway() -> tuple[Any, Any]:
    """Import the gateway's package. Raises MissingExtra if a module of its extra is not installed."""
    from ..runtime.columns_extra import MODULES
    from ..state.errors import MissingExtra

    try:
        from ..api.open import feed_gateway_metrics, open_gateway
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "jwt", "uvicorn", "starlette", *MODULES):
            raise MissingExtra("gateway", "the gateway") from error
        raise
    return open_gateway, feed_gateway_metrics


def _announce(context: Context, url: str, management: str, settings: Settings) -> None:
    context.output.note(f"listening on {url}")
    open_to_all = not settings.gateway.auth.asks
    if open_to_all and not url.partition("://")[2].strip("[").startswith(LOOPBACK):
        context.output.note("whoever reaches this address can read what the gateway may: gateway.auth.anonymous is set")
    if context.as_json:
        context.output.item({"address": url, "management": management})

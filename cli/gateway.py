"""``tierstate gateway``: the HTTP fetch gateway and the console."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from .context import Context
from .flags import pass_context
from .serving import keep_files_private, serve, service_logs

LOOPBACK = ("127.", "::1", "localhost")


@click.command("gateway", epilog="Example: tierstate gateway --listen 127.0.0.1:8080")
@click.option("--listen", metavar="HOST:PORT", help="Instead of [gateway] listen; port 0 takes a free one.")
@pass_context
def command(context: Context, listen: str | None) -> None:
    """Serve both tiers over HTTP, with a console at /. Ends on SIGTERM after the answers in progress."""
    open_gateway, feed_gateway_metrics = _gateway()
    from ..app.services import open_serving_parts
    from ..broker.callers import Callers, callers_of
    from ..runtime.allocator import keep_buffers_of_reads

    keep_buffers_of_reads()
    keep_files_private(context)
    if listen is not None:
        context.overrides += (f"gateway.listen={listen}",)
    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    logger = service_logs(context)
    with open_serving_parts(settings, logger, "gateway", settings.management.of_gateway) as parts:
        hidden = (settings.tier_state.topic,)
        callers = callers_of(settings.kafka, parts.clock, parts.brokers.values())
        groups = callers or Callers(settings.kafka, parts.clock, tuple(parts.brokers.values()))
        gateway = open_gateway(
            parts.reader,
            settings.gateway,
            parts.clock,
            hidden,
            callers,
            parts.metrics.listen,
            parts.plans,
            groups,
            settings.registry,
        )
        with closing(gateway) as server:
            feed_gateway_metrics(parts.metrics, server)
            address = str(parts.management.address)
            _announce(context, server.url, address, open_to_all=not settings.gateway.auth.asks)
            context.deadline.cancel()
            parts.services.append(server.process())
            serve(context, parts.services, logger.warning)


def _gateway() -> tuple[Any, Any]:
    """The room, or the extra that it needs."""
    from ..state.errors import MissingExtra

    try:
        from ..api.open import feed_gateway_metrics, open_gateway
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "jwt", "uvicorn", "starlette"):
            raise MissingExtra("gateway", "the gateway") from error
        raise
    return open_gateway, feed_gateway_metrics


def _announce(context: Context, url: str, management: str, *, open_to_all: bool) -> None:
    context.output.note(f"listening on {url}")
    if open_to_all and not url.partition("://")[2].strip("[").startswith(LOOPBACK):
        context.output.note("whoever reaches this address can read what the gateway may: gateway.auth.anonymous is set")
    if context.as_json:
        context.output.item({"address": url, "management": management})

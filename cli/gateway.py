"""``tierstate gateway``: the HTTP fetch gateway and the console."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from cachetools import TTLCache, cached

from ..runtime.extras import importing
from ..state.errors import InvalidRequest, MissingExtra
from .context import Context
from .flags import declare
from .lake import imported_lake
from .serving import keep_files_private, serve, service_logs

if TYPE_CHECKING:
    from ..api.open import GatewayServer
    from ..api.service import Tables
    from ..app.operating.services import ServingParts
    from ..runtime.settings import Settings

TABLES_AGE_S = 5.0
LOOPBACK = ("127.", "::1", "localhost")


@declare("gateway --listen 127.0.0.1:8080")
@click.option("--listen", metavar="HOST:PORT", help="Instead of [gateway] listen; port 0 takes a free one.")
@click.option("--workers", hidden=True)
def command(context: Context, listen: str | None, workers: str | None) -> None:
    """Serve both tiers over HTTP, with a console at /. Ends on SIGTERM after the answers in progress.

    A gateway takes one core. For more, start several behind a reverse proxy: docs/http.md.
    """
    with importing("gateway", "the gateway", "fastapi", "jwt", "uvicorn", "starlette"):
        from ..api.open import feed_gateway_metrics
    from ..app.operating.services import open_serving_parts
    from ..runtime.allocator import keep_buffers_of_reads

    keep_buffers_of_reads()
    keep_files_private(context)
    if listen is not None:
        context.overrides += (f"gateway.listen={listen}",)
    if workers is not None:  # a removed option: parsing the settings fails with a message that names its replacement
        context.overrides += (f"gateway.workers={workers}",)
    settings = context.settings_with("kafka.bootstrap.servers", "store.url")
    logger = service_logs(context)
    with open_serving_parts(settings, logger, "gateway") as parts:
        with closing(_opened_gateway(parts, settings)) as server:
            feed_gateway_metrics(parts.metrics, server)
            _announce(context, server.url, str(parts.management.address), settings)
            context.deadline.cancel()
            parts.services.append(server.process())
            serve(context, parts.services, logger.warning)


def _opened_gateway(parts: ServingParts, settings: Settings) -> GatewayServer:
    """Return the server. Raises as `api.open.open_gateway`."""
    from ..api.open import open_gateway
    from ..broker.callers import Callers, callers_of

    callers = callers_of(parts.kafka, parts.clock, parts.brokers.values())
    groups = callers or Callers(parts.kafka, parts.clock, tuple(parts.brokers.values()))
    server = open_gateway(
        parts.reader,
        settings.gateway,
        parts.clock,
        (settings.tier_state.topic,),
        callers,
        parts.metrics.listen,
        parts.plans,
        groups,
        settings.registry,
    )
    server.service.tables = tables_of(settings, parts)
    return server


def tables_of(settings: Settings, parts: ServingParts) -> Tables:
    """Return a function that lists the tables of the settings' catalog. It looks at them every `TABLES_AGE_S` at most.

    The list is empty if there is no catalog yet, or if packages of the extra `lake` are missing.
    """

    @cached(TTLCache(1, TABLES_AGE_S))  # the gateway calls it in one thread
    def tables() -> list[dict[str, Any]]:
        try:
            with imported_lake():
                from ..lake.table_open import catalog_properties, log_of, open_catalog
                from ..lake.table_status import statuses
            catalog_properties(settings, new=False)
        except (MissingExtra, InvalidRequest):
            return []
        with open_catalog(settings, new=False) as catalog:
            log = partial(log_of, settings, parts.reader, parts.broker, local=False)
            rows = statuses(catalog, log, parts.clock.now_ms)
            return [asdict(each) for each in rows]

    return tables


def _announce(context: Context, url: str, management: str, settings: Settings) -> None:
    context.output.note(f"listening on {url}")
    open_to_all = not settings.gateway.auth.asks
    if open_to_all and not url.partition("://")[2].strip("[").startswith(LOOPBACK):
        context.output.note("whoever reaches this address can read what the gateway may: gateway.auth.anonymous is set")
    if context.as_json:
        context.output.item({"address": url, "management": management})

"""``tierstate proxy``: Kafka's protocol in front of both tiers."""

from __future__ import annotations

import click

from .context import Context
from .flags import declare, view_source
from .serving import keep_files_private, serve, service_logs


@declare(
    name="proxy",
    epilog="""\b
Examples:
  tierstate proxy --listen 127.0.0.1:9192
  kcat -b 127.0.0.1:9192 -t orders -o beginning -e
""",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Instead of [proxy] listen: the first port, one more a broker; 0: free ones."
)
@view_source()
def command(context: Context, listen: str | None) -> None:
    """Let any Kafka client read both tiers, unchanged: it names this address in bootstrap.servers.

    Everything passes to the brokers as the client's own principal. Where a broker no longer has an offset, the records
    come from the object store. With --source bucket there is no broker: clients read what the bucket has. Ends on
    SIGTERM.
    """
    from ..app.operating.services import open_serving_parts
    from ..proxy.open import feed_proxy_metrics, open_proxy
    from ..runtime.allocator import keep_buffers_of_reads

    keep_buffers_of_reads()
    keep_files_private(context)
    if listen is not None:
        context.overrides += (f"proxy.listen={listen}",)
    needed = ("store.url",) if context.settings.view.source == "bucket" else ("kafka.bootstrap.servers", "store.url")
    settings = context.settings_with(*needed)
    logger = service_logs(context)
    with (
        open_serving_parts(settings, logger, "proxy") as parts,
        open_proxy(parts.reader, parts.brokers, settings, parts.clock, logger.warning) as server,
    ):
        feed_proxy_metrics(parts.metrics, server)
        context.output.note(f"bootstrap.servers={server.address}")
        if context.as_json:
            context.output.item({"address": str(server.address), "management": str(parts.management.address)})
        context.deadline.cancel()
        parts.services.append(server.process())
        serve(context, parts.services, logger.warning)

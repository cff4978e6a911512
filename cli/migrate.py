"""``tierstate migrate``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from ..runtime.units import counted, show_duration, show_size
from ..state.errors import InvalidRequest
from .context import Context
from .flags import declare

if TYPE_CHECKING:
    from ..app.operating.moving import Moving, Quote
    from ..storage.mirror import Step


@declare(
    "migrate --to s3://new-bucket/prefix",
    "migrate --to s3://new-bucket/prefix --execute",
    "migrate --finish --execute",
    name="migrate",
    execute=False,
)
@click.option("--to", "url", metavar="URL", help="The target, an empty prefix; by default that of the standing move.")
@click.option("--finish", is_flag=True, help="Delete the old copies, each after it was compared with the new one.")
@click.option("--cancel", is_flag=True, help="Take back a move that has not arrived: agents go on at the old store.")
def command(context: Context, url: str | None, finish: bool, cancel: bool, execute: bool) -> None:
    """Copy every object to another store, prove each by its checksum, and let agents and readers go on there.

    Agents copy nothing between the last two passes, and readers notice nothing. Killed at any point and run again, it
    goes on. The old copies stay until --finish. Without --execute it shows what moves, how, and the price.
    """
    from ..app.operating.moving import moving
    from ..runtime.clock import SystemClock

    if finish and cancel:
        raise InvalidRequest("--finish or --cancel, not both")
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    clock = SystemClock()
    with context.connected("kafka.bootstrap.servers", "store.url") as connection:
        context.wait_for_kafka(connection)

        def tell(step: Step) -> None:
            counts[step.done] += 1
            sizes[step.done] += step.bytes
            advance(step.bytes)

        def waits(names: str) -> None:
            if names:
                context.output.note(f"waiting until they stop changing the old store: {names}")

        with moving(connection, url, tell, waits, make=execute) as move:
            quote = move.quote()
            began = clock.monotonic()
            with context.output.progress("moving", quote.extent.bytes) as advance:
                if execute:
                    _act(move, finish, cancel)
            seconds = clock.monotonic() - began
            source, target = connection.followed.here.description, move.target.description
            _show(context, source, target, quote, counts, sizes, seconds if execute else None)
            state = move.state
    if not execute:
        context.output.note("nothing was done: --execute does it")
    elif finish:
        context.output.note(f"the old copies are deleted; one object stays and leads readers to {target}")
    elif cancel:
        context.output.note("agents go on at the old store within a minute")
    else:
        context.output.note(f"{state}: agents start again at {target}; then --finish deletes the old copies")


def _act(move: Moving, finish: bool, cancel: bool) -> None:
    if finish:
        move.finish()
    elif cancel:
        move.cancel()
    else:
        move.execute()


def _show(
    context: Context,
    source: str,
    target: str,
    quote: Quote,
    counts: Counter[str],
    sizes: Counter[str],
    seconds: float | None,
) -> None:
    extent, how = quote.extent, "by the store itself" if quote.by_store else "streamed through this machine"
    document = {
        "executed": seconds is not None,
        "state": quote.state,
        "source": source,
        "target": target,
        "objects": extent.objects,
        "bytes": extent.bytes,
        "foreign": extent.foreign,
        "by_store": quote.by_store,
        "price_usd": round(quote.price, 4),
        "writers": quote.writers,
        "steps": {name: {"objects": number, "bytes": sizes[name]} for name, number in sorted(counts.items())},
        "seconds": seconds,
    }
    rows = [
        ("from", source),
        ("to", target),
        ("state", quote.state),
        ("objects", f"{counted(extent.objects, 'object')}, {show_size(extent.bytes)}, {how}"),
        ("not tierstate's", f"{counted(extent.foreign, 'object')}, neither copied nor deleted"),
        ("requests", f"about ${quote.price:.2f} at S3's prices; transfer out of a region costs extra"),
        ("writers", ", ".join(quote.writers) or "none"),
    ]
    for name, number in sorted(counts.items()):
        rows.append((name, f"{counted(number, 'object')}, {show_size(sizes[name])}"))
    if seconds is not None:
        rate = show_size(int(sum(sizes.values()) / max(seconds, 0.001)))
        rows.append(("took", f"{show_duration(seconds)}, {rate} a second"))
    context.output.table(("what", "value"), rows, document)

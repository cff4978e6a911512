"""``tierstate migrate``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..runtime.clock import SystemClock
from ..runtime.units import counted
from ..state.errors import InvalidRequest
from .context import Context
from .flags import declare

NOTE_S = 30.0
"""Seconds between two notes on the progress."""

if TYPE_CHECKING:
    from ..app.operating.moving import Moving, Quote
    from ..storage.mirror import Step


@declare(
    "migrate --to s3://new-bucket/prefix",
    "migrate --to s3://new-bucket/prefix --execute",
    "migrate --finish --execute",
    "migrate --topic 'audit.*' --execute",
    name="migrate",
    execute=False,
)
@click.option("--to", "url", metavar="URL", help="The target, an empty prefix; by default that of the standing move.")
@click.option("--finish", is_flag=True, help="Delete the old copies, each after it was compared with the new one.")
@click.option("--cancel", is_flag=True, help="Take back a move that has not arrived: agents go on at the old store.")
@click.option("--topic", "pattern", metavar="PATTERN", help="Only these topics, to the stores of store.topics.")
def command(context: Context, url: str | None, finish: bool, cancel: bool, pattern: str | None, execute: bool) -> None:
    """Copy every object to another store, prove each by its checksum, and let agents and readers go on there.

    Agents copy nothing between the last two passes, and readers notice nothing. Killed at any point and run again, it
    goes on. The old copies stay until --finish. Without --execute it shows what moves, how, and the price.
    """
    from ..app.operating.moving import moving

    if finish and cancel:
        raise InvalidRequest("--finish or --cancel, not both")
    if pattern is not None:
        if url or cancel:
            raise InvalidRequest("--topic takes its stores from store.topics: without --to and --cancel")
        return _move_topics(context, pattern, finish, execute)
    with context.connected("kafka.bootstrap.servers", "store.url") as connection:
        context.wait_for_kafka(connection)
        tally = Tally(context)

        def waits(names: str) -> None:
            if names:
                context.output.note(f"waiting until they stop changing the old store: {names}")
            tally.go_on()

        with moving(connection, url, tally.add, waits, make=execute) as move:
            quote = move.quote()
            with context.output.progress("moving", quote.extent.bytes) as tally.advance:
                if execute:
                    tally.begin(quote.extent.bytes)
                    _act(move, finish, cancel)
            source, target, state = connection.followed.here.description, move.target.description, move.state
            _show(context, source, target, quote, tally if execute else None)
    if not execute:
        context.output.note("nothing was done: --execute does it")
    elif finish:
        context.output.note(f"the old copies are deleted; one object stays and leads readers to {target}")
    elif cancel:
        context.output.note("agents go on at the old store within a minute")
    else:
        context.output.note(f"{state}: agents start again at {target}; then --finish deletes the old copies")


def _move_topics(context: Context, pattern: str, finish: bool, execute: bool) -> None:
    from ..app.operating.topic_move import move_topics

    tally = Tally(context)
    with context.connected("kafka.bootstrap.servers", "store.url") as connection:
        context.wait_for_kafka(connection)
        with context.output.progress("moving", None) as tally.advance:
            quote = move_topics(connection, pattern, tally.add, finish=finish, execute=execute)
    misplaced = {
        f"{old} to {new}": {"objects": extent.objects, "bytes": extent.bytes} for (old, new), extent in quote.items()
    }
    steps = {name: {"objects": number, "bytes": tally.sizes[name]} for name, number in sorted(tally.counts.items())}
    every = (misplaced | steps).items()
    rows = [(name, f"{counted(each['objects'], 'object')}, {_megabytes(each['bytes'])}") for name, each in every]
    document = {"executed": execute, "misplaced": misplaced, "steps": steps}
    context.output.table(("what", "value"), rows, document)
    if not execute:
        context.output.note("nothing was done: --execute does it")
    elif not finish:
        context.output.note("readers read both copies; --finish deletes the old ones, once every process has the rule")


def _act(move: Moving, finish: bool, cancel: bool) -> None:
    if finish:
        move.finish()
    elif cancel:
        move.cancel()
    else:
        move.execute()


class Tally:
    """Counts what was done, and notes the rate and the end every `NOTE_S` seconds."""

    def __init__(self, context: Context) -> None:
        self._context, self._clock, self._total = context, SystemClock(), 0
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[str] = Counter()
        self.advance: Callable[[int], None] = lambda bytes_: None
        self.begin(0)

    def begin(self, total: int) -> None:
        self._began = self._clock.monotonic()
        self._total = total
        self.go_on()

    def go_on(self) -> None:
        """Measure the rate for the next note from now on, not over a wait."""
        self._noted, self._before = self._clock.monotonic(), self.sizes.total()

    def add(self, step: Step) -> None:
        self.counts[step.done] += 1
        self.sizes[step.done] += step.bytes
        self.advance(step.bytes)
        if (passed := self._clock.monotonic() - self._noted) >= NOTE_S:
            size = self.sizes.total()
            rate = int((size - self._before) / passed)
            end = f", {max(0, self._total - size) / rate:.0f} s left" if rate else ""
            self._context.output.note(
                f"{_megabytes(size)} of {_megabytes(self._total)}, {_megabytes(rate)} a second{end}"
            )
            self.go_on()

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._began

    @property
    def rate(self) -> int:
        """Return the speed so far, in bytes a second."""
        return int(self.sizes.total() / max(self.seconds, 0.001))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _show(context: Context, source: str, target: str, quote: Quote, tally: Tally | None) -> None:
    counts, sizes = (tally.counts, tally.sizes) if tally else (Counter[str](), Counter[str]())
    extent, how = quote.extent, "by the store itself" if quote.by_store else "streamed through this machine"
    document = {
        "executed": tally is not None,
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
        "seconds": round(tally.seconds, 3) if tally else None,
    }
    rows = [
        ("from", source),
        ("to", target),
        ("state", quote.state),
        ("objects", f"{counted(extent.objects, 'object')}, {_megabytes(extent.bytes)}, {how}"),
        ("not tierstate's", f"{counted(extent.foreign, 'object')}, neither copied nor deleted"),
        ("requests", f"about ${quote.price:.2f} at S3's prices; transfer out of a region costs extra"),
        ("writers", ", ".join(quote.writers) or "none"),
    ]
    for name, number in sorted(counts.items()):
        rows.append((name, f"{counted(number, 'object')}, {_megabytes(sizes[name])}"))
    if tally is not None:
        rows.append(("took", f"{tally.seconds:.1f} s, {_megabytes(tally.rate)} a second"))
    context.output.table(("what", "value"), rows, document)

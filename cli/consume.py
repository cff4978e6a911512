"""``tierstate consume``."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..app.opening.positions import Latest, Position
from ..runtime.clock import SystemClock
from ..runtime.units import counted
from ..state.errors import Unavailable
from ..state.offsets import Extent, Offset
from ..state.routing import Isolation, Tier
from .context import Context
from .flags import declare, view_source
from .parameter_types import POSITION, TopicArgument
from .reading import TopicReads, UnreadPartitions, chosen_partitions, isolation_option, opened_search

if TYPE_CHECKING:
    import pyarrow as pa

    from ..fetch.piece import Search
    from ..fetch.source import SearchedSource

FOLLOW_POLL_S, AGAIN_S = 0.25, 1.0
SAID_EVERY_S = 5.0
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_PARTS = re.compile(r"%[tpoksTh%]|\\[ntr0\\]|%.?")

Writer = Callable[["pa.RecordBatch", Tier], None]


@declare("consume user_events:0 --from @-1h --format '%o %k %s\\n'", topic="T[:P]")
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="Where to begin.")
@click.option("--to", "end", type=POSITION, help="Where to end, not included; else the end seen at the start.")
@click.option("-n", "limit", type=click.IntRange(0), help="At most so many records.")
@click.option("--key", help="Only records with exactly this key; with --encoding base64, given in base64.")
@click.option("--contains", help="Only records with this in their key, their value, or a header's name or value.")
@click.option("--follow", is_flag=True, help="Go on with new records, until interrupted; also after an outage.")
@click.option("--tier", type=click.Choice(["auto", "local", "remote"]), default="auto", show_default=True)
@isolation_option(Isolation.READ_COMMITTED)
@view_source()
@click.option(
    "--format",
    "template",
    default="%s\\n",
    help="%t %p %o %k %s %T %h: topic, partition, offset, key, value, time, headers.",
)
@click.option(
    "--encoding",
    type=click.Choice(["utf8", "base64"]),
    default="utf8",
    help="Of bytes, with --json; of --key and --contains.",
)
def command(
    context: Context,
    topic: TopicArgument,
    start: Position,
    end: Position | None,
    limit: int | None,
    key: str | None,
    contains: str | None,
    follow: bool,
    tier: str,
    isolation: str,
    template: str,
    encoding: str,
) -> None:
    """Read both tiers as one log, partition by partition.

    A topic that is gone (deleted, or of a cluster before this one) is named by its topic id: the remote tier has it.
    With --key or --contains it says on stderr how far it looked.
    A partition that cannot be read is named on stderr, the others are read, and the exit code is that of its error.
    With --source bucket no broker is asked: the view comes from the bucket, and says first how old it is.
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave out --to")
    if follow:
        context.refuse_bucket("--follow")
    write = _json_writer(encoding) if context.as_json else _template_writer(template)
    looking = _search(context, topic, key, contains, encoding)
    unread = UnreadPartitions(context, topic)
    with opened_search(context, topic, by_gateway=context.gateway is not None) as source, looking as search:
        reads, extents = TopicReads(source, topic, Isolation(isolation), Tier(tier)), dict[int, Extent]()
        for partition in chosen_partitions(source, topic):
            with unread.reading(partition):
                extents[partition] = reads.extent(partition, start, Latest() if end is None else end)
        for batch, served in _batches(source, reads, extents, follow, search, unread):
            taken = batch if limit is None else batch.slice(0, limit)
            write(taken, served)
            if limit is not None:
                limit -= taken.num_rows
                if limit == 0:
                    break
    sys.stdout.buffer.flush()
    unread.require_none()


def _batches(
    source: SearchedSource,
    reads: TopicReads,
    extents: dict[int, Extent],
    follow: bool,
    search: Search | None,
    unread: UnreadPartitions,
) -> Iterator[tuple[pa.RecordBatch, Tier]]:
    topic, isolation, tier = reads.topic.topic, reads.isolation, reads.tier
    while True:
        for partition, (_, end) in extents.items():
            with unread.reading(partition):
                while (start := extents[partition].start) < end:
                    if search is None:
                        batches = source.records(topic, partition, Extent(start, end), isolation, tier)
                    else:
                        batches = source.search_records(topic, partition, Extent(start, end), isolation, tier, search)
                    try:
                        for batch, served in batches:
                            yield batch, served
                            if batch.num_rows:
                                extents[partition] = Extent(Offset(batch.column("offset")[-1].as_py() + 1), end)
                    except Unavailable as error:
                        if not follow:
                            raise
                        unread.wait(error)
                        SystemClock().sleep(AGAIN_S)
                    else:
                        extents[partition] = Extent(end, end)
        extents = {partition: extent for partition, extent in extents.items() if partition not in unread.errors}
        if not follow or not extents:
            return
        sys.stdout.buffer.flush()
        SystemClock().sleep(FOLLOW_POLL_S)
        for partition, (start, end) in extents.items():
            with unread.reading(partition):
                try:
                    _, now = source.extent(topic, partition, isolation, tier)
                    extents[partition] = Extent(start, max(now, end))
                except Unavailable as error:
                    unread.wait(error)


@contextmanager
def _search(
    context: Context, topic: TopicArgument, key: str | None, contains: str | None, encoding: str
) -> Iterator[Search | None]:
    """Yield the search, or None without ``key`` and ``contains``. Notes show its progress, the last one at its end."""
    if key is None and contains is None:
        yield None
        return
    if contains == "":
        raise click.UsageError("--contains is at least one letter")
    from ..fetch.piece import Search

    clock = SystemClock()
    last_note = clock.monotonic()

    def say(search: Search) -> None:
        size, where = counted(search.bytes, "byte"), f"up to offset {search.reached} of {topic.topic}"
        context.output.note(f"looked through {counted(search.records, 'record')}, {size}, {where}")

    def report(search: Search) -> None:
        nonlocal last_note
        if clock.monotonic() - last_note >= SAID_EVERY_S:
            last_note = clock.monotonic()
            say(search)

    search = Search(_bytes("--key", key, encoding), _bytes("--contains", contains, encoding), report)
    try:
        yield search
    finally:
        say(search)


def _bytes(name: str, text: str | None, encoding: str) -> bytes | None:
    try:
        return text if text is None else b64decode(text, validate=True) if encoding == "base64" else text.encode()
    except ValueError:
        raise click.UsageError(f"{name} is not base64, as --encoding says") from None


def _json_writer(encoding: str) -> Writer:
    from ..log.json_lines import Encoding, json_lines

    def write(batch: pa.RecordBatch, tier: Tier) -> None:
        sys.stdout.buffer.writelines(json_lines(batch, Encoding(encoding), tier.value))

    return write


def _template_writer(template: str) -> Writer:
    from ..log.text_columns import printed, slices

    parts = [_part(text) for text in re.split(f"({_PARTS.pattern})", template) if text]

    def write(batch: pa.RecordBatch, tier: Tier) -> None:
        if all(isinstance(part, bytes) for part in parts):  # the template has no field, so no column is needed
            sys.stdout.buffer.write(b"".join(part for part in parts if isinstance(part, bytes)) * batch.num_rows)
            return
        for rows in slices(batch):
            sys.stdout.buffer.write(printed([part if isinstance(part, bytes) else part(rows) for part in parts]))

    return write


def _part(text: str) -> bytes | Callable[[pa.RecordBatch], pa.Array]:
    """Return a piece of a template: the function that makes a field's column, or the bytes of an escape or text."""
    from ..log.text_columns import FIELDS

    if text == "%%":
        return b"%"
    if text.startswith("%"):
        if text[1:] not in FIELDS:
            raise click.UsageError(f"no such field in --format: {text}; %% is a percent sign")
        return FIELDS[text[1:]]
    return _ESCAPES.get(text, text).encode()

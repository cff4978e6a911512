"""``tierstate digest``: one record digest, to compare two readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..app.opening.positions import Position
from ..state.errors import InvalidRequest, TierstateError
from ..state.offsets import Extent
from ..state.routing import Isolation, Tier
from .context import Context
from .flags import declare, view_source
from .parameter_types import POSITION, TopicArgument
from .reading import (
    TopicReads,
    UnreadPartitions,
    chosen_partitions,
    isolation_option,
    note_skipped,
    opened_reader,
    opened_source,
)

if TYPE_CHECKING:
    from ..fetch.plan import PlannedRange
    from ..fetch.planned_split import Skipped
    from ..fetch.source import RecordSource


@dataclass(frozen=True, slots=True)
class Counted:
    """Count and digest of the records of ``[start_offset, end_offset)`` of one partition, by one reader."""

    partition: int
    start_offset: int
    end_offset: int
    records: int
    digest: str


@declare("digest user_events --via broker --json", topic="T[:P]")
@click.option(
    "--via",
    type=click.Choice(["reader", "consumer", "broker", "gateway", "spark"]),
    help="Who reads, consumer unless --gateway is given: broker is Kafka's own client, the local tier only.",
)
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="Where to begin.")
@click.option("--to", "end", type=POSITION, default="latest", show_default=True, help="Where to end, exclusive.")
@isolation_option(Isolation.READ_COMMITTED)
@view_source()
@click.option("--per-segment", is_flag=True, help="Also the digest of each remote segment's range.")
@click.option(
    "--boundaries",
    type=click.Path(path_type=Path, dir_okay=False),
    help='Ranges too: {"0": [[0, 100], …]}, end exclusive.',
)
def command(
    context: Context,
    topic: TopicArgument,
    via: str | None,
    start: Position,
    end: Position,
    isolation: str,
    per_segment: bool,
    boundaries: Path | None,
) -> None:
    """Record count and record digest of each partition, and of the topic, as one reader sees them.

    A partition that cannot be read is named on stderr and has no digest, and the topic has none then. The others have
    theirs, and the exit code is that of its error.
    """
    from ..log.record_digest import topic_digest

    via = via or ("consumer" if context.gateway is None else "gateway")
    if context.gateway is not None and (via != "gateway" or per_segment):
        raise InvalidRequest(f"{'--per-segment' if via == 'gateway' else f'--via {via}'} asks no gateway: --gateway")
    level = Isolation(isolation)
    ranges = _ranges_of(boundaries) if boundaries else {}
    skipped: list[Skipped] = []
    wholes: list[Counted] = []
    parts: list[Counted] = []
    unread = UnreadPartitions(context, topic)
    with opened_source(context, topic, "reader" if via in ("consumer", "spark") else via, level) as source:
        if per_segment:
            ranges |= _segment_ranges(context, topic, source)
        reads, requests = TopicReads(source, topic, level), []
        for partition in chosen_partitions(source, topic):
            with unread.reading(partition):
                extent, inner = reads.extent(partition, start, end), ranges.get(partition, [])
                gaps = list(_skipped(reads, partition, extent))
                if via != "spark":
                    whole, ranged = _count(reads, partition, extent, inner)
                    wholes.append(whole)
                    parts += ranged
                skipped += gaps
                requests.append((partition, extent, inner))
    if via == "spark":
        wholes, parts = _count_by_spark(context, topic.topic, requests, level, unread)
    digests = {each.partition: (each.records, bytes.fromhex(each.digest)) for each in wholes}
    records, total = (None, None) if unread.errors else (sum(each.records for each in wholes), topic_digest(digests))
    document = {
        "topic": topic.topic,
        "via": via,
        "isolation": isolation,
        "records": records,
        "digest": total,
        "partitions": [asdict(each) for each in wholes],
        "ranges": [asdict(each) for each in parts],
        "skipped": [each._asdict() for each in skipped],
        "not_read": unread.as_json(),
    }
    rows: list[tuple[object, ...]] = [
        (f"{topic.topic}-{each.partition}{kind}", each.start_offset, each.end_offset, each.records, each.digest)
        for kind, counted in (("", wholes), (" part", parts))
        for each in counted
    ]
    rows += [(f"{topic.topic}-{partition}", None, None, None, "not read") for partition in sorted(unread.errors)]
    rows.append((topic.topic, None, None, records, total))
    context.output.table(("what", "from", "to", "records", f"digest ({isolation}, via {via})"), rows, document)
    note_skipped(context, skipped)
    unread.require_none()


def _skipped(reads: TopicReads, partition: int, extent: Extent) -> Iterator[Skipped]:
    """Yield the accepted gaps within the extent. Kafka's own client has none, because it reads the local tier only."""
    from ..fetch.gateway import GatewayClient
    from ..fetch.gateway_plans import asked_plan
    from ..fetch.plan import planned
    from ..fetch.reader import LogReader

    source, ranges = reads.source, {(reads.topic.topic, partition): extent}
    plan: list[PlannedRange] = []
    if extent.start < extent.end and isinstance(source, LogReader):
        plan = planned(source, ranges, isolation=reads.isolation, tier=Tier.AUTO)
    elif extent.start < extent.end and isinstance(source, GatewayClient):
        _, plan = asked_plan(source, ranges, reads.isolation, Tier.AUTO, 0.0)
    for planned_range in plan:
        yield from planned_range.whole.skipped


def _inside(extent: Extent, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of the half-open ranges that lie in ``extent``."""
    clipped = [(max(extent.start, low), min(extent.end, high)) for low, high in ranges]
    return [(low, high) for low, high in clipped if low < high]


def _count(
    reads: TopicReads, partition: int, extent: Extent, ranges: list[tuple[int, int]]
) -> tuple[Counted, list[Counted]]:
    from ..log.record_digest import RangeDigests

    inside = _inside(extent, ranges)
    digests = RangeDigests(inside)
    for batch, _ in reads.source.records(reads.topic.topic, partition, extent, reads.isolation, Tier.AUTO):
        digests.update(batch)
    whole = Counted(partition, *extent, digests.whole.count, digests.whole.hexdigest())
    parts = [
        Counted(partition, low, high, each.count, each.hexdigest())
        for (low, high), each in zip(inside, digests.parts, strict=True)
    ]
    return whole, parts


def _count_by_spark(
    context: Context,
    topic: str,
    selections: list[tuple[int, Extent, list[tuple[int, int]]]],
    isolation: Isolation,
    unread: UnreadPartitions,
) -> tuple[list[Counted], list[Counted]]:
    """Return the counts of the extents and of the ranges in them, by one Spark job.

    If that job fails, one job for each partition follows. Partitions that fail then are added to ``unread``.
    """
    from ..spark.digest import DigestRange, digest_via_spark
    from ..spark.options import options_of
    from ..spark.sessions import local_session

    alone = context.settings.view.source == "bucket"
    settings = context.settings_with("store.url", *([] if alone else ["kafka.bootstrap.servers"]))
    options = options_of(settings) | {"isolation": isolation.value, "includeHeaders": "true"}
    wholes = {partition: DigestRange(topic, partition, *extent) for partition, extent, _ in selections}
    parts = {
        partition: [DigestRange(topic, partition, low, high) for low, high in _inside(extent, ranges)]
        for partition, extent, ranges in selections
    }
    counts: dict[DigestRange, tuple[int, str]] = {}
    try:
        counts = digest_via_spark(options, [*wholes.values(), *(each for ranges in parts.values() for each in ranges)])
    except TierstateError:
        with local_session("tierstate-digest", 2) as session:
            for partition, whole in wholes.items():
                with unread.reading(partition):
                    counts |= digest_via_spark(options, [whole, *parts[partition]], session=session)

    def counted(ranges: Iterable[DigestRange]) -> list[Counted]:
        return [Counted(each.partition, each.start, each.end, *counts[each]) for each in ranges if each in counts]

    return counted(wholes.values()), counted(each for ranges in parts.values() for each in ranges)


def _segment_ranges(context: Context, topic: TopicArgument, source: RecordSource) -> dict[int, list[tuple[int, int]]]:
    """Return the half-open offset ranges of the remote segments, by partition.

    The view of ``source`` is used if it has one, because a second view would print its age again.
    """
    from ..fetch.reader import LogReader

    ranges = {}
    with ExitStack() as opened:
        reader = source if isinstance(source, LogReader) else opened.enter_context(opened_reader(context, topic))
        numbers = range(reader.topic(topic.topic).partitions)
        for partition in numbers if topic.partition is None else [topic.partition]:
            owned = reader.view(topic.topic, partition).coverage.owned
            ranges[partition] = [(int(each.offsets.start), each.offsets.end + 1) for each in owned]
    return ranges


def _ranges_of(path: Path) -> dict[int, list[tuple[int, int]]]:
    """Parse the file of ``--boundaries``. Raises InvalidRequest unless its ranges are ascending and disjoint."""
    try:
        document = json.loads(path.read_text())
        ranges = {int(number): [(int(low), int(high)) for low, high in each] for number, each in document.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InvalidRequest('boundaries are {"partition": [[start, end], …]}', file=path, reason=error) from error
    for pairs in ranges.values():
        edges = [edge for pair in pairs for edge in pair]
        if edges != sorted(edges):
            raise InvalidRequest("boundaries overlap or go back", file=path)
    return ranges

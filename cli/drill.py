"""``tierstate drill``."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from ..runtime.extras import require_columns
from ..runtime.units import counted, show_duration
from ..state.errors import Difference, InvalidRequest, Unavailable
from ..state.offsets import Extent, moment
from .context import Context
from .flags import declare
from .restore_target import target_broker

if TYPE_CHECKING:
    from ..app.opening.open import ReadersConnection
    from ..broker.open import Broker
    from ..restore.drill import Behind, TopicDrill
    from ..restore.topic import Source

COLUMNS = ("topic", "partition", "records", "outcome", "behind (RPO)", "seconds (RTO)", "whole topic, estimated")


@declare("drill --bootstrap-server standby:9092 --partitions 5", "drill --topic orders --seed 4711", name="drill")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated.")
@click.option(
    "--partitions", type=click.IntRange(min=1), default=3, show_default=True, help="How many are chosen by chance."
)
@click.option("--seed", metavar="TEXT", help="Choose as an earlier drill did; its report has the seed.")
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties (name=value) of the cluster to restore into, for one that asks for a login.",
)
def command(
    context: Context, topics: tuple[str, ...], partitions: int, seed: str | None, command_config: Path | None
) -> None:
    """Restore partitions from the bucket alone into a throw-away topic, compare every record, and delete it.

    Into the cluster of --bootstrap-server or --command-config, else into a Kafka on this machine, as `sandbox up` has.
    The cluster of the settings is only asked how far the bucket is behind it. The report is printed and kept in the
    bucket; agents show it as a metric. Exit code 1: a partition differs or was not restored.
    """
    from ..app.looking.drill_reports import Drill, put_report, report_key
    from ..runtime.clock import SystemClock

    require_columns("drill")
    server, context.bootstrap_server = context.bootstrap_server, None
    context.overrides += ("view.source=bucket",)
    clock, stop = SystemClock(), Event()
    at, began = clock.now_ms(), clock.monotonic()
    with _interruptible(stop), context.reading("store.url") as connection:
        sources, seed = _sources(connection, topics, partitions, seed)
        opened_s = clock.monotonic() - began
        with _target(context, server, command_config) as broker:
            drills = _drill(context, connection, sources, broker, stop)
        good = all(each.good for each in drills)
        cluster_id = connection.control.cluster().cluster_id
        document = {
            "at": moment(at),
            "cluster_id": cluster_id,
            "good": good,
            "seed": seed,
            "view_seconds": round(opened_s, 3),
            "rto_seconds": round(clock.monotonic() - began, 3),
            "topics": [each.as_json() for each in drills],
        }
        key = report_key(cluster_id, Drill(at, good))
        _show(context, drills, {**document, "key": key})  # before the put, which may fail
        put_report(connection.store, key, document)
    context.output.note(f"seed {seed}; report {key}")
    if not good:
        raise Difference("the drill failed: the report names the partitions", report=key)


@contextmanager
def _interruptible(stop: Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the restore, so that the throw-away topic is deleted."""

    def interrupted(number: int, frame: Any) -> None:
        stop.set()
        signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sources(
    connection: ReadersConnection, topics: Sequence[str], count: int, seed: str | None
) -> tuple[list[Source], str]:
    """Return the chosen partitions by topic, and the seed. Raises InvalidRequest if the bucket has no records."""
    from ..app.opening.positions import Earliest, Latest, offset_of
    from ..restore.drill import Place, chosen
    from ..restore.topic import Source
    from ..runtime.id_source import RandomIds
    from ..state.routing import Isolation, Tier

    seed = seed or RandomIds().uuid().hex()[:8]
    reader = connection.reader(connection.view())
    extents: dict[Place, Extent] = {}
    for topic in topics or [each.name for each in connection.control.topics()]:
        for number in reader.partitions(topic):
            if reader.view(topic, number).readable:
                start, end = (
                    offset_of(each, reader, topic, number, Isolation.READ_COMMITTED, Tier.AUTO)
                    for each in (Earliest(), Latest())
                )
                extents[Place(topic, number)] = Extent(start, max(start, end))
    places = chosen((place for place, extent in extents.items() if extent.start < extent.end), seed, count)
    if not places:
        raise InvalidRequest("the bucket has no record to restore", topics=",".join(topics) or "all")
    cluster_id = connection.control.cluster().cluster_id

    def name_of(topic: str, partition: int) -> str:
        return reader.view(topic, partition).topic or topic

    by_topic: dict[str, dict[int, Extent]] = {}
    for place in places:
        by_topic.setdefault(place.topic, {})[place.partition] = extents[place]
    sources = [
        Source(reader, cluster_id, topic, name_of(topic, min(ranges)), reader.topic(topic).topic_id, ranges)
        for topic, ranges in by_topic.items()
    ]
    return sources, seed


@contextmanager
def _target(context: Context, server: str | None, file: Path | None) -> Iterator[Broker]:
    from ..broker.open import open_broker
    from ..sandbox.kafka import KafkaSandbox

    if file is not None or server is not None:
        with target_broker(context, file, server) as broker:
            yield broker
        return
    context.output.note("starting a Kafka on this machine; --bootstrap-server names a cluster instead")
    with KafkaSandbox() as kafka, open_broker(kafka.client_config) as broker:
        yield broker


def _drill(
    context: Context, connection: ReadersConnection, sources: Sequence[Source], broker: Broker, stop: Event
) -> list[TopicDrill]:
    from ..app.operating.cluster_backup import newest_backup
    from ..restore.drill import behind, delete_left_behind, drill_topic
    from ..restore.partition import Tools
    from ..runtime.clock import SystemClock
    from ..runtime.id_source import RandomIds
    from ..state.ids import TopicId

    clock = SystemClock()
    for name in delete_left_behind(broker, clock.now_ms()):
        context.output.note(f"{name}, which a killed drill left, is deleted")

    def throttle(size: int) -> None:
        if stop.is_set():
            raise Unavailable("interrupted")

    backup = newest_backup(connection.store, sources[0].cluster_id)
    drills = []
    with _cluster(context) as cluster:
        for source in sources:
            total = sum(extent.end - extent.start for extent in source.ranges.values())
            with context.output.progress(f"restoring {source.topic}", total) as advance:
                tools = Tools(clock, throttle, advance)
                drill = drill_topic(source, broker, backup, tools, TopicId.of(RandomIds().uuid()))
            drill.behind.update(behind(source, cluster, backup, clock.now_ms()))
            drills.append(drill)
    return drills


@contextmanager
def _cluster(context: Context) -> Iterator[Broker | None]:
    """Yield the cluster of the settings, or None if they have none."""
    if context.settings.kafka.get("bootstrap.servers"):
        with target_broker(context, None) as broker:
            yield broker
    else:
        yield None


def _show(context: Context, drills: Sequence[TopicDrill], document: dict[str, Any]) -> None:
    if context.as_json:
        context.output.document(document)
        return
    rows: list[tuple[object, ...]] = []
    for drill in drills:
        for number in drill.source.ranges:
            compared = [each for each in drill.rows if each.partition == number]
            outcomes = {each.outcome for each in compared} or {"no record"}
            error = drill.errors.get(str(number)) or drill.errors.get("topic")
            rows.append(
                (
                    drill.source.name,
                    number,
                    sum(each.records for each in compared),
                    error or ", ".join(sorted(outcomes)),
                    _late(drill.behind[number]),
                    f"{drill.seconds:.1f}",
                    f"about {show_duration(int(drill.whole_topic_s) + 1)}",
                )
            )
    context.output.table(COLUMNS, rows)
    for reason in sorted({lag.reason for drill in drills for lag in drill.behind.values() if lag.reason}):
        context.output.note(f"the RPO is not known: {reason}")
    view_s, all_s = document["view_seconds"], document["rto_seconds"]
    context.output.note(f"{all_s:.1f} s in all, {view_s:.1f} s of them for the view")


def _late(lag: Behind) -> str:
    if lag.offsets is None or (lag.by == "groups" and lag.offsets == 0):
        return "unknown"
    age = "" if lag.seconds is None else f", {show_duration(int(lag.seconds))}"
    return f"{'at least ' if lag.by == 'groups' else ''}{counted(lag.offsets, 'offset')}{age}"

"""``tierstate restore TOPIC`` and ``tierstate restore groups``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..app.opening.positions import Position
from ..rules.reasons import about_size
from ..runtime.extras import require_columns
from ..runtime.units import counted
from ..state.errors import Difference, InvalidRequest
from ..state.offsets import TimestampMs, moment
from ..state.routing import Isolation
from .context import Context
from .flags import declare, view_source
from .parameter_types import POSITION, RATE, TopicArgument
from .reading import TopicReads, chosen_partitions
from .restore_definitions import acls, as_of, quotas, subjects
from .restore_target import command_config, pair, target_broker

if TYPE_CHECKING:
    from ..app.opening.open import ReadersConnection
    from ..app.operating.cluster_backup import Backup
    from ..broker.open import Broker
    from ..restore.groups import GroupMove
    from ..restore.ledger import Progress
    from ..restore.target import TargetPlan
    from ..restore.topic import Source, Target, TopicRestored

TOPIC = "topic"


class Restore(click.Group):
    """``restore orders …`` is short for ``restore topic orders …``, whatever comes first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not {args[0]} & {*self.commands, *self.get_help_option_names(ctx)}:
            args = [TOPIC, *args]
        return super().parse_args(ctx, args)


@click.group("restore", cls=Restore, epilog="Example: tierstate restore orders --into orders --source bucket --execute")
def command() -> None:
    """Bring a topic back into any Kafka cluster, and its groups with it: `restore TOPIC`, then `restore groups`."""


@declare(
    "restore topic orders --into orders --source bucket",
    "restore topic orders --into orders --source bucket --execute --verify report.json",
    name=TOPIC,
    topic="T[:P]",
    execute=False,
    group=command,
)
@click.option(
    "--into", required=True, metavar="TOPIC", help="The target topic: a new one, an empty one, or a begun one."
)
@command_config
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="Where to begin.")
@click.option("--to", "end", type=POSITION, default="latest", show_default=True, help="Where to end, exclusive.")
@view_source()
@click.option("--topic-config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of a new topic.")
@click.option("--max-rate", type=RATE, metavar="SIZE", help="At most so much a second (10MiB), of all partitions.")
@click.option(
    "--verify",
    "report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compare both topics by record digests, and write a report to this new file.",
)
def topic(
    context: Context,
    topic: TopicArgument,
    into: str,
    command_config: Path | None,
    start: Position,
    end: Position,
    settings: tuple[str, ...],
    max_rate: int | None,
    report: Path | None,
    execute: bool,
) -> None:
    """Produce committed records of both tiers, or of the bucket alone, into a topic: each exactly once.

    Partitions, keys, values, headers, times and order stay. Offsets change; the map of them is kept in the bucket.
    Killed at any point and run again, it goes on. If two run at once, the earlier one is refused.
    """
    if report is not None:
        require_columns("restore --verify")
        if report.exists():
            raise InvalidRequest("the report exists: name a new file", file=report)
    overrides = dict(pair(each) for each in settings)
    with _opened_source(context, topic, start, end) as (connection, source):
        with target_broker(context, command_config) as broker:
            plan = _plan(context, connection, source, broker, into, overrides)
            _show_plan(context, source, plan, execute)
            if not execute and (report is None or plan.create is not None):
                context.output.note("nothing was done: --execute does it")
                return
            target = _target(connection, broker, plan)
            result = _restore(context, source, target, max_rate) if execute else None
            outcome = None if report is None else _verify(context, source, target, report)
    if result is not None:
        _show(context, source, target, result)
        for error in result.errors.values():
            raise error
    if outcome is not None and outcome:
        raise Difference("the target is not the source", ranges=outcome, report=report)


@declare("restore groups orders --group billing --execute", name="groups", topic="T", execute=False, group=command)
@command_config
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated.")
@as_of
def groups(
    context: Context,
    topic: TopicArgument,
    command_config: Path | None,
    groups: tuple[str, ...],
    until: TimestampMs | None,
    execute: bool,
) -> None:
    """Set the offsets of groups on a restored topic: those of a backup, through the map of the restore.

    A group goes on at the record that it would have read next. No record is skipped that it had not read.
    """
    from ..app.opening.moved import open_followed
    from ..app.operating.cluster_backup import newest_backup
    from ..restore.groups import moves, set_offsets
    from ..runtime.clock import SystemClock

    settings = context.settings_with("store.url")
    with target_broker(context, command_config) as broker, closing(open_followed(settings)) as store:
        maps = _maps(broker, topic.topic, store)
        origin = next(iter(maps.values())).origin
        backup = newest_backup(store, origin.cluster_id, until)
        if backup is None:
            raise InvalidRequest(
                "the bucket has no backup of this cluster: tierstate backup", cluster_id=origin.cluster_id
            )
        context.output.note(f"backup of cluster {backup.cluster_id}, {moment(backup.at)}")
        group_moves = list(moves(backup, origin.topic, origin.topic_id, maps, groups))
        if execute:
            set_offsets(broker.raw, SystemClock(), topic.topic, group_moves)
    _show_moves(context, topic.topic, backup, group_moves, execute)


for _each in (acls, quotas, subjects):
    command.add_command(_each)


def _maps(broker: Broker, topic: str, store: Any) -> dict[int, Progress]:
    from ..broker.topics import describe_topic
    from ..restore.topic import Target

    described = describe_topic(broker.raw, topic)
    target = Target(broker, broker.control.cluster().cluster_id, topic, described.topic_id, store)
    maps = {
        each.partition: progress
        for each in described.partitions
        if (progress := target.progress(each.partition)) is not None
    }
    if not maps:
        raise InvalidRequest("no restore into this topic is in the bucket", topic=topic, topic_id=described.topic_id)
    return maps


@contextmanager
def _opened_source(
    context: Context, topic: TopicArgument, start: Position, end: Position
) -> Iterator[tuple[ReadersConnection, Source]]:
    from ..app.opening.partitions import find_partitions
    from ..restore.topic import Source

    with context.reading("kafka.bootstrap.servers", "store.url") as connection:
        context.wait_for_kafka(connection)
        partitions = find_partitions(connection.control, topic.topic, topic.partition)
        reader = connection.reader(connection.view(partitions))
        reads = TopicReads(reader, topic, Isolation.READ_COMMITTED)
        described = reader.topic(topic.topic)
        ranges = {each: reads.extent(each, start, end) for each in chosen_partitions(reader, topic)}
        name = reader.view(topic.topic, min(ranges)).topic or topic.topic
        cluster_id = connection.control.cluster().cluster_id
        yield connection, Source(reader, cluster_id, topic.topic, name, described.topic_id, ranges)


def _plan(
    context: Context,
    connection: ReadersConnection,
    source: Source,
    broker: Broker,
    into: str,
    overrides: Mapping[str, str],
) -> TargetPlan:
    from ..app.opening.bucket_connection import parse_moment
    from ..app.operating.cluster_backup import newest_backup
    from ..restore.target import plan_target

    now = connection.clock.now_ms()
    until = parse_moment(context.settings.view.as_of, now).to.time
    backup = newest_backup(connection.store, source.cluster_id, until)
    described = None if backup is None else backup.topics.get(source.name)
    if described is not None and described.topic_id != str(source.topic_id):
        described = None
    partitions = max(source.ranges) + 1 if described is None else max(described.partitions, max(source.ranges) + 1)
    return plan_target(broker, into, partitions, described, overrides, (source.oldest(), now))


def _show_plan(context: Context, source: Source, plan: TargetPlan, execute: bool) -> None:
    from ..restore.partition import CHUNK_BYTES

    note = context.output.note
    for each in plan.notes:
        note(each)
    if execute:
        return
    price = source.price(CHUNK_BYTES)
    created = None if plan.create is None else asdict(plan.create)
    if context.as_json:
        ranges = {number: list(extent) for number, extent in source.ranges.items()}
        document = {"topic": source.topic, "into": plan.topic, "executed": False, "create": created, "ranges": ranges}
        context.output.document({**document, **price, "notes": plan.notes})
        return
    if plan.create is not None:
        config = " ".join(f"{name}={value}" for name, value in sorted(plan.create.config.items()))
        note(f"{plan.topic} is created with {counted(plan.create.partitions, 'partition')}: {config}")
    context.output.table(("what", "about"), [(name.replace("_", " "), value) for name, value in price.items()])


def _target(connection: ReadersConnection, broker: Broker, plan: TargetPlan) -> Target:
    from ..restore.target import opened_topic
    from ..restore.topic import Target

    described = opened_topic(broker, plan, connection.clock)
    cluster_id = broker.control.cluster().cluster_id
    return Target(broker, cluster_id, plan.topic, described.topic_id, connection.store)


def _restore(context: Context, source: Source, target: Target, max_rate: int | None) -> TopicRestored:
    from ..restore.partition import Tools
    from ..restore.topic import restore_topic
    from ..runtime.clock import SystemClock
    from ..runtime.quota import ByteQuota

    clock = SystemClock()
    quota = ByteQuota(clock, max_rate or 0)
    began = clock.monotonic()
    total = sum(extent.end - extent.start for extent in source.ranges.values())
    with context.output.progress(f"restoring {source.topic}", total) as advance:
        result = restore_topic(source, target, Tools(clock, quota.take, advance))
    seconds = max(clock.monotonic() - began, 0.001)
    sent = sum(each.bytes for each in result.partitions.values())
    if result.partitions:  # what a partition sent before it failed is not known
        context.output.note(f"{about_size(sent)} in {seconds:.1f} s, {about_size(int(sent / seconds))}/s")
    return result


def _show(context: Context, source: Source, target: Target, result: TopicRestored) -> None:
    rows, documents = [], []
    for number, each in sorted(result.partitions.items()):
        progress = each.progress
        row = {
            "partition": number,
            "source_start": progress.source_start,
            "source_end": progress.source_end,
            "target_start": progress.target_start,
            "target_end": progress.target_end,
            "records": sum(one.records for one in progress.ranges),
            "sent_now": each.records,
            "matched": each.matched,
            "batches_rewritten": each.rewritten,
            "ranges": len(progress.ranges),
        }
        rows.append(list(row.values()))
        documents.append({**row, "bytes": each.bytes, "map": [list(one) for one in progress.ranges]})
    columns = [name.replace("_", " ") for name in row] if rows else ["partition restored to its end: none"]
    document = {
        "topic": source.topic,
        "topic_id": str(source.topic_id),
        "into": target.topic,
        "target_topic_id": str(target.topic_id),
        "target_cluster_id": target.cluster_id,
        "executed": True,
        "partitions": documents,
        "not_restored": [{"partition": number, "error": str(error)} for number, error in sorted(result.errors.items())],
    }
    context.output.table(columns, rows, document)
    for number, error in sorted(result.errors.items()):
        context.output.note(f"{source.topic}-{number} is not restored to its end: {error}")


def _verify(context: Context, source: Source, target: Target, report: Path) -> int:
    """Write the report. Return the number of ranges that differ."""
    from ..restore.verify import DIFFERENT, compared
    from ..restore.verify import report as as_json
    from ..runtime.clock import SystemClock

    rows = [each for number in source.ranges for each in compared(source, target, number)]
    document = {"at": moment(SystemClock().now_ms()), **as_json(source, target, rows)}
    with report.open("x", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    different = [row.outcome for row in rows].count(DIFFERENT)
    records = sum(row.records for row in rows)
    outcome = f"{different} of them differ" if different else "none differs"
    context.output.note(f"{counted(records, 'record')} compared in {counted(len(rows), 'range')}: {outcome}; {report}")
    return different


def _show_moves(context: Context, topic: str, backup: Backup, moves: Iterable[GroupMove], execute: bool) -> None:
    rows = [asdict(each) for each in moves]
    columns = ("group", "partition", "offset", "target", "lost")
    document = {"into": topic, "backup_at": backup.at, "executed": execute, "groups": rows}
    context.output.table(columns, [list(row.values()) for row in rows], document)
    if any(row["lost"] for row in rows):
        context.output.note("lost: offsets that the group had read behind what was restored; it goes on at the end")
    context.output.note("the offsets are set" if execute else "nothing was done: --execute sets these offsets")

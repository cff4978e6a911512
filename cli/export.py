"""``tierstate export``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from ..app.opening.positions import Position
from ..runtime.extras import require_columns
from ..runtime.operation import run
from ..runtime.units import counted
from ..state.errors import Difference, InvalidRequest
from ..state.routing import Isolation
from .context import Context
from .flags import declare, view_source
from .lake import by_spark
from .parameter_types import POSITION, SIZE, TopicArgument
from .reading import TopicReads, chosen_partitions, gateway_access, isolation_option, note_skipped
from .typed_flags import TypedFlags, latest_schema, typed_options

if TYPE_CHECKING:
    from ..lake.columns import Columns
    from ..lake.export import Export, FailedRange, Wanted
    from ..lake.export_open import Into


@declare(
    "export orders --from @2026-01-01 --into s3://lake/kafka",
    "export orders --into s3://lake/kafka --check",
    topic="T[:P]",
    execute=True,
)
@click.option("--into", required=True, metavar="URL", help="Where to: file:///…, s3://, gs://, az://.")
@click.option("--from", "start", type=POSITION, default="earliest", show_default=True, help="Where to begin.")
@click.option("--to", "end", type=POSITION, default="latest", show_default=True, help="Where to end, exclusive.")
@isolation_option(Isolation.READ_COMMITTED)
@view_source()
@click.option("--columns", metavar="NAMES", help="Of key,value,topic,partition,offset,timestamp,timestampType,headers.")
@typed_options
@click.option("--processes", type=click.IntRange(1, 256), help="How many at a time. Without it one for each processor.")
@click.option("--spark", is_flag=True, help="By the tasks of a Spark job, wherever spark-submit says.")
@click.option("--file-bytes", type=SIZE, default="128MiB", show_default=True, help="Log bytes of a file, about.")
@click.option("--row-group-bytes", type=SIZE, default="32MiB", show_default=True, help="Of keys and values.")
@click.option("--check", is_flag=True, help="Hold what was exported against the log, row by row; write nothing.")
@click.option("--give-up", is_flag=True, help="End what was begun as it is; what is missing is said. Needs --execute.")
def command(
    context: Context,
    topic: TopicArgument,
    into: str,
    start: Position,
    end: Position,
    isolation: str,
    columns: str | None,
    typed: TypedFlags,
    processes: int | None,
    spark: bool,
    file_bytes: int,
    row_group_bytes: int,
    check: bool,
    give_up: bool,
    execute: bool,
) -> None:
    """Write a range of both tiers as Parquet files by topic and date: each record exactly once.

    Run again it goes on: with what was begun, then with what is asked for and not there yet. Killed at any point, it
    makes the same files. A manifest names every file, its offsets, its count of records and their record digest.
    --dry-run tells what would be read, written and paid. --check proves the files against the log. An export that
    cannot be finished, because its range expired, is ended by --give-up.
    """
    require_columns("export")
    if spark and processes is not None:
        raise InvalidRequest("--spark or --processes, not both")
    count = processes or os.cpu_count() or 1
    # before the imports, so that worker processes load their modules at the same time; a dry run needs no workers
    if spark:
        run = by_spark()
    else:
        from ..lake.runs import in_processes

        run = in_processes(count if execute and not give_up else 1)

    from ..lake.export import Wanted
    from ..lake.export_open import Into
    from ..lake.export_plan import Shape
    from ..lake.parquet import WRITER
    from ..log.record_columns import record_schema

    level = Isolation(isolation)
    names = record_schema(columns=columns.split(",") if columns else None).names
    note = context.output.note
    making = execute and not check and not give_up
    with _opened(context, topic, Into(context.settings, into, run, context.output.progress, note, making)) as export:
        if check:
            _check(context, export, topic.topic)
            return
        if give_up:
            _give_up(context, export, topic.topic)
            return
        reads = TopicReads(export.log.source, topic, level)
        ranges = {each: reads.extent(each, start, end) for each in chosen_partitions(reads.source, topic)}
        shape = Shape(_columns(context, export, typed, names, topic.topic), level, row_group_bytes, WRITER)
        request = Wanted(topic.topic, ranges, shape, file_bytes)
        if execute:
            _do(context, export, request)
        else:
            _quote(context, export, request, count)


@contextmanager
def _opened(context: Context, topic: TopicArgument, into: Into) -> Iterator[Export]:
    from ..lake.export_open import open_export, open_gateway_export

    if context.gateway is not None:
        with open_gateway_export(gateway_access(context), topic.topic, into) as opened:
            yield opened
        return
    needed = () if context.settings.view.source == "bucket" else ("kafka.bootstrap.servers", "store.url")
    with context.reading(*needed) as connection, open_export(connection, topic.topic, topic.partition, into) as opened:
        yield opened


def _columns(context: Context, export: Export, typed: TypedFlags, names: list[str], topic: str) -> Columns:
    """Return the columns. A schema of the registry that an earlier export to the same place used is used again."""
    plans = export.ledger.plans() if typed.of_registry else []
    return typed.columns(names, topic, latest_schema(context.settings), plans[0].shape.columns if plans else None)


def _do(context: Context, export: Export, request: Wanted) -> None:
    done = export.do(request)
    document = {
        "topic": request.topic,
        "topic_id": str(export.ledger.topic_id),
        "into": export.into,
        "exports": [plan.number for plan in done.plans],
        "tasks": done.tasks,
        "tasks_found": done.tasks_found,
        "records": done.records,
        "corrupt": done.corrupt,
        "files": done.files,
        "bytes": done.bytes,
        "skipped": [each._asdict() for each in done.skipped],
        "not_exported": [each.as_json() for each in done.not_exported],
    }
    if context.as_json:
        context.output.document(document)
    elif not done.plans and not done.not_exported:
        context.output.line(f"nothing is left to export: {export.into} has all of it")
    else:
        summary = f"{counted(done.records, 'record')} in {counted(done.files, 'file')}, {counted(done.bytes, 'byte')}"
        context.output.line(f"{summary}, in {export.into}")
    note_skipped(context, done.skipped)
    if done.corrupt and not context.as_json:
        context.output.note(f"{done.corrupt:,} of them do not parse: their bytes are in the column _corrupt")
    if done.not_exported:
        _refuse(context, request.topic, done.not_exported)


def _refuse(context: Context, topic: str, not_exported: list[FailedRange]) -> NoReturn:
    """Print a note for each range that is not exported, and raise the error of the first range."""
    for each in not_exported:
        context.output.note(f"{each.place(topic)} is not exported: {each.error}")
    context.output.note(
        "what is exported stays. When this is mended, run the same command again. "
        "To end an export without these ranges: --give-up --execute"
    )
    raise not_exported[0].error


def _quote(context: Context, export: Export, request: Wanted, processes: int) -> None:
    from ..lake.export import Exported
    from ..lake.export_quote import quote

    done = Exported()
    plan = export.next_plan(request, done)
    numbers = asdict(
        quote(export.jobs(plan, plan.tasks, done.refuse) if plan else (), request.shape.columns, processes)
    )
    numbers["skipped"] = [each._asdict() for each in plan.skipped] if plan else []
    numbers["not_exported"] = [each.as_json() for each in done.not_exported]
    if context.as_json:
        context.output.document({"topic": request.topic, "into": export.into, "executed": False, **numbers})
        return
    context.output.table(
        ("what", "about"),
        [(name.replace("_", " "), value) for name, value in numbers.items() if not isinstance(value, list)],
    )
    note_skipped(context, plan.skipped if plan else ())
    for each in done.not_exported:
        context.output.note(f"{each.place(request.topic)} cannot be read: {each.error}")
    context.output.note("nothing was done: this is --dry-run")


def _give_up(context: Context, export: Export, topic: str) -> None:
    """Show the missing ranges of unfinished exports, and give them up only if ``--execute`` was typed.

    The default of the command, which is to execute, is only for adding files.
    """
    current = click.get_current_context()
    execute = current.params["execute"] and current.get_parameter_source("execute") is ParameterSource.COMMANDLINE
    columns, rows = ("export", "partition", "start", "end"), []
    for plan in export.ledger.open_plans():
        if execute:
            run(export.ledger.give_up(plan))
        rows += [(plan.number, task.partition, task.start, task.end) for task in export.ledger.missing(plan)]
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    document = {"topic": topic, "into": export.into, "executed": execute, "missing": named}
    context.output.table(columns, rows, document)
    if not rows:
        context.output.note("nothing was begun that is not finished")
    elif execute:
        context.output.note("given up: these ranges are missing; the next export may have them")
    else:
        context.output.note("nothing was done: --execute gives these ranges up, and removes files that were begun")


def _check(context: Context, export: Export, topic: str) -> None:
    from ..lake.export_check import check

    done = check(export)
    counts = {
        "records": done.records,
        "files": done.files,
        "files_by_bytes_alone": done.by_bytes,
        "records_by_bytes_alone": done.lost,
        "offsets_given_up": done.given_up,
    }
    if context.as_json or done.findings:
        context.output.table(
            ("file", "problem", "offset"),
            [(each.key, each.problem, each.offset) for each in done.findings],
            {"topic": topic, "into": export.into, "findings": [asdict(each) for each in done.findings], **counts},
        )
    for error in done.errors:
        raise error
    if done.findings:
        raise Difference("an export is not the log", findings=len(done.findings))
    context.output.note(f"{counted(done.records, 'record')} in {counted(done.files, 'file')}: the log's, row by row")
    if done.lost:
        context.output.note(
            f"{counted(done.lost, 'record is', 'records are')} no longer in the log: their files are as written "
            f"({counted(done.by_bytes, 'file')} with no other records)"
        )
    if done.given_up:
        context.output.note(f"{counted(done.given_up, 'offset is', 'offsets are')} missing: given up")

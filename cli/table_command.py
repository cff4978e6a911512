"""``tierstate table`` and its commands. ``compact``, ``list``, ``repair`` and ``show`` have their own modules."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from ..runtime.units import counted
from ..state.errors import Difference, InvalidRequest, TierstateError
from ..state.offsets import moment
from ..state.routing import Isolation
from .context import Context
from .flags import declare, view_source
from .lake import NEEDED, by_spark, catalog_of
from .parameter_types import TopicArgument
from .reading import isolation_option, note_skipped
from .table_compact import compact
from .table_flags import choice_options, chosen, note_bytes, pace_options, shape_options, upsert_options
from .table_look import show, show_made, show_one
from .table_repair import repair
from .typed_flags import TypedFlags, enveloped, latest_schema, schema_text, typed_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..lake.runs import Run
    from ..lake.table import LakeTable
    from ..lake.table_shape import TableShape
    from ..values.form import Form


@click.group("table", epilog="Example: tierstate table create orders; tierstate table follow --once")
def command() -> None:
    """Iceberg tables that follow topics: every record once, and what the log deletes is deleted."""


command.add_command(compact)
command.add_command(repair)
command.add_command(show)
command.add_command(show_one)


@declare("table create orders --name kafka.orders --keep", topic="T[:P]", execute=True, group=command)
@click.option("--name", metavar="NAMESPACE.TABLE", help="Of the table; without it kafka and the topic's name.")
@isolation_option(Isolation.READ_COMMITTED)
@click.option("--columns", metavar="NAMES", help="Of key,value,topic,partition,offset,timestamp,timestampType,headers.")
@click.option("--keep", is_flag=True, help="Rows stay when the log deletes their records: an archive.")
@click.option("--branch", default="main", show_default=True, help="Of the table, which gets the rows.")
@typed_options
@click.option("--flatten", is_flag=True, help="Each field of the values is a column of the table.")
@click.option("--metadata-prefix", default="kafka_", show_default=True, help="Of the other columns, with --flatten.")
@shape_options
@upsert_options
@choice_options
@click.option("--also", multiple=True, metavar="TOPIC", help="Its records are rows, too; more than once.")
def create(
    context: Context,
    topic: TopicArgument,
    name: str | None,
    isolation: str,
    columns: str | None,
    keep: bool,
    branch: str,
    typed: TypedFlags,
    flatten: bool,
    metadata_prefix: str,
    shape: TableShape,
    upsert: tuple[str, ...],
    envelope: str | None,
    dead_letter: str | None,
    route: tuple[str | None, str | None],
    subject: str | None,
    also: tuple[str, ...],
    execute: bool,
) -> None:
    """Create an empty table that follows a topic. Rows come by `tierstate table follow`.

    --value-format makes a typed column of values, and with --flatten a column of each field; what does not parse keeps
    its bytes in _corrupt. Where the schema is the registry's latest, the table grows with it. A table with --upsert
    keeps rows whose records the log deletes.
    """
    with catalog_of(context, new=True) as catalog, context.connected(only_kafka=True) as connection:
        from ..lake.compacted import require_foldable
        from ..lake.table_catalog import require_new
        from ..lake.table_facts import TableFacts, iceberg_schema
        from ..lake.table_shape import TableShape, key_columns, shape_text
        from ..log.record_columns import record_schema

        described = connection.control.topic(topic.topic)
        names = tuple(columns.split(",")) if columns else tuple(record_schema().names)
        prefix = metadata_prefix if flatten else None
        latest = latest_schema(context.settings)
        if upsert and (route[0] or subject):
            raise InvalidRequest("--upsert or --route-by, not both: a record that deletes has no field")
        made = typed.of_subject(subject).columns(names, described.name, latest, prefix=prefix, envelope=envelope)
        others = [connection.control.topic(each) for each in also]
        made = replace(made, topics=(described.name, *also) if also else ())
        made, corrupt = chosen(made, dead_letter, route, subject)
        schema = iceberg_schema(made.schema())
        keys = key_columns(schema, made, upsert)
        grows = tuple(part.name for part in (typed.key, typed.value) if part.of_registry)
        facts = TableFacts(
            described.name,
            described.topic_id,
            Isolation(isolation),
            (made,),
            keep or bool(keys),
            grows,
            branch,
            keys,
            tuple(each.topic_id for each in others),
            dead_letter or "",
        )
        full_name = name or default_name(described.name)
        tables = [(full_name, facts, shape)]
        if dead_letter:
            tables.insert(
                0, (dead_letter, replace(facts, versions=(corrupt,), upsert=(), dead_letter=""), TableShape())
            )
        configs = [connection.control.config(each) for each in facts.topics]
        note_bytes(context, made)
        for new_table in tables:
            require_new(catalog, *new_table)
            for config in configs:
                require_foldable(new_table[1], config)
        if execute:
            show_made(context, [catalog.create(*new_table) for new_table in tables])
            return
        rows = [("table", full_name), ("topic", facts.topic), ("keep", facts.keep), ("upsert", ", ".join(keys))]
        rows += (facts.columns.said() | shape_text(shape.spec(schema, made), shape.order(schema, made), schema)).items()
        context.output.table(("what", "value"), rows, {**dict(rows), "executed": False})
        context.output.note("nothing was made: this is --dry-run")


@declare("table check kafka.orders", group=command)
@click.argument("table")
@click.option("--local", is_flag=True, help="The local tier counts too, where the table followed it (follow --local).")
@click.option(
    "--max-behind",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="RECORDS",
    help="Exit code 1 where the table has less than the topic by more offsets than these.",
)
@view_source()
def check(context: Context, table: str, local: bool, max_behind: int) -> None:
    """Hold every row of a table against the log, partition by partition. Exit code 1 where they differ.

    The table should have what the topic had when the check began: in the remote tier, or with --local in both.
    """
    with catalog_of(context) as catalog, context.reading(*NEEDED) as connection:
        from ..lake.table_check import check_table
        from ..lake.table_open import open_log

        target = catalog.table(table)
        with open_log(connection, target.facts, context.output.note, local=local) as (log, keep):
            done = check_table(target, log, keep=keep)
    columns = ("partition", "start", "end", "behind", "rows", "corrupt_records", "older_rows", "digest")
    label = partial(_label, target)
    rows = [
        (label(each.partition), each.start, each.end, each.behind, each.rows, each.corrupt, each.older, each.digest)
        for each in done.partitions
    ]
    skipped = [gap for each in done.partitions for gap in each.skipped]
    findings = [
        {"partition": label(each.partition), "problem": each.problem, "offset": each.offset} for each in done.findings
    ]
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    document = {"table": target.name, "behind": done.behind, "partitions": named, "findings": findings}
    document["skipped"] = [gap._asdict() for gap in skipped]
    document["foreign"] = [asdict(each) for each in done.foreign]
    context.output.table(columns, rows, document)
    note_skipped(context, skipped)
    for each in done.findings:
        where = "" if each.partition is None else f"partition {label(each.partition)}: "
        at = "" if each.offset is None else f", from offset {each.offset} on"
        context.output.note(f"{where}{each.problem}{at}")
    for commit in done.foreign:
        context.output.note(
            f"another engine committed: {commit.operation} by {commit.engine or 'an unnamed engine'} at"
            f" {moment(commit.timestamp_ms)}, {counted(commit.added_rows, 'row')} added and"
            f" {commit.deleted_rows:,} deleted, snapshot {commit.snapshot_id}"
        )
    for error in done.errors:
        raise error
    if done.findings:
        raise Difference("a table is not its log", table=target.name, findings=len(done.findings))
    if done.behind > max_behind:
        raise Difference("a table is behind its topic", table=target.name, behind=done.behind, max_behind=max_behind)


def _label(table: LakeTable, number: int | None) -> object:
    return None if number is None else table.facts.columns.label(number)


@declare("table evolve kafka.orders --value-schema orders.ddl --execute", execute=False, group=command)
@click.argument("table")
@click.option("--value-schema", metavar="FILE|TEXT", help="What values have by now: DDL or Avro, as the table's.")
@click.option("--key-schema", metavar="FILE|TEXT", help="Of keys, likewise.")
@shape_options
def evolve(
    context: Context, table: str, value_schema: str | None, key_schema: str | None, shape: TableShape, execute: bool
) -> None:
    """Add fields to a typed table's columns, widen types, or change partitions and order. Rows that are there stay.

    Without a schema here the registry's latest, of a table that grows with it: then `follow` does it by itself, once it
    meets one. Run again it does nothing.
    """
    with catalog_of(context) as catalog:
        from ..lake.table_commit import evolve_table
        from ..lake.table_open import fresh_attempt
        from ..lake.table_shape import TableShape

        lake_table = catalog.table(table)
        schemas = {"key": key_schema, "value": value_schema}
        same = shape != TableShape() and not any(schemas.values())
        forms = {} if same else _wanted(context, lake_table, schemas)
        changes = evolve_table(lake_table, forms, fresh_attempt, execute=execute, shape=shape)
    columns = ("field", "before", "after")
    rows = [(each.field, each.before or "", each.after) for each in changes]
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    document = {"table": lake_table.name, "version": lake_table.facts.version, "changes": named, "executed": execute}
    context.output.table(columns, rows, document)
    if not changes:
        context.output.note("the table has all of it")
    elif not execute:
        context.output.note("nothing was done: --execute does it, and nothing takes it back")


def _wanted(context: Context, table: LakeTable, schemas: Mapping[str, str | None]) -> dict[str, Form]:
    """Return the new form of each column, by name: from ``schemas``, or from the registry for columns that use it.

    Raises InvalidRequest if a schema is for a column of bytes, or if there is neither a schema nor such a column.
    """
    forms, latest = table.facts.columns.forms, latest_schema(context.settings)
    texts = {name: text for name, text in schemas.items() if text is not None}
    for name in texts.keys() - forms.keys():
        raise InvalidRequest("bytes cannot become typed: create another table", table=table.name, column=name)
    if texts:
        forms = {name: replace(forms[name], schema=schema_text(text)) for name, text in texts.items()}
        if table.facts.columns.envelope and "value" in forms:
            forms["value"] = enveloped(forms["value"])
        return forms
    if not table.facts.grows:
        raise InvalidRequest("nothing says what is wanted: --value-schema or --key-schema", table=table.name)
    only = table.facts.columns.only
    subjects = {"value": only.subject} if only is not None and only.subject else {}
    return {name: latest(subjects.get(name, f"{table.facts.topic}-{name}")) for name in table.facts.grows}


@declare("table drop kafka.orders --execute", execute=False, group=command)
@click.argument("table")
def drop(context: Context, table: str, execute: bool) -> None:
    """Take a table out of the catalog. Its files stay where they are: delete the folder that is named."""
    with catalog_of(context) as catalog:
        lake_table = catalog.table(table)
        files = lake_table.data_files()
        rows = [
            ("table", lake_table.name),
            ("topic", lake_table.facts.topic),
            ("location", lake_table.iceberg.location()),
            ("rows", sum(each.record_count for each in files)),
            ("files", len(files)),
        ]
        if execute:
            catalog.drop(table)
    context.output.table(("what", "value"), rows, {**dict(rows), "executed": execute})
    context.output.note("dropped; its files stay" if execute else "nothing was done: --execute drops it")


@declare("table follow", group=command)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--once", is_flag=True, help="Until every table has what is there now; then end.")
@click.option("--local", is_flag=True, help="Up to the last stable offset, not only what was copied.")
@click.option("--processes", type=click.IntRange(1, 256), help="With --once: so many make a commit's files at a time.")
@click.option("--spark", is_flag=True, help="With --once: the tasks of a Spark job make them; see spark-submit.")
@pace_options
def follow(
    context: Context, tables: tuple[str, ...], once: bool, local: bool, processes: int | None, spark: bool
) -> None:
    """Keep tables as their topics are; without names all of the catalog that follow one.

    Any number of followers may keep the same tables. One that cannot go on stops with its reason, the others go on.
    Ends on SIGTERM.
    """
    if (spark or processes) and not once:
        raise InvalidRequest("--processes and --spark go with --once: a service reads little at a time")
    if spark and processes:
        raise InvalidRequest("--spark or --processes, not both")
    if not once:
        _follow(context, tables, local)
        return
    run = by_spark() if spark else None
    if processes:
        from ..lake.runs import in_processes

        run = in_processes(processes, "table_commit")
    _follow_once(context, tables, local, run)


def _follow_once(context: Context, tables: tuple[str, ...], local: bool, run: Run | None) -> None:
    failed: list[Exception] = []
    rows = []
    with catalog_of(context, new=True) as catalog, context.reading(*NEEDED, brokers=True) as connection:
        from ..lake.table_commit import by_tasks
        from ..lake.table_follow import Means
        from ..lake.table_keeper import catch_up
        from ..lake.table_note import report
        from ..lake.table_open import limits_of, open_log, pace_of

        now = connection.clock.now_ms
        for name in tables or catalog.ours():
            try:
                facts = catalog.table(name).facts
                with open_log(connection, facts, context.output.note, local=local) as (log, keep):
                    means = Means(keep) if run is None else Means(keep, by_tasks(run))
                    pace = pace_of(context.settings, connection.clock)
                    done = catch_up(catalog, name, log, limits_of(context.settings), pace, means)
            except Exception as error:  # an error of one table does not stop the other tables
                failed.append(error)
                reason = str(error) if isinstance(error, TierstateError) else repr(error)
                context.output.note(f"{name}: {reason}")
                report(catalog, name, reason, now())
                continue
            waiting = [*done.waiting.values()]
            report(catalog, name, str(waiting[0]) if waiting else None, now())
            rows.append((name, done.commits, done.rows, done.files, done.corrupt, done.missed, len(waiting)))
            failed += waiting
    columns = ("table", "commits", "rows", "files", "corrupt_records", "missed_offsets", "partitions_waiting")
    context.output.table(columns, rows)
    if failed:
        raise failed[0]


def _follow(context: Context, tables: tuple[str, ...], local: bool) -> None:
    from .serving import keep_files_private, serve, service_logs

    keep_files_private(context)
    settings = context.settings_with(*NEEDED)
    logger = service_logs(context)
    with catalog_of(context, new=True) as catalog:
        from ..app.operating.services import open_serving_parts
        from ..lake.table_keeper import Keeper, feed_table_metrics
        from ..lake.table_open import limits_of, log_of, pace_of
        from ..log import loaded_kernels as loaded_kernels  # not at the first commit
        from ..runtime.service import Service

        with open_serving_parts(settings, logger, "table") as parts:
            keeper = Keeper(
                catalog,
                tables,
                partial(log_of, settings, parts.reader, parts.broker, local=local),
                limits_of(settings),
                pace_of(settings, parts.clock),
                logger,
            )
            feed_table_metrics(parts.metrics, keeper)
            parts.not_ready.append(keeper.stopped)
            parts.services.append(Service("tables", keeper.work))
            if context.as_json:
                context.output.item({"management": str(parts.management.address)})
            context.output.note(f"following {', '.join(tables) or 'every table of the catalog'}")
            context.deadline.cancel()
            serve(context, parts.services, logger.warning)


def default_name(topic: str) -> str:
    """Return the default name of a topic's table. The part after the namespace ``kafka`` has no dots."""
    return "kafka." + re.sub("[^A-Za-z0-9_]", "_", topic)

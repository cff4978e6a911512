"""Flags of `table create`, `table evolve` and `table follow`: the shape of a table, and the size of its commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import InvalidRequest
from .context import Context
from .flags import Decorator
from .lake import imported_lake

if TYPE_CHECKING:
    from ..lake.columns import Columns


def shape_options() -> Decorator:
    """Add ``--partition-by`` and ``--sort-by``, and pass them to the command function as ``shape``."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, partition_by: tuple[str, ...], sort_by: tuple[str, ...], **kwargs: Any) -> Any:
            with imported_lake():
                from ..lake.table_shape import TableShape
            return function(*args, shape=TableShape(partition_by or None, sort_by or None), **kwargs)

        partitions = click.option(
            "--partition-by",
            multiple=True,
            metavar="TERM",
            help="none, a column, day(column), month, hour, bucket(16, column), truncate(4, column); more than once.",
        )
        order = click.option("--sort-by", multiple=True, metavar="COLUMN", help="Of the rows of a file; repeatable.")
        return partitions(order(called))

    return decorated


def upsert_options() -> Decorator:
    """Add ``--upsert`` and ``--envelope``, and pass them to the command function."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, upsert: tuple[str, ...], envelope: str | None, **kwargs: Any) -> Any:
            if envelope and not upsert:
                raise InvalidRequest("--envelope goes with --upsert: changes of a row become the row")
            return function(*args, upsert=upsert, envelope=envelope, **kwargs)

        key = click.option(
            "--upsert",
            multiple=True,
            metavar="KEY",
            help="The newest record of a key is its row, a null value deletes it: key, or a field; more than once.",
        )
        changes = click.option(
            "--envelope", type=click.Choice(["debezium"]), help="Values are changes: before, after, op. With --upsert."
        )
        return key(changes(called))

    return decorated


def choice_options() -> Decorator:
    """Add ``--dead-letter``, ``--subject`` and ``--route-by``, and pass them to the command function; the last one as
    ``route``, a field and a value, or two times None.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, route_by: str | None, subject: str | None, **kwargs: Any) -> Any:
            field, equals, value = (route_by or "").partition("=")
            if route_by and not (field and equals):
                raise InvalidRequest("--route-by has a field and its value: type=order", got=route_by)
            if route_by and subject:
                raise InvalidRequest("--route-by or --subject, not both")
            return function(*args, route=(field, value) if route_by else (None, None), subject=subject, **kwargs)

        route = click.option(
            "--route-by", metavar="FIELD=VALUE", help="Only records whose field has this value are rows."
        )
        dead = click.option(
            "--dead-letter", metavar="TABLE", help="What does not parse is a row of this table instead; it is made too."
        )
        of = click.option(
            "--subject", metavar="SUBJECT", help="Of the registry: only values of its record are rows, with its schema."
        )
        return route(of(dead(called)))

    return decorated


def chosen(
    columns: Columns, dead_letter: str | None, route: tuple[str | None, str | None], subject: str | None
) -> tuple[Columns, Columns]:
    """Return the columns with the choice of the flags, and those of the dead letters."""
    from ..lake.columns import Only

    record = (columns.value.record_name() if subject and columns.value else None, subject)
    dead = replace(columns, prefix=None, only=Only(True, None, None, *record))
    if not (dead_letter or route[0] or subject):
        return columns, dead
    return replace(columns, only=Only(False if dead_letter else None, *route, *record)), dead


def note_bytes(context: Context, columns: Columns) -> None:
    """Report the fields of typed columns that are bytes because no column has their type."""
    for part, form in columns.forms.items():
        for field, reason in form.opaque().items():
            context.output.note(f"{part}.{field} is the bytes of the field: {reason}")


def pace_options() -> Decorator:
    """Add flags that set ``[table]``: how often a follower commits, and how much."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        for flag, setting, metavar, text in (
            ("--file-bytes", "file_bytes", "SIZE", "Log of one file, at most about: table.file_bytes."),
            ("--commit-bytes", "commit_bytes", "SIZE", "So much log does not wait: table.commit_bytes."),
            (
                "--commit-every",
                "commit_interval",
                "DURATION",
                "How long rows wait for more: table.commit_interval.",
            ),
        ):
            function = click.option(
                flag, setting, metavar=metavar, help=text, expose_value=False, callback=_into_table
            )(function)
        return function

    return decorated


def _into_table(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Context).overrides += (f"table.{param.name}={value}",)

"""Flags of `table create`, `table evolve` and `table follow`: the shape of a table, and the size of its commits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..state.errors import InvalidRequest
from .context import Context
from .flags import options
from .lake import imported_lake

if TYPE_CHECKING:
    from ..lake.columns import Columns


def _shape(values: dict[str, Any]) -> None:
    with imported_lake():
        from ..lake.table_shape import TableShape
    values["shape"] = TableShape(values.pop("partition_by") or None, values.pop("sort_by") or None)


def _upsert(values: dict[str, Any]) -> None:
    if values["envelope"] and not values["upsert"]:
        raise InvalidRequest("--envelope goes with --upsert: changes of a row become the row")


def _choice(values: dict[str, Any]) -> None:
    route_by = values.pop("route_by")
    field, equals, value = (route_by or "").partition("=")
    if route_by and not (field and equals):
        raise InvalidRequest("--route-by has a field and its value: type=order", got=route_by)
    if route_by and values["subject"]:
        raise InvalidRequest("--route-by or --subject, not both")
    values["route"] = (field, value) if route_by else (None, None)


shape_options = options(
    click.option(
        "--partition-by",
        multiple=True,
        metavar="TERM",
        help="none, a column, day(column), month, hour, bucket(16, column), truncate(4, column); more than once.",
    ),
    click.option("--sort-by", multiple=True, metavar="COLUMN", help="Of the rows of a file; repeatable."),
    given=_shape,
)
"""Adds ``--partition-by`` and ``--sort-by``. The command function gets both as ``shape``, a `TableShape`."""
upsert_options = options(
    click.option(
        "--upsert",
        multiple=True,
        metavar="KEY",
        help="The newest record of a key is its row, a null value deletes it: key, or a field; more than once.",
    ),
    click.option(
        "--envelope", type=click.Choice(["debezium"]), help="Values are changes: before, after, op. With --upsert."
    ),
    given=_upsert,
)
choice_options = options(
    click.option("--route-by", metavar="FIELD=VALUE", help="Only records whose field has this value are rows."),
    click.option(
        "--subject", metavar="SUBJECT", help="Of the registry: only values of its record are rows, with its schema."
    ),
    click.option(
        "--dead-letter", metavar="TABLE", help="What does not parse is a row of this table instead; it is made too."
    ),
    given=_choice,
)
"""Adds ``--route-by``, which is the argument ``route``: a field and a value, or two times None. Also adds
``--subject`` and ``--dead-letter``."""


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


def _into_table(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Context).overrides += (f"table.{param.name}={value}",)


def _pace(flag: str, setting: str, metavar: str, text: str) -> Any:
    return click.option(flag, setting, metavar=metavar, help=text, expose_value=False, callback=_into_table)


pace_options = options(
    _pace("--commit-every", "commit_interval", "DURATION", "How long rows wait for more: table.commit_interval."),
    _pace("--commit-bytes", "commit_bytes", "SIZE", "So much log does not wait: table.commit_bytes."),
    _pace("--file-bytes", "file_bytes", "SIZE", "Log of one file, at most about: table.file_bytes."),
)
"""Adds flags that set ``[table]``: how often a follower commits, and how much."""

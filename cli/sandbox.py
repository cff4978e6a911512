"""``tierstate sandbox up``, ``down``, ``status``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..sandbox.artifacts import NEWEST, RELEASES
from ..state.errors import Unavailable
from .context import Context
from .flags import declare

if TYPE_CHECKING:
    from ..sandbox.detached import DetachedSandbox

_folder = click.option(
    "--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help="Its folder; else one a user."
)


@click.group("sandbox", epilog="Example: tierstate sandbox up --brokers 3")
def command() -> None:
    """A real local Kafka to play with. It keeps running until `down`."""


@declare("sandbox up --brokers 3", group=command)
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True, help="How many brokers.")
@click.option("--release", type=click.Choice(RELEASES), default=NEWEST, show_default=True, help="Of Kafka.")
@_folder
def up(context: Context, brokers: int, release: str, folder: Path | None) -> None:
    """Start it and print its address. Brokers that have ended start again on the same data."""
    from ..sandbox import detached

    sandbox = detached.up(
        (folder or detached.default_folder()).absolute(), brokers, context.output.note, release=release
    )
    _show(context, sandbox)
    context.output.note("Stop it with: tierstate sandbox down" + (f" --dir {folder}" if folder else ""))


@declare("sandbox down", group=command)
@_folder
@click.option("--keep", is_flag=True, help="Keep its files.")
def down(context: Context, folder: Path | None, keep: bool) -> None:
    """Stop it and remove its files."""
    from ..sandbox import detached

    where = (folder or detached.default_folder()).absolute()
    stopped = detached.down(where, keep=keep)
    if context.as_json:
        context.output.document({"folder": str(where), "stopped": stopped})
    else:
        context.output.note("Stopped." if stopped else f"No sandbox in {where}.")


@declare("sandbox status --json", group=command)
@_folder
def status(context: Context, folder: Path | None) -> None:
    """Show its brokers and whether they answer; exit code 3 when it does not run."""
    from ..sandbox import detached

    where = (folder or detached.default_folder()).absolute()
    sandbox = detached.status(where)
    if sandbox is None:
        raise Unavailable("no sandbox here", folder=where)
    _show(context, sandbox)
    silent = [broker.node_id for broker in sandbox.brokers if not broker.answers]
    if silent:
        raise Unavailable("brokers do not answer", brokers=",".join(map(str, silent)), folder=where)


def _show(context: Context, sandbox: DetachedSandbox) -> None:
    columns = ("broker", "address", "pid", "answers", "log_dir")
    rows = [(one.node_id, f"127.0.0.1:{one.port}", one.pid, one.answers, one.log_dir) for one in sandbox.brokers]
    document = {
        "folder": sandbox.folder,
        "bootstrap_servers": sandbox.bootstrap,
        "cluster_id": sandbox.cluster_id,
        "brokers": [{"broker_id": row[0], **dict(zip(columns[1:], row[1:], strict=True))} for row in rows],
    }
    if not context.as_json:
        context.output.line(f"bootstrap.servers  {sandbox.bootstrap}")
    context.output.table(columns, rows, document)

"""The cluster that is restored into: that of ``--command-config``, or that of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..state.errors import InvalidRequest
from .context import Context

if TYPE_CHECKING:
    from ..broker.open import Broker

command_config = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties (name=value) of the target cluster; without it the target is the cluster of [kafka].",
)


BOOTSTRAP = "bootstrap.servers"


@contextmanager
def target_broker(context: Context, file: Path | None, server: str | None = None) -> Iterator[Broker]:
    """Yield the cluster of the properties in ``file``, else that of [kafka], at ``server`` if that is given."""
    from ..app.opening.connection import Connection
    from ..broker.open import open_broker
    from ..runtime.settings import require

    if file is not None:
        kafka: Mapping[str, str] = dict(pair(line) for line in _lines(file))
        with open_broker(kafka) as broker:
            yield broker
        return
    settings = context.settings
    if server is not None:
        settings = settings.model_copy(update={"kafka": {**settings.kafka, BOOTSTRAP: server}})
    require(settings, f"kafka.{BOOTSTRAP}")
    with Connection(settings) as connection:
        with open_broker(connection.kafka, connection.clock) as broker:
            yield broker


def _lines(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("the file of --command-config cannot be read", file=file, reason=error) from error
    return (line for line in lines if line.strip() and not line.lstrip().startswith(("#", "!")))


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise InvalidRequest("write NAME=VALUE", given=repr(text))
    return name.strip(), value.strip()

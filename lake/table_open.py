"""Opens a catalog of the settings, and the log that a table follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ..app.connection import Connection
from ..app.split_reads import access_by
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.settings import Settings
from ..state.errors import InvalidRequest
from ..state.ids import FactId
from ..values.registry_access import registry_access
from .any_job import AnyRun
from .kept import Keep, leased
from .table_catalog import LakeCatalog
from .table_facts import TableFacts
from .table_follow import Means, TableLimits
from .table_keeper import FollowPace
from .table_log import Open, TopicLog
from .table_tasks import by_tasks

if TYPE_CHECKING:
    from ..app.bucket_connection import BucketConnection


@contextmanager
def open_catalog(settings: Settings, *, new: bool) -> Iterator[LakeCatalog]:
    """Yield the open catalog. Raises as `catalog_properties`, and StorageUnavailable, AccessDenied."""
    with closing(LakeCatalog(catalog_properties(settings, new=new), registry_access(settings.registry))) as catalog:
        yield catalog


def catalog_properties(settings: Settings, *, new: bool) -> Mapping[str, str]:
    """Return ``[catalog]``, or the properties of the embedded one, which is created if ``new``, else InvalidRequest."""
    if settings.catalog:
        return settings.catalog
    folder = settings.table.folder.absolute()
    if not new and not (folder / "catalog.db").exists():
        raise InvalidRequest(
            "there is no catalog of tables: `tierstate table create TOPIC` makes one; another is named by table.folder "
            "or [catalog]",
            folder=folder,
        )
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}


def limits_of(settings: Settings) -> TableLimits:
    return TableLimits(settings.table.file_bytes, settings.table.commit_bytes)


def pace_of(settings: Settings, clock: Clock) -> FollowPace:
    return FollowPace(clock, settings.table.commit_interval, settings.table.snapshot_age, fresh_attempt)


def means_of(settings: Settings, keep: Keep, run: AnyRun | None) -> Means:
    """Return how rounds read and write. ``run`` None: this process makes the files."""
    return Means(keep) if run is None else Means(keep, by_tasks(run, access_by(settings), keep))


def reads_of(settings: Settings, clock: Clock) -> Open:
    return partial(access_by(settings).reads, clock=clock)


def log_of(reader: LogReader, facts: TableFacts, reads: Open, *, local: bool) -> TopicLog:
    return TopicLog(reader, facts.topic, facts.isolation, reads, local=local)


@contextmanager
def open_log(
    connection: Connection | BucketConnection, facts: TableFacts, tell: Callable[[str], None], *, local: bool
) -> Iterator[tuple[TopicLog, Keep]]:
    """Yield the log that a command reads, and the function that keeps its records while they are read."""
    view = connection.view(None)
    reader = connection.reader(view)
    reads = reads_of(connection.settings, connection.clock)
    with leased(connection, view, facts.topic_id, "table", tell) as keep:
        yield log_of(reader, facts, reads, local=local), keep


def fresh_attempt() -> str:
    """Return a new attempt id, which the attempt's files are named after."""
    return FactId.of(RandomIds().uuid())

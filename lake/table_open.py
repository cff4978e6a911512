"""Opens the catalog that the settings name, and the log that a table follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from ..app.opening.connection import Connection
from ..app.opening.split_reads import access_by
from ..broker.open import Broker
from ..fetch.reader import LogReader
from ..runtime.clock import Clock
from ..runtime.id_source import RandomIds
from ..runtime.settings import Settings
from ..state.errors import InvalidRequest, UnknownTopic
from ..state.ids import FactId
from ..values.schema_registry import registry_access
from .compacted import CompactedLog, is_compacted
from .log import Keep, TopicLog, leased, no_lease
from .several import SeveralLogs
from .table_catalog import LakeCatalog
from .table_facts import TableFacts
from .table_follow import TableLimits
from .table_keeper import FollowPace
from .table_snapshots import Retention

if TYPE_CHECKING:
    from ..app.opening.open import ReadersConnection


@contextmanager
def open_catalog(settings: Settings, *, new: bool) -> Iterator[LakeCatalog]:
    """Yield the open catalog. Raises the errors of `catalog_properties`, StorageUnavailable and AccessDenied."""
    with closing(LakeCatalog(catalog_properties(settings, new=new), registry_access(settings.registry))) as catalog:
        yield catalog


def catalog_properties(settings: Settings, *, new: bool) -> Mapping[str, str]:
    """Return ``[catalog]``, or else the properties of the embedded catalog. If the embedded catalog does not exist, it
    is created with ``new``, and otherwise InvalidRequest is raised.
    """
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
    retention = Retention(settings.table.snapshots, int(settings.table.snapshot_age * 1000))
    return FollowPace(clock, settings.table.commit_interval, retention, fresh_attempt)


def log_of(settings: Settings, reader: LogReader, broker: Broker | None, facts: TableFacts, *, local: bool) -> TopicLog:
    """Return the log of a table. ``broker``: None if no broker may be asked. ``local`` has no effect for a compacted
    topic, which is local. Raises the errors of `require_foldable`, AccessDenied and Unavailable.
    """
    access = access_by(settings)
    if facts.more:
        return SeveralLogs(reader, facts, access, local=local)
    with suppress(UnknownTopic):  # reading the log raises it, unless the topic's records outlived the topic
        if broker is not None and is_compacted(config := broker.control.config(facts.topic)):
            return CompactedLog(reader, facts, access, broker, config)
    return TopicLog(reader, facts.topic, facts.isolation, access, local=local)


def broker_of(connection: ReadersConnection) -> Broker | None:
    """Return the brokers of a connection that reads tierstate's own tiers. None for any other connection."""
    return connection.broker if isinstance(connection, Connection) else None


@contextmanager
def open_log(
    connection: ReadersConnection, facts: TableFacts, tell: Callable[[str], None], *, local: bool
) -> Iterator[tuple[TopicLog, Keep]]:
    """Yield the log that a command reads, and the `Keep` that protects its records while they are read."""
    view = connection.view(None)
    log = log_of(connection.settings, connection.reader(view), broker_of(connection), facts, local=local)
    with leased(connection, view, facts.topic_id, "table", tell) as keep:
        yield log, no_lease if facts.more or log.tombstones is not None else keep


def fresh_attempt() -> str:
    """Return a new attempt id. The names of the attempt's files begin with it."""
    return FactId.of(RandomIds().uuid())

"""Wiring: settings, a topic and a place -> an export that is ready to be quoted, done or checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from ..app.bucket_connection import BucketConnection
from ..app.connection import Connection, store_options
from ..app.partitions import find_partitions
from ..app.registry_access import registry_access
from ..app.split_reads import access_by
from ..fetch.reader import LogReader
from ..runtime.settings import Settings
from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from ..storage.memory import MemoryStore
from ..storage.options import StoreOptions
from .export import Export
from .jobs import Place, Run, TaskAccess
from .kept import leased
from .ledger import Ledger

HIDDEN = ("_", ".")
"""Readers of folders leave out what begins so."""


@dataclass(frozen=True, slots=True)
class OpenExport:
    export: Export
    reader: LogReader
    topic_id: TopicId


def place_of(settings: Settings, url: str) -> Place:
    """``url`` with the options of ``[store]`` where it is a store of the same kind, else as the environment says."""
    same = url.partition(":")[0] == settings.store.url.partition(":")[0]
    return Place(url, store_options(settings) if same else StoreOptions())


@contextmanager
def open_export(
    connection: Connection | BucketConnection,
    topic: str,
    partition: int | None,
    into: str,
    run: Run,
    tell: Callable[[str], None],
    *,
    make: bool,
) -> Iterator[OpenExport]:
    """For as long as the block lasts; leases that it took are ended with it. ``make``: a folder that is not there is
    made; otherwise it is empty.

    Raises InvalidRequest for a topic whose files no reader would find, and what opening the parts does.
    """
    if topic.startswith(HIDDEN):
        raise InvalidRequest("a folder whose name begins with _ or . is left out by its readers", topic=topic)
    place = place_of(connection.settings, into)
    partitions = find_partitions(connection.control, topic, partition)
    view = connection.view(partitions)
    reader = connection.reader(view)
    topic_id = reader.topic(topic).topic_id
    with (
        closing(place.open() if make or place.is_there() else MemoryStore()) as store,
        leased(connection, view, topic_id, f"export into {into} by", tell) as keep,
    ):
        access = TaskAccess(access_by(connection.settings), place, registry_access(connection.settings.registry))
        export = Export(reader, Ledger(store, topic_id), access, run, keep, connection.progress)
        yield OpenExport(export, reader, topic_id)

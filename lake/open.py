"""Wiring: settings or a gateway, a topic and a place -> an export that is ready to be quoted, done or checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from ..app.bucket_connection import BucketConnection
from ..app.connection import Connection, ShowProgress, store_options
from ..app.gateway_access import GatewayAccess
from ..app.partitions import find_partitions
from ..app.registry_access import registry_access
from ..app.split_reads import LogAccess, access_by
from ..runtime.settings import Settings
from ..state.errors import InvalidRequest
from ..state.ids import TopicId
from ..storage.memory import MemoryStore
from ..storage.options import StoreOptions
from .export import Export
from .exported_log import ExportedLog, OwnLog, gateway_log
from .jobs import Place, Run, TaskAccess
from .kept import Keep, leased
from .ledger import Ledger

HIDDEN = ("_", ".")
"""Readers of folders leave out what begins so."""


@dataclass(frozen=True, slots=True)
class OpenExport:
    export: Export
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class Into:
    """A place, and who does the tasks. ``make``: a folder that is not there is made; otherwise it is empty.

    ``tell``: hears what should be known and is no error.
    """

    settings: Settings
    url: str
    run: Run
    progress: ShowProgress
    tell: Callable[[str], None]
    make: bool

    @contextmanager
    def opened(self, topic: str, log: ExportedLog, access: LogAccess, keep: Keep) -> Iterator[OpenExport]:
        place = place_of(self.settings, self.url)
        topic_id = log.topic_id(topic)
        with closing(place.open() if self.make or place.is_there() else MemoryStore()) as store:
            tasks = TaskAccess(access, place, registry_access(self.settings.registry))
            yield OpenExport(Export(log, Ledger(store, topic_id), tasks, self.run, keep, self.progress), topic_id)


def place_of(settings: Settings, url: str) -> Place:
    """``url`` with the options of ``[store]`` where it is a store of the same kind, else as the environment says."""
    same = url.partition(":")[0] == settings.store.url.partition(":")[0]
    return Place(url, store_options(settings) if same else StoreOptions())


@contextmanager
def open_export(
    connection: Connection | BucketConnection, topic: str, partition: int | None, into: Into
) -> Iterator[OpenExport]:
    """For as long as the block lasts; leases that it took are ended with it.

    Raises InvalidRequest for a topic whose files no reader would find, and what opening the parts does.
    """
    _check_name(topic)
    partitions = find_partitions(connection.control, topic, partition)
    view = connection.view(partitions)
    log = OwnLog(connection.reader(view))
    with (
        leased(connection, view, log.topic_id(topic), f"export into {into.url} by", into.tell) as keep,
        into.opened(topic, log, access_by(connection.settings), keep) as found,
    ):
        yield found


@contextmanager
def open_gateway_export(access: GatewayAccess, topic: str, into: Into) -> Iterator[OpenExport]:
    """As `open_export`, by a gateway: neither a key to the bucket nor to the brokers is needed."""
    _check_name(topic)
    with (
        closing(access.client()) as client,
        gateway_log(client, into.tell) as log,
        into.opened(topic, log, access, lambda ranges: None) as found,
    ):
        yield found


def _check_name(topic: str) -> None:
    if topic.startswith(HIDDEN):
        raise InvalidRequest("a folder whose name begins with _ or . is left out by its readers", topic=topic)

"""Opens an export of a topic into a place, directly or through a gateway. Then it can be quoted, done or checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..app.opening.connection import ShowProgress
from ..app.opening.gateway_access import GatewayAccess
from ..app.opening.moved import store_options
from ..app.opening.partitions import find_partitions
from ..app.opening.split_reads import LogAccess, access_by
from ..runtime.settings import Settings
from ..state.errors import InvalidRequest
from ..storage.memory import MemoryStore
from ..storage.options import StoreOptions
from ..values.schema_registry import registry_access
from .export import Export
from .export_ledger import Ledger
from .export_work import Place, TaskAccess
from .log import ExportedLog, GatewayLog, Keep, OwnLog, leased, no_lease
from .runs import Run

if TYPE_CHECKING:
    from ..app.opening.open import ReadersConnection

HIDDEN = ("_", ".")
"""Readers of folders ignore names that begin with these characters."""


@dataclass(frozen=True, slots=True)
class Into:
    """A place, and the runner of tasks. ``make``: create a missing folder. Otherwise a missing folder counts as empty.

    ``tell`` is called with messages for people that are not errors.
    """

    settings: Settings
    url: str
    run: Run
    progress: ShowProgress
    tell: Callable[[str], None]
    make: bool

    @contextmanager
    def opened(self, topic: str, log: ExportedLog, access: LogAccess, keep: Keep) -> Iterator[Export]:
        """Yield the export of a topic. Raises InvalidRequest if readers would ignore the topic's folder."""
        if topic.startswith(HIDDEN):
            raise InvalidRequest("a folder whose name begins with _ or . is left out by its readers", topic=topic)
        place, topic_id = place_of(self.settings, self.url), log.topic_id(topic)
        with closing(place.open() if self.make or place.is_there() else MemoryStore()) as store:
            tasks = TaskAccess(access, place, registry_access(self.settings.registry))
            yield Export(log, Ledger(store, topic_id), tasks, self.run, keep, self.progress)


def place_of(settings: Settings, url: str) -> Place:
    """Return the place at ``url``, with the options of ``[store]`` if the kind is the same, else of the environment."""
    same = url.partition(":")[0] == settings.store.url.partition(":")[0]
    return Place(url, store_options(settings) if same else StoreOptions())


@contextmanager
def open_export(connection: ReadersConnection, topic: str, partition: int | None, into: Into) -> Iterator[Export]:
    """Yield the export. Its leases are ended when the block ends. Raises the errors of opening the parts."""
    partitions = find_partitions(connection.control, topic, partition)
    view = connection.view(partitions)
    log = OwnLog(connection.reader(view))
    with (
        leased(connection, view, log.topic_id(topic), f"export into {into.url} by", into.tell) as keep,
        into.opened(topic, log, access_by(connection.settings), keep) as export,
    ):
        yield export


@contextmanager
def open_gateway_export(access: GatewayAccess, topic: str, into: Into) -> Iterator[Export]:
    """Yield the export as `open_export` does, through a gateway. No credentials of bucket or brokers are needed."""
    with (
        closing(access.client()) as client,
        closing(GatewayLog(client, into.tell)) as log,
        into.opened(topic, log, access, no_lease) as export,
    ):
        yield export

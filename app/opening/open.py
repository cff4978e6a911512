"""Open the connection of readers: to a cluster and its remote tier, to one that Kafka tiers, or to the bucket alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.clock import Clock
from ...runtime.listener import Listener, ignore
from ...runtime.settings import Settings
from ...state.errors import InvalidRequest
from .connection import BUCKET, KIP405, Connection, no_progress

if TYPE_CHECKING:
    from .bucket_connection import BucketConnection, ViewAge
    from .connection import ShowProgress
    from .kip405_connection import Kip405Connection

    ReadersConnection = Connection | BucketConnection | Kip405Connection
    """The connections of readers."""


def open_connection(
    settings: Settings,
    clock: Clock | None = None,
    *,
    listener: Listener = ignore,
    progress: ShowProgress = no_progress,
    tell: Callable[[ViewAge], None] | None = None,
) -> ReadersConnection:
    """Return a connection for readers according to ``view.source``.

    ``tell`` is called with the age of the bucket's view before the first read; None: the age is logged. Raises
    InvalidRequest if the settings choose a past view and the source is not the bucket.
    """
    view, connection = settings.view, Connection(settings, clock, listener=listener, progress=progress)
    if view.source == BUCKET:
        from .bucket_connection import BucketConnection, log_age  # slow imports, needed only here

        return BucketConnection(connection, tell or log_age)
    refuse_past(settings)
    if view.source == KIP405:
        from .kip405_connection import Kip405Connection

        return Kip405Connection(connection)
    return connection


def refuse_past(settings: Settings) -> None:
    """Raise InvalidRequest if the settings choose among what a bucket keeps, and the source is not the bucket."""
    view = settings.view
    if view.source != BUCKET and (view.as_of or view.topic_id or view.history is not None):
        raise InvalidRequest(
            "view.as_of, view.topic_id and view.history choose among what a bucket keeps: --source bucket is needed"
            " with them (view.source)"
        )

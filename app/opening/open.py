"""Open the connection that readers use: to a cluster and its remote tier, or to the bucket alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.listener import ignore
from ...state.errors import InvalidRequest
from .connection import BUCKET, Connection, no_progress

if TYPE_CHECKING:
    from ...runtime.clock import Clock
    from ...runtime.listener import Listener
    from ...runtime.settings import Settings
    from .bucket_connection import BucketConnection, ViewAge
    from .connection import ShowProgress


def open_connection(
    settings: Settings,
    clock: Clock | None = None,
    *,
    listener: Listener = ignore,
    progress: ShowProgress = no_progress,
    tell: Callable[[ViewAge], None] | None = None,
) -> Connection | BucketConnection:
    """Return a connection for readers, as ``view.source`` has it: the cluster and its remote tier, or the bucket alone.

    ``tell`` is called with the age of the bucket's view, before anything is read by it; None: Python's own log. Raises
    InvalidRequest for settings of a past view without the bucket as its source.
    """
    view = settings.view
    if view.source != BUCKET:
        if view.as_of or view.topic_id or view.history is not None:
            raise InvalidRequest(
                "view.as_of, view.topic_id and view.history choose among what a bucket keeps: --source bucket is needed"
                " with them (view.source)"
            )
        return Connection(settings, clock, listener=listener, progress=progress)
    from .bucket_connection import BucketConnection, to_log  # its imports take time that others need not wait

    return BucketConnection(settings, clock, listener=listener, progress=progress, tell=tell or to_log)

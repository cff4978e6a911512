"""The first argument of a command function: the global flags, the settings (read on first use), and the output."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..state.errors import AccessDenied, InvalidRequest
from .deadline import Deadline
from .output import Output

if TYPE_CHECKING:
    from ..app.opening.bucket_connection import ViewAge
    from ..app.opening.connection import Connection
    from ..app.opening.open import ReadersConnection
    from ..app.operating.prefix_lock import PrefixLock
    from ..runtime.listener import Event
    from ..runtime.settings import Settings

SILENT_S = 3.0
"""Seconds after which a command that waits for Kafka prints a note."""
STORE_NOTE_S = 5.0
"""Shortest time between two notes that a request to the store is repeated, in seconds."""


@dataclass
class Context:
    """The parsed flags of `flags.py`, for one command line."""

    config: Path | None = None
    overrides: tuple[str, ...] = ()
    bootstrap_server: str | None = None
    store: str | None = None
    gateway: str | None = None
    token_file: Path | None = None
    user: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    as_json: bool = False
    timeout: float | None = None
    """Seconds. None means the default of the command."""
    deadline: Deadline = field(default_factory=Deadline)
    quiet: bool = False
    no_color: bool = False
    places: dict[str, Path] = field(default_factory=dict)
    """Absolute paths of files and folders in the command's own options and arguments, by the option's name."""
    own_process: bool = False
    """True if the command has the process to itself and may end it (`serving.py`). False if Python code calls `run`."""
    _store_noted_s: float = field(default=-STORE_NOTE_S, init=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings. Raises InvalidSettings, which lists every problem."""
        from ..runtime.settings_load import load_settings

        return load_settings(self.config, self.overrides, os.environ, self.bootstrap_server, self.store)

    def settings_with(self, *needed: str) -> Settings:
        """Return the settings. Raises InvalidSettings if one of the dotted keys ``needed`` is not set."""
        from ..runtime.settings import require

        require(self.settings, *needed)
        return self.settings

    @contextmanager
    def connected(self, *needed: str, only_kafka: bool = False) -> Iterator[Connection]:
        """Yield a connection by the settings, which must have the keys ``needed``. Each part is opened on first use.

        ``only_kafka``: no view is needed. Else raises InvalidRequest if Kafka tiers the topics itself.
        """
        from ..app.opening.connection import BROKER, Connection, refuse_bucket, refuse_kip405

        needed = needed or (BROKER,)
        if BROKER in needed:
            refuse_bucket(self.settings)
        if not only_kafka:
            refuse_kip405(self.settings)
        settings = self.settings_with(*needed)
        with Connection(settings, listener=self.note_event, progress=self.output.progress) as connection:
            yield connection

    def wait_for_kafka(self, connection: ReadersConnection) -> None:
        """Return when a broker has answered, or at once for a BucketConnection, which needs no broker.

        Prints one note if no broker answers within ``SILENT_S`` seconds. Raises BrokerUnavailable.
        """
        from threading import Timer

        from ..app.opening.bucket_connection import BucketConnection

        if isinstance(connection, BucketConnection):
            return
        servers = connection.settings.kafka["bootstrap.servers"]
        note = f"Kafka at {servers} does not answer yet; Ctrl-C or --timeout ends this"
        timer = Timer(SILENT_S, self.output.note, [note])
        timer.daemon = True
        timer.start()
        try:
            _ = connection.cluster_id
        finally:
            timer.cancel()

    @contextmanager
    def alone(self, command: str, execute: bool) -> Iterator[tuple[Connection, PrefixLock | None]]:
        """Yield the connection and, if ``execute``, the lock of the bucket prefix (else None). Raises Fenced."""
        from ..app.operating.prefix_lock import locked

        with self.connected("kafka.bootstrap.servers", "store.url") as connection:
            if not execute:
                yield connection, None
                return
            with locked(connection, command) as lock:
                yield connection, lock

    @contextmanager
    def reading(self, *needed: str, brokers: bool = False) -> Iterator[ReadersConnection]:
        """Yield a connection as `open_connection` does. ``brokers``: refuse a view of the bucket.

        For the bucket, a note shows the age of its view. Raises InvalidRequest for the bucket with ``--gateway``. An
        AccessDenied of the block about a topic is replaced by one with the missing rights and the commands to add them.
        """
        from ..app.opening.connection import BROKER, BUCKET, STORE, Connection, refuse_bucket
        from ..app.opening.open import open_connection

        settings = self.settings
        if settings.view.source == BUCKET:
            if brokers:
                refuse_bucket(settings)
            if self.gateway:
                raise InvalidRequest("--gateway or --source bucket, not both")
            needed = (STORE,)
        settings = self.settings_with(*(needed or (BROKER,)))
        with open_connection(
            settings, listener=self.note_event, progress=self.output.progress, tell=self._tell_age
        ) as connection:
            try:
                yield connection
            except AccessDenied as error:
                from ..app.looking.lacking_rights import name_rights

                if isinstance(connection, Connection):
                    name_rights(connection, error)
                raise

    def refuse_bucket(self, flag: str) -> None:
        """Raise InvalidRequest if ``view.source`` is ``bucket``, because the bucket's view does not change."""
        if self.settings.view.source == "bucket":
            raise InvalidRequest(f"{flag} waits for what is new, and the bucket's view stands still")

    def _tell_age(self, age: ViewAge) -> None:
        document = json.dumps({"view": age.as_json()}, ensure_ascii=False, default=str)
        self.output.note(document if self.as_json else str(age))

    def note_event(self, event: Event) -> None:
        """Print a note for an event that people must see; ignore other events. This method is a `Listener`."""
        from ..runtime.listener import ChoreFailed, ChunkCacheOff, HeartbeatsAwaited, RequestRepeated, StoreThrottled

        if isinstance(event, ChunkCacheOff):
            self.output.note(f"disk cache of chunks is not used: {event.reason}")
        elif isinstance(event, ChoreFailed):
            self.output.note(f"{event.chore}: {event.error}")
        elif isinstance(event, HeartbeatsAwaited):
            self.output.note(f"waiting {event.seconds:g} s for the next heartbeats, if they run: {event.agents}")
        elif isinstance(event, RequestRepeated):
            self._note_store(event.error)
        elif isinstance(event, StoreThrottled):
            self._note_store("the store asks to slow down")

    def _note_store(self, reason: str) -> None:
        from ..runtime.clock import SystemClock

        now = SystemClock().monotonic()
        if now >= self._store_noted_s + STORE_NOTE_S:
            self._store_noted_s = now
            self.output.note(f"trying again: {reason}")

    @cached_property
    def output(self) -> Output:
        return Output(as_json=self.as_json, quiet=self.quiet, colour=not self.no_color)

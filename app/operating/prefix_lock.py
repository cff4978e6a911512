"""A lock of a bucket prefix for one process at a time. Its holder rewrites one object every few seconds.

    put it if absent, or replace that of a process that ended or died -> replace it each period -> write "ended"

Each write has a new token and names the content that it replaces, so that the store decides between two processes. A
process counts as dead if its object does not change for `SILENT_PERIODS`. A holder that wrote nothing for
`PROOF_PERIODS` writes once more before its next step. That write fails if another process took the lock over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ...follower.envelope import MAX_BYTES, seal, unseal
from ...follower.object_names import LOCK
from ...rules.prefix import PROOF_PERIODS, SILENT_PERIODS
from ...runtime.id_source import RandomIds
from ...runtime.watchdog import go_round, inherited
from ...state.errors import CorruptData, Fenced, InvalidRequest, ObjectExists, ObjectNotFound, TierstateError
from ...state.ids import FactId
from ...state.offsets import TimestampMs
from ..opening.connection import Connection
from .orders import issuer

KIND = "lock"
LOOKS = 10
"""How often the lock of another process is read in one period."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock. ``by``: user and host. ``process``: process id. ``ended`` is 1 after a clean end."""

    command: str
    by: str
    process: int
    since: TimestampMs
    period_ms: int
    token: str
    ended: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since / 1000, UTC)
        return f"{self.by}, process {self.process}, tierstate {self.command} since {since:%Y-%m-%d %H:%M:%S} UTC"


def read_holder(data: bytes, period_ms: int) -> Holder:
    """Return the holder that wrote a lock. Damaged content gives a holder whose lock is taken over if it is dead."""
    try:
        return unseal(data, KIND, Holder, source=LOCK)[0]
    except (CorruptData, InvalidRequest) as error:
        return Holder("recover", f"unreadable ({error})", 0, TimestampMs(0), period_ms, "", 0)


class PrefixLock:
    """One thread calls `run`; the working thread calls `require`. Methods raise Fenced and the store's errors."""

    def __init__(self, connection: Connection, command: str) -> None:
        self._store, self._clock, self._progress = connection.store, connection.clock, connection.progress
        self._period_s = connection.settings.prefix.heartbeat
        period_ms = max(1, round(self._period_s * 1000))
        self._mine = Holder(command, issuer(), os.getpid(), self._clock.now_ms(), period_ms, "", 0)
        self._attempts: list[bytes] = []
        self._written = b""
        self._written_s = float("-inf")
        self._lost: Fenced | None = None
        self._writing = threading.Lock()

    def take(self) -> None:
        """Take the lock. Raises Fenced, which names the holder, if another process holds it and runs."""
        standing = self._standing()
        if standing is not None:
            self._wait_for_end(standing)
        self._write(standing)

    def require(self) -> None:
        """Raise Fenced unless this process has the lock. Call it before each step that changes something."""
        if self._clock.monotonic() - self._written_s >= PROOF_PERIODS * self._period_s:
            self.beat()
        if self._lost is not None:
            raise self._lost

    def beat(self) -> None:
        """Rewrite the lock once. After a store error the outcome is unknown until the next write."""
        with self._writing:
            if self._lost is None:
                try:
                    self._write(self._written)
                except Fenced as error:
                    self._lost = error

    def run(self, stop: threading.Event) -> None:
        def turn() -> None:
            with suppress(TierstateError):  # `require` raises it, if it lasts
                self.beat()

        go_round("heartbeat", stop, turn, lambda: self._period_s)

    def leave(self) -> None:
        """Mark the lock as ended, so that the next process need not wait."""
        self._mine = replace(self._mine, ended=1)
        with suppress(TierstateError):
            self._write(self._written)

    def _standing(self) -> bytes | None:
        try:
            return self._store.get(LOCK, MAX_BYTES)
        except ObjectNotFound:
            return None

    def _wait_for_end(self, standing: bytes) -> None:
        """Wait until the process that wrote this lock must have died. Raises Fenced when the lock changes."""
        holder = read_holder(standing, self._mine.period_ms)
        if holder.ended:
            return
        until = self._clock.monotonic() + SILENT_PERIODS * max(holder.period_ms / 1000, self._period_s)
        with self._progress(f"waiting for a sign of life of {holder}"):
            while self._clock.monotonic() < until:
                self._clock.sleep(self._period_s / LOOKS)
                if self._standing() != standing:
                    raise _refusal(holder)

    def _write(self, previous: bytes | None) -> None:
        data, began_s = seal(KIND, replace(self._mine, token=FactId.of(RandomIds().uuid()))), self._clock.monotonic()
        self._attempts.append(data)
        try:
            written = previous is not None and self._store.replace_if_same(LOCK, data, previous)
            if previous is None:
                self._store.put_if_absent(LOCK, data)
                written = True
        except (ObjectExists, ObjectNotFound):
            written = False
        if not written:
            standing = self._standing()
            if standing not in self._attempts:
                raise _refusal(None if standing is None else read_holder(standing, self._mine.period_ms))
            if standing != data:  # an earlier attempt, whose outcome was unknown
                return self._write(standing)
        self._written, self._written_s, self._attempts = data, began_s, []


def _refusal(holder: Holder | None) -> Fenced:
    if holder is None:
        return Fenced("the lock of this process was deleted: it stops here, and can be started again", object_key=LOCK)
    return Fenced("another command has the lock of this bucket prefix: wait until it has ended", holder=holder)


@contextmanager
def locked(connection: Connection, command: str) -> Iterator[PrefixLock]:
    """Yield the lock of the bucket prefix, held by this process. Raises Fenced, which names the holder."""
    connection.followed.stay()
    lock = PrefixLock(connection, command)
    lock.take()
    stop = threading.Event()
    thread = threading.Thread(target=inherited(lock.run), args=(stop,), name="lock", daemon=True)
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join()
        lock.leave()

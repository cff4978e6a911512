"""The key ring of a long-running process. The ring's file is read again after it changed."""

from __future__ import annotations

import threading
from pathlib import Path

from ...runtime.listener import KeyRingRead, KeyRingRefused, Listener
from ...runtime.live_secret import files_state
from ...state.errors import InvalidRequest
from .keyring import KeyRing


class KeyRingFile:
    """A `KeyWrapper` and `KeyUnwrapper` that checks the ring's file whenever a key is needed. Thread-safe.

    An invalid file is reported once to the listener, and the previous ring stays in use. Write the PEM files before
    the ring that names them, because only the ring's own file is checked for changes.
    """

    def __init__(self, path: Path, listener: Listener) -> None:
        """Read the ring. Raises InvalidRequest if the file is missing or invalid now."""
        self._path, self._listener = path, listener
        self._lock = threading.Lock()
        self._seen = files_state([path])
        self._ring = KeyRing.load(path)

    def wrap(self, data_key: bytes) -> tuple[str, bytes, str]:
        """Do the same as `KeyRing.wrap`, with the current ring."""
        return self._current().wrap(data_key)

    def unwrap(self, key_id: str, wrapped: bytes, fingerprint: str | None = None) -> bytes:
        """Do the same as `KeyRing.unwrap`, with the current ring."""
        return self._current().unwrap(key_id, wrapped, fingerprint)

    def opens(self, key_id: str) -> bool:
        """Do the same as `KeyRing.opens`, with the current ring."""
        return self._current().opens(key_id)

    def _current(self) -> KeyRing:
        with self._lock:
            state = files_state([self._path])
            if state == self._seen:
                return self._ring
            self._seen = state
            previous_key = self._ring.active
            try:
                self._ring = KeyRing.load(self._path)
            except InvalidRequest as error:
                event: KeyRingRead | KeyRingRefused = KeyRingRefused(str(self._path), previous_key, str(error))
            else:
                event = KeyRingRead(str(self._path), self._ring.active, previous_key)
            ring = self._ring
        self._listener(event)
        return ring

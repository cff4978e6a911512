"""A TLS context whose certificates, key and authorities are read again when their files change.

Open connections do not change; each new connection uses the current files. The previous context stays in use while the
files do not match, for example while they are replaced one after another.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .live_secret import files_state

log = logging.getLogger(__name__)


class LiveTls(ssl.SSLContext):
    """An SSLContext that delegates to the context that ``make`` last built. ``files``: those that ``make`` reads."""

    def __new__(cls, make: Callable[[], ssl.SSLContext], files: Sequence[Path | str]) -> LiveTls:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[Path | str]) -> None:
        """Build the first context. Raises the errors of ``make``."""
        self._make, self._files = make, tuple(files)
        self._prepare: Callable[[ssl.SSLContext], None] = lambda context: None
        self._seen = files_state(self._files)
        self._context = make()

    def each(self, prepare: Callable[[ssl.SSLContext], None]) -> None:
        """Call ``prepare`` with the current context, and later with each context that replaces it."""
        self._prepare = prepare
        prepare(self._context)

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        return self._now().wrap_bio(*args, **more)

    def wrap_socket(self, *args: Any, **more: Any) -> ssl.SSLSocket:
        return self._now().wrap_socket(*args, **more)

    def _now(self) -> ssl.SSLContext:
        state = files_state(self._files)
        if state != self._seen:
            self._seen = state
            try:
                context = self._make()
                self._prepare(context)
                self._context = context
            except Exception as error:
                names = ", ".join(map(str, self._files))
                log.warning("TLS files changed and cannot be used, the ones before go on: %s: %s", names, error)
        return self._context

"""``--timeout``: a command that runs longer is interrupted, as by Ctrl-C, and exits with code 3 (unavailable).

Waits inside a command also have their own deadlines. The user's deadline limits all of them together.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from .exit_codes import UNAVAILABLE

CLOSING_SECONDS = 2.0
"""Seconds that the interrupted command has to end; then the process exits. Some client libraries ignore interrupts."""


class Deadline:
    """The deadline of one command. It is cancelled when the command is over or has become a running service."""

    def __init__(self) -> None:
        self.passed = False
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def arm(self, seconds: float) -> None:
        """Interrupt the process ``seconds`` from now. A later call replaces the earlier deadline."""
        self.cancel()
        self._over, self.seconds = threading.Event(), seconds
        threading.Thread(target=self._watch, args=(self._over, seconds), name="deadline", daemon=True).start()

    def cancel(self) -> None:
        with self._lock:
            self._over.set()

    def message(self) -> str:
        return f"tierstate: not done in time. seconds={self.seconds:g}\n"

    def _watch(self, over: threading.Event, seconds: float) -> None:
        over.wait(seconds)
        with self._lock:
            if over.is_set():
                return
            self.passed = True
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
        if not over.wait(CLOSING_SECONDS):
            sys.stderr.write(self.message())
            sys.stderr.flush()
            os._exit(UNAVAILABLE)

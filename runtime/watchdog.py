"""Tells people and the supervisor of the process whether its threads still go round.

People: a line in the log for each hang, with the place in the code. The supervisor (systemd, `sd_notify(3)`): a sign of
life every few seconds as long as nothing hangs; without one for ``WatchdogSec`` it ends the process and starts another.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress

from .heartbeat import Hang, Heartbeats

LOOK_S = 10.0
FRAMES = 6
"""Of the stack of a thread that hangs, the innermost."""
SEND_S = 1.0

Warn = Callable[..., object]


class Supervisor:
    """Who started this process and wants to hear of it; nobody, without ``NOTIFY_SOCKET`` in the environment."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # "@": an abstract address of Linux

    def tell(self, state: str) -> None:
        """One datagram, as far as that is possible."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(SEND_S)
                to.sendto(state.encode(), self._address)


class Watchdog:
    """Watches from `start` to `close`; also what the process does before it serves. ``warn`` gets a line a hang."""

    def __init__(self, heartbeats: Heartbeats, supervisor: Supervisor, warn: Warn) -> None:
        self._heartbeats, self._supervisor, self._warn = heartbeats, supervisor, warn
        self._told: dict[tuple[str, str, int], Hang] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> Watchdog:
        """Ready, as far as the supervisor is concerned: from here on it is the heartbeats that tell."""
        self._supervisor.tell("READY=1")
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(LOOK_S)

    def look(self) -> None:
        """Once."""
        hangs = {(each.loop, each.doing, each.thread): each for each in self._heartbeats.hangs()}
        for key, hang in hangs.items():
            if key not in self._told:
                self._warn("a thread hangs", **_facts(hang), where=_where(hang.thread))
        for key, hang in self._told.items():
            if key not in hangs:
                self._warn("a thread that hung goes on", **_facts(hang))
        self._told = hangs
        if not hangs:
            self._supervisor.tell("WATCHDOG=1")


def _facts(hang: Hang) -> dict[str, object]:
    return {"loop": hang.loop, "doing": hang.doing, "seconds": round(hang.seconds)}


def _where(thread: int) -> str:
    """The innermost calls of a thread, the innermost last."""
    frame = sys._current_frames().get(thread)
    calls = traceback.extract_stack(frame)[-FRAMES:] if frame is not None else []
    return " > ".join(f"{os.path.basename(call.filename)}:{call.lineno} {call.name}" for call in calls)

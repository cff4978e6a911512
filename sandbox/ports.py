"""Reserve free TCP ports on loopback until they are released.

Ports come from below the range that the kernel uses for outgoing connections, so no such connection takes a port while
its broker is down. A file locks each port, so two sandboxes never choose the same port between probing and binding.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

from ..state.errors import Unavailable

FIRST, LAST = 20_000, 32_000
ATTEMPTS = 500


class PortLease:
    """Ports that no other sandbox of this user gets before `release` (or before this process ends)."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"tierstate-ports-{os.getuid()}"
        self._folder.mkdir(exist_ok=True)
        self._held: list[IO[str]] = []

    def take(self) -> int:
        """Return a free port. Raises Unavailable if none is found."""
        for _ in range(ATTEMPTS):
            port = random.randint(FIRST, LAST)
            lock = (self._folder / str(port)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_free(port):
                    self._held.append(lock)
                    return port
            except BlockingIOError:
                pass  # another sandbox has the port
            lock.close()
        raise Unavailable("no free TCP port found on loopback", first=FIRST, last=LAST)

    def release(self) -> None:
        for lock in self._held:
            lock.close()
        self._held.clear()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java sets it for server sockets on Linux
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

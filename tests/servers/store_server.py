"""One object store, or a proxy before one, as a process on a loopback port of its own.

It dies with us, also when we are killed; its output is in its log file, and in the error if it does not start.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.store_programs import AZURITE, FAKE_GCS, TOXIPROXY, VERSITYGW, StoreProgram, store_program
from tierstate.sandbox.artifacts import Progress
from tierstate.sandbox.ports import PortLease
from tierstate.sandbox.process import TETHER
from tierstate.state.errors import TimedOut, Unavailable

START_SECONDS = 60.0
STOP_SECONDS = 5.0
Arguments = Callable[[int, Path], Sequence[str]]


class StoreServer:
    """Use as a context manager. ``address`` is ``127.0.0.1:PORT``, ``url`` the same with ``http://``.

    ``environment`` is that of the next `start`.
    """

    def __init__(
        self,
        program: StoreProgram,
        arguments: Arguments,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._program, self._arguments, self._progress = program, arguments, progress
        self.environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._ports = PortLease()
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="store-server")  # its thread keeps the process alive
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        """Start it and wait until it accepts connections. Raises Unavailable, TimedOut, InvalidRequest."""
        self._brought()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._port = self._ports.take()
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _brought(self) -> str:
        """Return the path of the program."""
        return str(store_program(self._program, self._progress))

    def start(self) -> None:
        """Start again, on the same port and folder, after `kill`."""
        command = [self._brought(), *self._arguments(self._port, self._folder)]
        tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]
        self._process = self._starter.submit(self._popen, [*tether, *command]).result()
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None:
                lines = self._log.read_text(errors="replace").strip().splitlines()
                raise Unavailable(f"{self._program.name} ended while it started", said=lines[-1] if lines else "")
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise TimedOut(f"{self._program.name} does not answer", log=self._log) from None
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal. After SIGSTOP its connections stay open, and it is silent until SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Stop the process; a second call does nothing."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._starter.shutdown()
        self._ports.release()

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._program.name}.log"

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def versitygw(folder: Path, access_key: str, secret_key: str, progress: Progress | None = None) -> StoreServer:
    """Return S3 over a folder: real signatures, atomic conditional puts. Make buckets by S3."""

    def arguments(port: int, folder: Path) -> Sequence[str]:
        (folder / "buckets").mkdir(exist_ok=True)
        # without --keep-alive a hanging connection is closed at once, and no time-out is ever reached
        return ["--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}", "posix", str(folder / "buckets")]

    secrets = {"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key}
    return StoreServer(VERSITYGW, arguments, folder, secrets, progress)


def fake_gcs_server(folder: Path, progress: Progress | None = None) -> StoreServer:
    """Return Google Cloud Storage's JSON API, in memory; it never checks credentials."""

    def arguments(port: int, folder: Path) -> Sequence[str]:
        address = f"127.0.0.1:{port}"
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        return [*where, "-external-url", f"http://{address}", "-public-host", address, "-backend", "memory"]

    return StoreServer(FAKE_GCS, arguments, folder, None, progress)


def azurite(folder: Path, progress: Progress | None = None) -> StoreServer:
    """Return Azure's blob service over a folder, with its well-known development account."""

    def arguments(port: int, folder: Path) -> Sequence[str]:
        (folder / "blobs").mkdir(exist_ok=True)
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "blobs")]
        return [*where, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    return StoreServer(AZURITE, arguments, folder, None, progress)


def toxiproxy(folder: Path, progress: Progress | None = None) -> StoreServer:
    """Return a proxy that breaks connections by commands to its HTTP API; its proxies listen on ports of their own."""

    def arguments(port: int, folder: Path) -> Sequence[str]:
        return ["-host", "127.0.0.1", "-port", str(port)]

    return StoreServer(TOXIPROXY, arguments, folder, None, progress)

"""Format, start and signal one broker process, and wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..state.errors import BrokerUnavailable, TimedOut
from .artifacts import cache_folder
from .properties import BrokerAddress

TETHER = Path(__file__).resolve().with_name("tether.py")
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]  # for short runs on two cores
JVM += ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
STOP_SECONDS = 20.0
PROPERTIES = "server.properties"


class ClassArchive:
    """A class data sharing archive of Kafka's classes next to the jars, for one Java and the jars of one release. Jars
    outside tierstate's cache folder have no archive.

    Formatting the first broker on a machine creates the archive. Until it answers, a broker needs 3.6 s of processor
    time without the archive, 2.8 s with it. A JVM that cannot use the archive logs that and continues. Java 17 cannot
    use it if the jars' path has characters that a URL escapes, such as a space (JDK-8339460, fixed in Java 24).
    """

    def __init__(self, java: str, libs: Path) -> None:
        status = os.stat(java)
        self._path = libs.with_name(f"classes-{status.st_ino:x}-{status.st_mtime_ns:x}.jsa")
        self._kept = libs.parent.parent == cache_folder()
        self._part = self._path.with_name(f"{self._path.name}.{os.getpid()}-{id(self):x}.part")

    def options(self, *, make: bool = False) -> list[str]:
        """Return JVM options to use the archive, or with ``make`` to write a missing one (then `keep` or `drop` it)."""
        if not self._kept:
            return []
        if self._path.is_file():
            return [f"-XX:SharedArchiveFile={self._path}"]
        return [f"-XX:ArchiveClassesAtExit={self._part}"] if make else []

    def keep(self) -> None:
        """Move a written archive to its final path, if there is one. It may replace an equal one of another process."""
        with suppress(FileNotFoundError):
            self._part.replace(self._path)

    def drop(self) -> None:
        """Remove an archive that a failed JVM wrote, because that archive has only a few classes."""
        self._part.unlink(missing_ok=True)


class BrokerProcess:
    """A broker in its own folder.

    broker-1/server.properties
    broker-1/broker.log          its output; each start appends to it
    broker-1/data/               Kafka's log folder: `log_dir`
    """

    def __init__(
        self, address: BrokerAddress, folder: Path, java: str, libs: Path, starter: Executor | None = None
    ) -> None:
        """The broker dies with ``starter``'s thread (`tether.py`). With None, the broker outlives this process."""
        self.address = address
        self.folder = folder
        self._java, self._classes, self._archive = [java, *JVM], ["-cp", f"{libs}/*"], ClassArchive(java, libs)
        self._starter = starter
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_dir(self) -> Path:
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        return self.folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """Return the process id, or None if the process was never started or has ended."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def format(self, cluster_id: str) -> None:
        """Format Kafka's storage unless it is formatted already. Raises BrokerUnavailable if that fails."""
        command = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster_id]
        command += ["-c", str(self.folder / PROPERTIES)]
        process = self._spawn([*self._java, *self._archive.options(make=True), *self._classes, *command])
        if process.wait() != 0:
            self._archive.drop()
            raise self._failed("Kafka's storage could not be formatted")
        self._archive.keep()

    def launch(self) -> None:
        """Start the process unless it runs, without waiting for an answer."""
        if self.pid is None:
            command = ["kafka.Kafka", str(self.folder / PROPERTIES)]
            self._process = self._spawn([*self._java, *self._archive.options(), *self._classes, *command])

    def wait_ready(self, brokers: int, deadline: float, client_config: Mapping[str, str]) -> None:
        """Wait until this broker answers and lists at least ``brokers`` brokers.

        Raises TimedOut at ``deadline`` (of `time.monotonic`), and BrokerUnavailable if the process ended.
        """
        own: dict[str, Any] = {"bootstrap.servers": str(self.address), "log_level": 0, "reconnect.backoff.max.ms": 100}
        client = AdminClient({**client_config, **own})
        while time.monotonic() < deadline:
            if self.pid is None:
                raise self._failed("a broker ended while it started")
            try:
                if len(client.list_topics(timeout=0.5).brokers) >= brokers:
                    return
            except KafkaException:
                pass  # the broker does not answer yet
            time.sleep(0.05)
        raise TimedOut("a broker did not answer in time", broker=self.address.node_id, log=self.log_file)

    def signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the kernel has released all resources of the process."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM for a clean shutdown that hands leadership over. Sends SIGKILL after ``STOP_SECONDS``."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        if self._starter is None:
            return self._popen(command)
        tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]
        return self._starter.submit(self._popen, [*tether, *command]).result()

    def _popen(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            # A new session, because Ctrl-C in the terminal must reach only this process, which stops the brokers.
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _failed(self, message: str) -> BrokerUnavailable:
        output = self.log_file.read_text(errors="replace").splitlines()
        why = next(
            (line for line in reversed(output) if "ERROR" in line or "Exception" in line), output[-1] if output else ""
        )
        return BrokerUnavailable(message, broker=self.address.node_id, log=self.log_file, said=why.strip()[:300])

"""The processes of the demo: a broker, an agent, a gateway, a proxy; all end with the demo, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tierstate.sandbox import tether
from tierstate.sandbox.detached import down, up
from tierstate.sandbox.kafka import KafkaSandbox

TIERSTATE = [sys.executable, "-m", "tierstate.cli.main"]
TOPIC = "flights"
PARTITIONS = 3
DAY_MS = 24 * 3600 * 1000


class DemoFailed(Exception):
    """A command failed, or something did not happen in time; the message is for the person."""


@dataclass
class House:
    """One folder holds everything: broker data, object store, state, logs, settings."""

    folder: Path
    keep: bool
    bootstrap: str = ""
    gateway: str = ""
    proxy: str = ""
    log_dir: Path = field(default_factory=Path)
    _kafka: KafkaSandbox | None = None
    _detached: Path | None = None
    _management: str | None = None
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _sessions: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store, self.state = self.folder / "object-store", self.folder / "state"
        self.settings = self.folder / "tierstate.toml"
        self.lake = self.folder / "lake"  # the tables, and the catalog that names them

    def start_kafka(self) -> None:
        """A real single-node KRaft broker on a free port."""
        if self.keep:
            self._detached = self.folder / "kafka"
            running = up(self._detached)
            self.bootstrap, self.log_dir = running.bootstrap, Path(running.brokers[0].log_dir)
        else:
            self._kafka = KafkaSandbox(folder=self.folder / "kafka").open()
            self.bootstrap, self.log_dir = self._kafka.bootstrap, self._kafka.brokers[0].log_dir
        self.store.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(
            f'state_dir = "{self.state}"\n'
            f'[kafka]\n"bootstrap.servers" = "{self.bootstrap}"\n'
            f'[store]\nurl = "{self.store.as_uri()}"\n'
            f"[tier_state]\npartitions = 3\nreplication_factor = 1\n"
            f'[tiering]\ninclude = ["{TOPIC}"]\n'
            f'[agent]\nlog_dirs = ["{self.log_dir}"]\n'
            f'[trim]\ndelay = "0s"\n'
            f'[prefix]\nheartbeat = "1s"\n'  # the agent is killed, and trims when it was silent for four
            f'[management]\nlisten = "127.0.0.1:0"\n'
            f'[gateway]\nlisten = "127.0.0.1:0"\n'
            f'[table]\nfolder = "{self.lake}"\n'
        )

    def spawn_agent(self, *arguments: str) -> None:
        """Start an agent, always at the same management address, so that a second start prints nothing new."""
        if self._management is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._management = f"127.0.0.1:{probe.getsockname()[1]}"
        self.spawn("agent", "agent", "--set", f"management.listen={self._management}", *arguments)

    def command(self, *arguments: str) -> list[str]:
        """Return a tierstate command with the demo's settings, as one would type it."""
        return [*TIERSTATE, *arguments, "--config", str(self.settings)]

    def run(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises DemoFailed with what it printed."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=600)
        if done.returncode not in accept:
            raise DemoFailed(f"tierstate {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done

    def json(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> Any:
        return json.loads(self.run(*arguments, "--json", accept=accept).stdout)

    def spawn(self, name: str, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        """Start a command that stays; it dies with the demo unless everything is kept running."""
        log = (self.folder / f"{name}.log").open("ab")
        return self._popen(name, self.command(*arguments), log, stdout)

    def spawn_python(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a module of the demo, and what it starts, in a session of its own; its stdout is a pipe."""
        log = (self.folder / f"{name}.log").open("ab")
        self._sessions.add(name)
        return self._popen(name, [sys.executable, "-m", module, *arguments], log, subprocess.PIPE)

    def _popen(self, name: str, command: list[str], log: BinaryIO, stdout: int | None) -> subprocess.Popen[bytes]:
        if not self.keep:
            command = [sys.executable, tether.__file__, str(os.getpid()), *command]
        apart = self.keep or name in self._sessions
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log, start_new_session=apart
        )
        self._processes[name] = process
        return process

    def alive(self, name: str) -> None:
        """Raise DemoFailed with the end of its log when it died."""
        process = self._processes[name]
        if process.poll() is not None:
            text = (self.folder / f"{name}.log").read_text(errors="replace")
            raise DemoFailed(f"the {name} ended by itself with {process.returncode}:\n{text[-3000:]}")

    def kill(self, name: str) -> None:
        """Kill the process by SIGKILL, as a crash."""
        self._processes[name].kill()
        self._processes[name].wait()

    def stop(self, name: str) -> None:
        """Stop the process by SIGTERM, and wait for its end."""
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process is not None and name in self._sessions:
            with suppress(ProcessLookupError):  # a JVM outlives a Python that is interrupted while it waits for it
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Stop everything and remove the folder."""
        for name in list(self._processes):
            self.stop(name)
        if self._kafka is not None:
            self._kafka.close()
        if self._detached is not None:
            down(self._detached)
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self) -> list[int]:
        """Return the ids of the processes that still run, besides Kafka."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    # --- what can be seen from outside ---------------------------------------------------------------------------

    def local_bytes(self) -> int:
        """Return the bytes of the topic's .log files on the broker's disk. (Active indexes are preallocated.)"""
        return sum(path.stat().st_size for path in self.log_dir.glob(f"{TOPIC}-*/*.log") if path.exists())

    def manifests(self) -> int:
        """Return how many segments have a manifest in the object store."""
        return sum(1 for _ in self.store.rglob("*.rsm-manifest"))

    def remote_objects(self) -> tuple[int, int]:
        """Return number and bytes of segment objects in the store; archive and checkpoints are not counted."""
        files = [path for path in self.store.rglob("*") if path.is_file()]
        sizes = [path.stat().st_size for path in files if "_tierstate" not in path.relative_to(self.store).parts[:1]]
        return len(sizes), sum(sizes)


def get(url: str, accept: str, timeout: float = 60.0) -> tuple[bytes, dict[str, str]]:
    """Send an HTTP GET; return the body, and headers in lower case."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read(), {name.lower(): value for name, value in answer.headers.items()}


def wait_for(what: str, seconds: float, look: Any, house: House, *names: str) -> None:
    """Wait until ``look()`` is true. Raises DemoFailed when it takes too long or one of the processes ends."""
    began = time.monotonic()
    deadline = began + seconds
    while not look():
        for name in names:
            house.alive(name)
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(min(max(0.1, time.monotonic() - began), 1.0))  # a look may be a command, which takes time of others
        began = time.monotonic()

"""A sandbox that keeps running: ``tierstate sandbox up``, ``down``, ``status``.

The brokers run in sessions of their own and outlive the command. ``sandbox.json`` in the folder lists their processes.
Each process id is compared together with its start time, so that a reused id is never taken for a broker.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..state.errors import CorruptData, InvalidRequest
from .artifacts import NEWEST, Progress, cache_folder, find_java, kafka_libs
from .kafka import READY_SECONDS, KafkaSandbox
from .process import PROPERTIES, BrokerProcess
from .properties import BrokerAddress

STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class DetachedBroker:
    """One broker. ``started`` is the kernel's start time of the process, in clock ticks since boot."""

    node_id: int
    port: int
    pid: int
    started: int
    folder: str
    log_dir: str

    @property
    def alive(self) -> bool:
        return process_started(self.pid) == self.started

    @property
    def answers(self) -> bool:
        """Return whether the broker runs and its port accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return self.alive


@dataclass(frozen=True, slots=True)
class DetachedSandbox:
    """The sandbox that ``up`` started in a folder."""

    folder: str
    bootstrap: str
    cluster_id: str
    brokers: tuple[DetachedBroker, ...]
    release: str = NEWEST

    @property
    def alive(self) -> bool:
        return any(broker.alive for broker in self.brokers)


def default_folder() -> Path:
    """Return the folder that ``up`` uses by default: one per user."""
    return cache_folder() / "sandbox"


def up(folder: Path, brokers: int = 1, progress: Progress | None = None, *, release: str = NEWEST) -> DetachedSandbox:
    """Start brokers that outlive this process. If brokers of the folder's sandbox have ended, start those again, with
    the same ports, release and data.

    Raises InvalidRequest if all of them run, or if the folder has other files. Raises CorruptData as `status`.
    """
    before = status(folder)
    if before is not None and all(broker.alive for broker in before.brokers):
        raise InvalidRequest("a sandbox already runs here", folder=folder, bootstrap=before.bootstrap)
    if before is not None:
        return _up_again(folder, before, progress)
    if folder.exists() and any(folder.iterdir()):
        raise InvalidRequest("this folder is not empty, and no sandbox made it", folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    kafka = KafkaSandbox(brokers, release=release, folder=folder, tethered=False, progress=progress).open()
    try:
        return _recorded(folder, _describe(kafka))
    except BaseException:
        kafka.close()
        raise


def _recorded(folder: Path, running: DetachedSandbox) -> DetachedSandbox:
    fresh = folder / "sandbox.part"
    fresh.write_text(json.dumps(asdict(running), indent=2) + "\n", encoding="utf-8")
    fresh.rename(folder / "sandbox.json")
    return running


def _up_again(folder: Path, before: DetachedSandbox, progress: Progress | None) -> DetachedSandbox:
    ended = [broker for broker in before.brokers if not broker.alive]
    if not all((Path(broker.folder) / PROPERTIES).exists() for broker in ended):
        raise InvalidRequest(
            "the brokers of this sandbox have ended, and cannot be started again without their settings: "
            f"remove its records with `tierstate sandbox down --dir {folder}`, or name another folder with --dir",
            folder=folder,
        )
    java, libs = find_java(), kafka_libs(progress, before.release)
    processes = [BrokerProcess(BrokerAddress(one.node_id, one.port, 0), Path(one.folder), java, libs) for one in ended]
    try:
        for process in processes:
            process.launch()
        for process in processes:
            process.wait_ready(len(before.brokers), time.monotonic() + READY_SECONDS, {})
        fresh = {each.node_id: each for each in map(_broker, processes)}
        return _recorded(folder, replace(before, brokers=tuple(fresh.get(b.node_id, b) for b in before.brokers)))
    except BaseException:
        for process in processes:
            process.stop()
        raise


def down(folder: Path, *, keep: bool = False) -> bool:
    """Stop the sandbox. Removes its files, or only ``sandbox.json`` with ``keep``.

    Returns False if there was no sandbox. Raises CorruptData as `status`.
    """
    running = status(folder)
    if running is None:
        return False
    for broker in running.brokers:
        _signal(broker, signal.SIGTERM)
        _signal(broker, signal.SIGCONT)
    deadline = time.monotonic() + STOP_SECONDS
    while running.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    for broker in running.brokers:
        _signal(broker, signal.SIGKILL)
    (folder / "sandbox.json").unlink()
    for broker in () if keep else running.brokers:
        shutil.rmtree(broker.folder, ignore_errors=True)
    return True


def status(folder: Path) -> DetachedSandbox | None:
    """Return the sandbox that was started in ``folder``, or None. Raises CorruptData for a damaged state file."""
    path = folder / "sandbox.json"
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        brokers = tuple(DetachedBroker(**broker) for broker in state.pop("brokers"))
        return DetachedSandbox(**state, brokers=brokers)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData("the sandbox's state file cannot be read", file=path, reason=error) from error


def process_started(pid: int) -> int | None:
    """Return a process's start time, in clock ticks since boot, or None if it ended or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before ")" may have spaces; fields[0] is field 3 of proc(5)
    return None if fields[0] == "Z" else int(fields[19])


def _describe(kafka: KafkaSandbox) -> DetachedSandbox:
    brokers = tuple(map(_broker, kafka.brokers))
    return DetachedSandbox(str(kafka.folder), kafka.bootstrap, kafka.cluster_id, brokers, kafka.release)


def _broker(broker: BrokerProcess) -> DetachedBroker:
    pid, at = broker.pid or 0, broker.address
    started = process_started(pid) or 0
    return DetachedBroker(at.node_id, at.port, pid, started, str(broker.folder), str(broker.log_dir))


def _signal(broker: DetachedBroker, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # the process may end between the check and the call
        if broker.alive:
            os.kill(broker.pid, number)

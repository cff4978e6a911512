"""A standalone Spark master and workers, each a process of its own, that know nothing of this checkout.

They share a Spark installation, as nodes do, and a machine. Their tierstate was unpacked from an archive: the wheel of
this checkout and its dependencies.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyspark
from packaging.requirements import Requirement

from tierstate.sandbox.process import TETHER

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_S = 120.0
WITHOUT = {"pyspark", "py4j"}
"""Spark brings its own."""
DAEMON = "tierstate.spark.daemon"
"""The module in the command lines of Python workers: `tierstate.spark.session` sets ``spark.python.daemon.module``."""


class SparkCluster:
    """Use as a context manager. ``logs`` are those of master and workers."""

    def __init__(self, folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self._workers = folder, workers
        self._environment = {**plain_environment(folder), **(environment or {})}
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="spark-cluster")  # its thread keeps them alive
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> SparkCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._begin("master", "org.apache.spark.deploy.master.Master", *_place(0))
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                work = self.folder / f"work-{number}"
                size = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
                place = _place(number)
                self._begin(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *place, *size, self.url)
            for number in range(self._workers):
                self._said(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)
        self._starter.shutdown()

    def executors(self) -> dict[int, str]:
        """Return the processes that run tasks, as (pid of the JVM, its folder)."""
        return {pid: folder for pid, folder, line in processes(self.folder) if "CoarseGrainedExecutorBackend" in line}

    def python_workers(self) -> list[int]:
        """Return the executors' Python processes that work on a task, or did."""
        return [pid for pid, _, line in processes(self.folder) if DAEMON in line]

    def python_workers_of(self, executor: int) -> list[int]:
        """Return those of one executor, by its folder."""
        folder = self.executors()[executor]
        return [pid for pid, cwd, line in processes(self.folder) if DAEMON in line and cwd == folder]

    def _begin(self, name: str, *command: str) -> None:
        log = open(self.folder / f"{name}.log", "wb")
        cwd = self.folder / name
        cwd.mkdir()
        program = [str(SPARK_HOME / "bin" / "spark-class"), *command]
        tethered = [sys.executable, str(TETHER), str(os.getpid()), *program]
        spawn = self._starter.submit(
            subprocess.Popen, tethered, cwd=cwd, env=self._environment, stdout=log, stderr=subprocess.STDOUT
        )
        self._processes.append(spawn.result())
        log.close()

    def _said(self, name: str, pattern: str) -> str:
        ends = time.monotonic() + PATIENCE_S
        log = self.folder / f"{name}.log"
        while time.monotonic() < ends:
            match = re.search(pattern, log.read_text(errors="replace"))
            if match:
                return match[1]
            time.sleep(0.1)
        raise AssertionError(f"{name} did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _place(number: int) -> list[str]:
    """Give each worker a host of its own: Spark starts no second attempt of a slow task on the same host."""
    return ["--host", f"127.0.0.{number + 1}", "--port", "0", "--webui-port", "0"]


def processes(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (pid, working folder, command line) of every process that works below ``folder``."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                cwd = os.readlink(entry / "cwd")
                if Path(cwd).is_relative_to(folder):
                    yield int(entry.name), cwd, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def plain_environment(home: Path) -> dict[str, str]:
    """Return a node's environment: nothing in it leads to this checkout except the place of Spark."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    java = shutil.which("java")
    assert java is not None
    path = f"{Path(java).parent}:/usr/bin:/bin"
    return {**kept, "PATH": path, "HOME": str(home), "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


def make_environment(folder: Path, wheel: Path, extras: Sequence[str] = ("spark",)) -> None:
    """Make a virtual environment in ``folder`` with the wheel, as pip would; its dependencies are copied from ours."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    packages = next((folder / "lib").glob("python*/site-packages"))
    for name in sorted(needed("tierstate", extras) - {"tierstate"}):
        for file in importlib.metadata.files(name) or ():
            target = packages / file
            source = Path(str(file.locate()))
            if ".." not in Path(file).parts and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)


def needed(name: str, extras: Sequence[str] = ()) -> set[str]:
    """Return the names of the distributions that pip would install."""
    names: dict[str, set[str]] = {}
    waiting = [(name, tuple(extras))]
    while waiting:
        each, more = waiting.pop()
        new = {"", *more} - names.get(each, set())  # an extra may name another extra of its own distribution
        if each in WITHOUT or not new:
            continue
        names.setdefault(each, set()).update(new)
        for text in importlib.metadata.requires(each) or ():
            required = Requirement(text)
            if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in new):
                waiting.append((required.name, tuple(required.extras)))
    return set(names)

"""Short commands of tierstate, each a process of its own that begins with everything imported.

Imports are most of the cost of a short command, so one process imports for all of them and forks itself for each: own
memory, environment, files, signals and exit code. Only commands that stay (`House.start`) and most of `tests/cli` start
for real, import by import.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tierstate.cli.table import ENTRIES

IMPORTED = [f"tierstate.cli.{entry.module}" for entry in ENTRIES] + (
    "tierstate.app.opening.bucket_connection tierstate.app.opening.connection tierstate.app.looking.overview"
    " tierstate.app.opening.partitions tierstate.app.operating.sweeping tierstate.app.looking.verification"
    " tierstate.api.open tierstate.fetch.gateway tierstate.fetch.open tierstate.fetch.source"
    " tierstate.follower.time_travel tierstate.leader.open tierstate.log.json_lines"
    " tierstate.log.record_digest tierstate.log.text_columns tierstate.storage.open tests.scenarios.forked"
).split()
"""Modules that commands import when they are called."""

LOOK_S = 0.05
_asking = threading.Lock()
"""Held by the thread that asks for exit codes; the start of a process asks for those of all others.

The server reports an exit code once. If two threads read it at the same time, one finds nothing and returns 255.
"""


@cache
def _server() -> ForkServerContext:
    """Return the server of this process, which ends with it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def command(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run ``tierstate`` with these arguments, in the folder ``/``. Raises TimeoutExpired, as `subprocess.run`."""
    with tempfile.TemporaryDirectory(prefix="tierstate-command-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _begun(arguments, environment, out, err)
        wait([process.sentinel], seconds)
        with _asking:
            code = process.exitcode
        if code is None:
            process.kill()
            wait([process.sentinel])
            print(err.read_text()[-8000:])  # pytest does not show what the exception has
            raise subprocess.TimeoutExpired(["tierstate", *arguments], seconds, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(["tierstate", *arguments], code, out.read_text(), err.read_text())


def killed(arguments: Sequence[str], environment: Mapping[str, str], moment: Callable[[], object]) -> None:
    """Run ``tierstate`` with these arguments, and kill it at this moment, unless it ends before."""
    with tempfile.TemporaryDirectory(prefix="tierstate-command-") as folder:
        process = _begun(arguments, environment, Path(folder, "out"), Path(folder, "err"))
        while not wait([process.sentinel], LOOK_S) and not moment():
            pass
        process.kill()
        wait([process.sentinel])


def _begun(arguments: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> ForkServerProcess:
    for path in (out, err):
        path.touch()
    process = _server().Process(target=_be, args=(list(arguments), dict(environment), str(out), str(err)))
    with _asking:
        process.start()
    return process


def _be(arguments: list[str], environment: dict[str, str], out: str, err: str) -> None:
    """Run the program in the child, with the files and the environment that a shell would give it."""
    for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir("/")
    sys.argv = ["tierstate", *arguments]
    from tierstate.cli.main import main

    main()

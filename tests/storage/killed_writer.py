"""A program that does one thing to a directory store in a child process that is killed with SIGKILL before its N-th
system step, for N = 1, 2, … until the child lives to the end; it prints that N. Each N has a folder of its own.

    python killed_writer.py kill put FOLDER     the children work in FOLDER/1, FOLDER/2, …
    python killed_writer.py steps put FOLDER    kills no child; prints the names of the steps
    python killed_writer.py full put FOLDER     a child for every size a file may have at most; FOLDER/0, FOLDER/1, …

A system step is a call from Python into `posix` or `fcntl`, as the interpreter's profiler reports it before the call:
audit hooks do not see write and fsync. A step that C code takes by itself is not seen (there is none in this store).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tierstate.state.errors import StorageFull
from tierstate.storage.directory import DirectoryStore

KEY = "folder/inside/object"
PIECES = [b"one " * 250, b"two " * 250, b"three " * 100]
NEW, OLD = b"".join(PIECES), b"what was there before"
NO_STEPS = {"fspath", "getpid", "urandom"}


def put(folder: Path) -> None:
    assert DirectoryStore(folder).put_stream(KEY, PIECES) == len(NEW)


def replace(folder: Path) -> None:
    assert DirectoryStore(folder).replace_if_same(KEY, NEW, OLD)


def delete(folder: Path) -> None:
    DirectoryStore(folder).delete(KEY)


WORK: dict[str, Callable[[Path], None]] = {"put": put, "replace": replace, "delete": delete}


def prepare(work: str, folder: Path) -> None:
    """Prepare the folder: a put begins with a store that does not exist yet, the others with one object."""
    if work != "put":
        DirectoryStore(folder).put_if_absent(KEY, OLD)


def watch(step: Callable[[str], None]) -> None:
    """Let ``step(name)`` run before every system step of this process from now on."""

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and getattr(arg, "__module__", "") in ("posix", "fcntl") and arg.__name__ not in NO_STEPS:
            step(arg.__name__)

    sys.setprofile(profile)


def child(work: Callable[[], None]) -> int:
    """Run the work in a child process; return its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            sys.setprofile(None)
        except BaseException:
            sys.setprofile(None)
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def killed(work: str, folder: Path, at: int) -> None:
    steps = 0

    def step(name: str) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(step)
    WORK[work](folder)


def kill(work: str, folder: Path) -> None:
    at, status = 0, -1
    while status != 0:
        at += 1
        prepare(work, folder / str(at))
        status = child(partial(killed, work, folder / str(at), at))
        if status != 0 and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            sys.exit(f"the child failed before step {at}: {status}")
    print(at)


def steps(work: str, folder: Path) -> None:
    names: list[str] = []
    prepare(work, folder)
    watch(names.append)
    WORK[work](folder)
    sys.setprofile(None)
    print(" ".join(names))


def filled(work: str, folder: Path, limit: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        WORK[work](folder)
    except StorageFull:
        return
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sys.exit("no StorageFull")


def full(work: str, folder: Path) -> None:
    """Limit the size of files: the system refuses bytes above it (EFBIG), in the middle of any write, and before it."""
    edges = [0]
    for piece in PIECES:
        edges += [edges[-1] + len(piece) // 2, edges[-1] + len(piece)]
    for number, limit in enumerate(edges[:-1]):
        prepare(work, folder / str(number))
        if child(partial(filled, work, folder / str(number), limit)) != 0:
            sys.exit(f"the child failed at a limit of {limit} bytes")
    print(len(edges) - 1)


if __name__ == "__main__":
    {"kill": kill, "steps": steps, "full": full}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))

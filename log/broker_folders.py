"""Which of its ``log.dirs`` a broker runs with, and the agent with it: a lost disk takes no other one with it.

A broker locks the file ``.lock`` in every folder that it serves, and lets go of it when the folder fails (Kafka's
`LogManager`). So the locks say what it runs with, and nobody has to be asked. A folder that it gave up may be readable
all the same, and then it is stale: its replicas go on elsewhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..runtime.listener import Listener, LogFolderBack, LogFolderLost, ignore
from ..state.errors import InvalidRequest, TierstateError, Unavailable
from ..state.ids import BrokerId

NOT_SERVED = "the broker runs without it"
_MOMENTARY = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
"""What says nothing of the disk."""
_FLOCK = struct.Struct("hhqqi4x")
"""Linux' `struct flock`: type, whence, start, length, process."""


@dataclass(frozen=True, slots=True)
class LogDirsIdentity:
    """Whose folders these are: from ``meta.properties`` in each of them."""

    cluster_id: str
    node_id: BrokerId


@dataclass(frozen=True, slots=True)
class _Found:
    """One look at a folder. ``problem``: why it cannot be used. ``served``: the broker has its lock; None: unknown."""

    identity: LogDirsIdentity | None
    problem: TierstateError | None
    served: bool | None


class BrokerFolders:
    """The folders in use are ``live``; ``lost`` says of the others why not. One thread looks; anybody reads.

    While the broker is down all that can be read are live, but for those that were lost: they are back once the broker
    has locked them again.
    """

    def __init__(self, folders: Sequence[Path], *, alone: bool = True, listener: Listener = ignore) -> None:
        """``alone``: a lock of our own is held in each live folder, for there is one agent to a broker.

        Raises InvalidRequest when no folder is a broker's, when they belong to different brokers, and when one that
        the broker serves cannot be used here; Unavailable when another agent holds one.
        """
        self.folders, self._alone, self._listener = tuple(folders), alone, listener
        self.live: tuple[Path, ...] = ()
        self.lost: Mapping[Path, str] = {}
        self.unserved = False
        """Nobody has the lock of any folder: the broker is down, or these are a copy of its folders."""
        self._own: dict[Path, IO[str]] = {}
        try:
            self.identity = self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> LogDirsIdentity:
        found = {folder: self._look_at(folder) for folder in self.folders}
        if not found:
            raise InvalidRequest("no log folder is given")
        for each in found.values():
            if each.problem is not None and (each.served or isinstance(each.problem, Unavailable)):
                raise each.problem
        identities = {each.identity for each in found.values() if each.identity is not None}
        if len(identities) > 1:
            raise InvalidRequest("log folders of different brokers", folders=",".join(map(str, self.folders)))
        if all(each.problem for each in found.values()):
            raise next(each.problem for each in found.values() if each.problem)
        self._decide(found)
        return identities.pop()

    def look(self) -> None:
        """What is live now. Raises Unavailable when nothing is, and when this process is short of something."""
        found = {folder: self._look_at(folder) for folder in self.folders}
        for folder, each in found.items():
            if each.problem is None and each.identity != self.identity:
                found[folder] = _Found(None, InvalidRequest("it is another broker's now"), each.served)
        self._decide(found)
        if not self.live:
            raise Unavailable("the broker's disk cannot be read", because="; ".join(self.lost.values()))

    def _decide(self, found: Mapping[Path, _Found]) -> None:
        self.unserved = all(each.served is False for each in found.values())
        running = any(each.served for each in found.values())
        lost: dict[Path, str] = {}
        for folder, each in found.items():
            if each.problem is not None:
                lost[folder] = str(each.problem)
            elif running and each.served is False:
                lost[folder] = NOT_SERVED
            elif each.served is False and folder in self.lost:
                lost[folder] = self.lost[folder]
        before, self.lost = self.lost, lost
        self.live = tuple(folder for folder in self.folders if folder not in lost)
        for folder in lost:
            self._let_go(folder)
        for folder in lost.keys() - before.keys():
            self._listener(LogFolderLost(str(folder), lost[folder]))
        for folder in before.keys() - lost.keys():
            self._listener(LogFolderBack(str(folder)))

    def _look_at(self, folder: Path) -> _Found:
        served, identity = _is_served(folder), None
        try:
            identity = _meta_properties(folder)
            self._hold(folder)
        except TierstateError as error:
            return _Found(identity, error, served)
        except OSError as error:
            if error.errno in _MOMENTARY:
                raise Unavailable(
                    "the broker's disk cannot be read", file=error.filename, reason=error.strerror
                ) from error
            said = "not a log folder of a broker" if identity is None else "cannot write into the broker's log folder"
            return _Found(identity, InvalidRequest(said, folder=folder, reason=error.strerror), served)
        return _Found(identity, None, served)

    def _hold(self, folder: Path) -> None:
        if not self._alone or folder in self._own:
            return
        path = folder / ".tierstate.lock"
        file = path.open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if not isinstance(error, BlockingIOError):
                raise
            raise Unavailable("another agent works beside this broker", file=path) from error
        self._own[folder] = file

    def _let_go(self, folder: Path) -> None:
        """So that a disk that is lost can be unmounted."""
        if (file := self._own.pop(folder, None)) is not None:
            with suppress(OSError):
                file.close()

    def close(self) -> None:
        for folder in list(self._own):
            self._let_go(folder)


def _meta_properties(folder: Path) -> LogDirsIdentity:
    """Raises OSError, InvalidRequest."""
    file = folder / "meta.properties"
    lines = file.read_text(errors="replace").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    node = found.get("node.id", found.get("broker.id", ""))
    if not node.isdigit() or not found.get("cluster.id"):
        raise InvalidRequest("meta.properties names no node and no cluster", file=file)
    return LogDirsIdentity(found["cluster.id"], BrokerId(int(node)))


def _is_served(folder: Path) -> bool | None:
    """Whether another process, the broker, holds the folder's lock; None where nobody can tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        file = os.open(folder / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        # asks who would be in the way of a lock; takes none, which would be in the broker's way
        answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    finally:
        os.close(file)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

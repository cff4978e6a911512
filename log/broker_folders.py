"""Find the ``log.dirs`` folders that a broker uses. The agent uses the same folders, so it survives a lost disk.

A broker locks the file ``.lock`` in every folder that it serves, and releases the lock when the folder fails (Kafka's
`LogManager`). So the locks show which folders the broker uses, without a request to it. A folder that the broker gave
up may still be readable, but it is stale: its replicas continue elsewhere.
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
"""Errors of this process or its host, which do not mean that the disk failed."""
_FLOCK = struct.Struct("hhqqi4x")
"""Linux' `struct flock`: type, whence, start, length, process id."""


@dataclass(frozen=True, slots=True)
class LogDirsIdentity:
    """The broker that the folders belong to, read from ``meta.properties`` in each of them."""

    cluster_id: str
    node_id: BrokerId


@dataclass(frozen=True, slots=True)
class _FolderState:
    """A log folder's state. ``problem``: the reason why it is unusable, or None. ``served``: whether the broker holds
    the folder's lock, or None if that is unknown."""

    identity: LogDirsIdentity | None
    problem: TierstateError | None
    served: bool | None


class BrokerFolders:
    """The log folders: ``live`` are in use, ``lost`` maps the others to the reason. One thread calls `look`; any thread
    may read the attributes.

    While the broker is down, all readable folders are live, except those that were lost before. A lost folder becomes
    live again once the broker has locked it.
    """

    def __init__(self, folders: Sequence[Path], *, alone: bool = True, listener: Listener = ignore) -> None:
        """If ``alone``, lock ``.tierstate.lock`` in each live folder, because a broker may have only one agent.

        Raises InvalidRequest if no folder is a broker's, if the folders belong to different brokers, or if this process
        cannot use a folder that the broker serves. Raises Unavailable if another agent has locked a folder.
        """
        self.folders, self._alone, self._listener = tuple(folders), alone, listener
        self.live: tuple[Path, ...] = ()
        self.lost: Mapping[Path, str] = {}
        self.unserved = False
        """True if no process holds the lock of any folder: the broker is down, or these are copies of its folders."""
        self._own: dict[Path, IO[str]] = {}
        try:
            self.identity = self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> LogDirsIdentity:
        looks = {folder: self._look_at(folder) for folder in self.folders}
        if not looks:
            raise InvalidRequest("no log folder is given")
        for look in looks.values():
            if look.problem is not None and (look.served or isinstance(look.problem, Unavailable)):
                raise look.problem
        identities = {look.identity for look in looks.values() if look.identity is not None}
        if len(identities) > 1:
            raise InvalidRequest("log folders of different brokers", folders=",".join(map(str, self.folders)))
        if all(look.problem for look in looks.values()):
            raise next(look.problem for look in looks.values() if look.problem)
        self._decide(looks)
        return identities.pop()

    def look(self) -> None:
        """Update ``live`` and ``lost``, and report changes to the listener. Raises Unavailable if no folder is live, or
        if this process lacks a resource (memory, file descriptors)."""
        looks = {folder: self._look_at(folder) for folder in self.folders}
        for folder, state in looks.items():
            if state.problem is None and state.identity != self.identity:
                looks[folder] = _FolderState(None, InvalidRequest("it is another broker's now"), state.served)
        self._decide(looks)
        if not self.live:
            raise Unavailable("the broker's disk cannot be read", because="; ".join(self.lost.values()))

    def _decide(self, states: Mapping[Path, _FolderState]) -> None:
        self.unserved = all(state.served is False for state in states.values())
        running = any(state.served for state in states.values())
        lost: dict[Path, str] = {}
        for folder, state in states.items():
            if state.problem is not None:
                lost[folder] = str(state.problem)
            elif running and state.served is False:
                lost[folder] = NOT_SERVED
            elif state.served is False and folder in self.lost:
                lost[folder] = self.lost[folder]
        before, self.lost = self.lost, lost
        self.live = tuple(folder for folder in self.folders if folder not in lost)
        for folder in lost:
            self._let_go(folder)
        for folder in lost.keys() - before.keys():
            self._listener(LogFolderLost(str(folder), lost[folder]))
        for folder in before.keys() - lost.keys():
            self._listener(LogFolderBack(str(folder)))

    def _look_at(self, folder: Path) -> _FolderState:
        served, identity = _is_served(folder), None
        try:
            identity = _meta_properties(folder)
            self._hold(folder)
        except TierstateError as error:
            return _FolderState(identity, error, served)
        except OSError as error:
            if error.errno in _MOMENTARY:
                raise Unavailable(
                    "the broker's disk cannot be read", file=error.filename, reason=error.strerror
                ) from error
            fault = "not a log folder of a broker" if identity is None else "cannot write into the broker's log folder"
            return _FolderState(identity, InvalidRequest(fault, folder=folder, reason=error.strerror), served)
        return _FolderState(identity, None, served)

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
        """Release the agent's lock on the folder, so that a lost disk can be unmounted."""
        if (file := self._own.pop(folder, None)) is not None:
            with suppress(OSError):
                file.close()

    def close(self) -> None:
        for folder in list(self._own):
            self._let_go(folder)


def _meta_properties(folder: Path) -> LogDirsIdentity:
    """Return the cluster id and the node id. Raises OSError, and InvalidRequest if an id is missing."""
    file = folder / "meta.properties"
    lines = file.read_text(errors="replace").splitlines()
    properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    node = properties.get("node.id", properties.get("broker.id", ""))
    if not node.isdigit() or not properties.get("cluster.id"):
        raise InvalidRequest("meta.properties names no node and no cluster", file=file)
    return LogDirsIdentity(properties["cluster.id"], BrokerId(int(node)))


def _is_served(folder: Path) -> bool | None:
    """Return whether another process, the broker, holds the folder's lock. Returns None if that is unknown."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        file = os.open(folder / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        # F_GETLK reports a conflicting lock without taking one: a lock of the agent could stop a starting broker
        answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    finally:
        os.close(file)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

"""Watch partition folders for added and removed files with Linux' inotify. An idle watch costs nothing.

An event is only a hint: callers must still list the folders from time to time. If inotify is missing (another operating
system) or a watch cannot be added (``fs.inotify.max_user_watches`` exhausted), `Touched.blind` is true.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLYDIR, _ISDIR = 0x4000, 0x8000, 0x01000000, 0x40000000
_ANY = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Touched:
    """Changes since the last call: ``names`` are the folders (``topic-3``) in which files were added or removed.

    ``folders``: partition folders themselves may have been added or removed. ``blind``: some changes are not reported,
    so callers must list the folders often.
    """

    names: frozenset[str]
    folders: bool
    blind: bool


class FolderEvents:
    """Watches the log folders of a broker and the partition folders in them. One thread at a time may use it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._names: dict[int, str] = {}
        self._roots: set[int] = set()
        self._complete = True
        self._call = _system()
        self._file = -1 if self._call is None else self._call.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch_roots(folders)

    def watch_roots(self, folders: Iterable[Path]) -> None:
        """Watch these log folders too, in addition to those that are watched already."""
        self._roots |= {number for folder in folders if (number := self._add(str(folder))) >= 0}

    def watch(self, paths: Iterable[str]) -> None:
        """Watch these partition folders too, in addition to those that are watched already."""
        for path in paths:
            number = self._add(path)
            if number >= 0:
                self._names[number] = os.path.basename(path)

    def touched(self) -> Touched:
        """Return the changes since the last call. Never blocks, never raises."""
        names: set[str] = set()
        folders = False
        while data := self._read():
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    names.update(self._names.values())
                    folders = True
                elif number in self._roots:
                    folders = folders or bool(mask & _ISDIR)  # ignore files: the broker often replaces its checkpoints
                elif number in self._names:
                    names.add(self._names[number])
                    folders = folders or bool(mask & (_DELETE_SELF | _MOVE_SELF))
                if mask & _IGNORED:
                    self._names.pop(number, None)
                    self._roots.discard(number)
        return Touched(frozenset(names), folders, not self._complete)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _add(self, path: str) -> int:
        number = -1
        if self._call is not None and self._file >= 0:
            number = self._call.inotify_add_watch(self._file, os.fsencode(path), _ANY)
        self._complete = self._complete and (number >= 0 or not os.path.isdir(path))
        return number

    def _read(self) -> bytes:
        if self._file < 0:
            return b""
        try:
            return os.read(self._file, _READ_BYTES)
        except OSError:  # no events left
            return b""


def _system() -> ctypes.CDLL | None:
    """Return the C library, or None if it has no inotify."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None

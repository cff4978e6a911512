"""A secret from a file or a command that may change while the process runs: a rotation needs no restart.

A file is checked whenever the value is needed, and read if it changed. A command runs again after a refused login.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..state.errors import InvalidSettings

COMMAND_S = 30.0
AGAIN_S = 2.0
"""Seconds after a run within which a command is not run again."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference in settings: ``env``, ``file`` or ``command``. Relative paths begin at ``folder``."""

    kind: str
    words: tuple[str, ...]
    """The variable, the path, or the command with its arguments."""
    folder: Path = Path()

    def read(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the current value. Raises ValueError if there is none. The message never contains the value."""
        match self.kind:
            case "env":
                if self.words[0] not in environ:
                    raise ValueError(f"the environment variable {self.words[0]} is not set")
                return environ[self.words[0]]
            case "file":
                return _text_of(self.folder / self.words[0])
            case _:
                return _output_of(self.words, self.folder)

    @property
    def path(self) -> Path | None:
        """The path of the file. None if the reference is not to a file."""
        return self.folder / self.words[0] if self.kind == "file" else None


class LiveSecret:
    """A secret that is read again. ``value`` is the last value. Thread-safe, and can be sent to another process."""

    def __init__(self, reference: Reference, value: str) -> None:
        self._reference, self.value = reference, value
        self._seen = files_state([reference.path]) if reference.path else None
        self._ran = time.monotonic()

    def now(self) -> str:
        """Return the value, after reading a file that changed. An empty or unreadable file leaves it unchanged."""
        if self._reference.path is not None and (state := files_state([self._reference.path])) != self._seen:
            self._seen = state
            self._read()
        return self.value

    def renew(self) -> None:
        """Run the command again because a login with the value was refused. Does nothing for a file."""
        if self._reference.kind == "command" and time.monotonic() - self._ran > AGAIN_S:
            self._ran = time.monotonic()
            self._read()

    def _read(self) -> None:
        with suppress(ValueError):
            self.value = self._reference.read() or self.value


def current(value: str | LiveSecret) -> str:
    return value if isinstance(value, str) else value.now()


def changes_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return a value that differs once a file is replaced or written: modification time in ns, size, inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def changed_text(path: Path, seen: tuple[int, ...], setting: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the text of a private file and its state, or None if its state is still ``seen``.

    Raises InvalidSettings, naming ``setting``, if others may read or write the file, OSError and UnicodeDecodeError.
    """
    status = path.stat()
    state = (*changes_of(status), status.st_mode)
    if state == seen:
        return None
    if status.st_mode & 0o007:
        raise InvalidSettings([f"{setting}: others may read or write {path}: chmod o= it"])
    return path.read_text("utf-8"), state


def files_state(files: Sequence[Path | str]) -> tuple[tuple[int, int, int] | None, ...]:
    """Return a value that differs once one of these files changes. None stands for a file that cannot be read."""
    states: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            states.append(changes_of(os.stat(file)))
        except OSError:
            states.append(None)
    return tuple(states)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read, {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text") from None


def _output_of(words: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, cwd=folder)
        text = done.stdout.decode().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"the command {words[0]} cannot be run, {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"the command {words[0]} did not end in {COMMAND_S:.0f} s") from None
    except UnicodeDecodeError:
        raise ValueError(f"the command {words[0]} does not print UTF-8 text") from None
    if done.returncode or not text:  # its stderr may repeat the secrets that it got
        raise ValueError(f"the command {words[0]} ended with {done.returncode} and printed no value")
    return text

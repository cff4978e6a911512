"""A file that grows by lines, written by one process or several: an access log. A failed write is only reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..state.errors import InvalidSettings


class AppendedLines:
    """Thread-safe: each line is one write at the end of the file. ``warn`` is called for each write that fails."""

    def __init__(self, path: Path, setting: str, warn: Callable[..., object]) -> None:
        """``setting``: name of the setting that has the path. Raises InvalidSettings if the file cannot be opened."""
        self._path, self._warn = path, warn
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InvalidSettings([f"{setting}: cannot be written, {error.strerror}"]) from error

    def write(self, line: str) -> None:
        try:
            self._file.write(line.encode() + b"\n")
        except (OSError, ValueError) as error:  # ValueError: closed
            self._warn("the access log cannot be written", file=str(self._path), reason=str(error))

    def close(self) -> None:
        self._file.close()

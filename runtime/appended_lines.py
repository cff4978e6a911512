"""A file that grows by lines, of one process or several: an access log. What cannot be written ends nothing, and is
said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..state.errors import InvalidSettings


class AppendedLines:
    """Thread-safe: a line is one write, at the end that the file has then. ``warn`` is told of each that fails."""

    def __init__(self, path: Path, setting: str, warn: Callable[..., object]) -> None:
        """``setting``: of the path. InvalidSettings: it cannot be written."""
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

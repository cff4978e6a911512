"""The output of commands: data on stdout (tables, or one JSON document), notes and progress on stderr.

Control characters in untrusted names are escaped, because they could move or hide other text (`runtime/visible.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..state.errors import Unavailable

if TYPE_CHECKING:
    from ..app.opening.connection import Advance


FIRST_NOTE_S, NEXT_NOTE_S = 20.0, 60.0
"""When work of unknown length is noted where stderr is no terminal, as in a container or a cron job."""


class _CheckedFile(io.FileIO):
    """A file whose failed writes raise Unavailable, except BrokenPipeError, which a closed reader causes."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise Unavailable("stdout cannot be written", reason=error.strerror) from error


def checked_stdout(stdout: TextIO) -> TextIO:
    """Return a text file with the same descriptor. Failed writes, such as to a full disk, raise Unavailable."""
    file = io.BufferedWriter(_CheckedFile(stdout.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stdout.encoding, stdout.errors, line_buffering=stdout.isatty())


class Output:
    """The output of one command. ``as_json`` prints documents instead of tables. ``quiet`` omits notes and progress."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        colour: bool = True,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.colour = colour
        self.to_log: Callable[[str], object] | None = None
        """The logger that gets the notes instead of stderr, if the process logs in JSON; else None."""
        self._stdout = stdout if stdout is not None else sys.stdout
        self._stderr = stderr if stderr is not None else sys.stderr

    def document(self, value: object) -> None:
        """Print the one JSON document of a command, whatever ``as_json`` is. Bytes and other types become text."""
        self.line(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def item(self, value: object) -> None:
        """Print one object of a stream as one line of JSON, and flush stdout."""
        self.line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
        self._stdout.flush()

    def line(self, text: str = "") -> None:
        from ..runtime.visible import visible  # imported here, so that --help imports no other package

        self._stdout.write(visible(text) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], document: object = None) -> None:
        """Print rows under headings; a None cell is shown as ``-``.

        With ``as_json``, print ``document`` instead, or one object for each row if ``document`` is None.
        """
        if self.as_json:
            named = [dict(zip(columns, row, strict=True)) for row in rows]
            self.document(named if document is None else document)
            return
        from ..runtime.visible import visible_in_line

        cells = [["-" if cell is None else visible_in_line(str(cell)) for cell in row] for row in rows]
        if self._stdout.isatty():
            self._rich_table(columns, cells)
            return
        # Without a terminal, cells of any length are printed completely, and no line ends with blanks.
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in [columns, *cells]:
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def row(self, cells: Sequence[str], widths: Sequence[int]) -> None:
        """Print one row of a table that is printed row by row, and flush stdout."""
        from ..runtime.visible import visible_in_line

        padded = [visible_in_line(cell).ljust(width) for cell, width in zip(cells, widths, strict=True)]
        self.line("  ".join(padded).rstrip())
        self._stdout.flush()

    def note(self, text: str) -> None:
        """Print a message for people on stderr unless ``quiet``, or log it if `to_log` is set."""
        from ..runtime.visible import visible

        if self.to_log is not None:
            self.to_log(text)
        elif not self.quiet:
            self._stderr.write(visible(text) + "\n")

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Yield a function that advances a progress bar, or notes now and then if stderr is no terminal.

        ``total`` None is unknown.
        """
        if self.quiet:
            yield lambda amount: None
            return
        if not self._stderr.isatty():
            with self._noted(label, total) as advance:
                yield advance
            return
        from rich.progress import Progress

        with Progress(console=self._console(self._stderr), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda amount: bar.advance(task, amount)

    @contextlib.contextmanager
    def _noted(self, label: str, total: int | None) -> Iterator[Advance]:
        """Print a note of long work after `FIRST_NOTE_S`, and then every `NEXT_NOTE_S`."""
        done, ended = [0], threading.Event()

        def advance(amount: int) -> None:
            done[0] += amount

        def tell() -> None:
            wait_s = FIRST_NOTE_S
            while not ended.wait(wait_s):
                self.note(f"{label}: {done[0]:,} of {total:,}" if total else f"{label} …")
                wait_s = NEXT_NOTE_S

        teller = threading.Thread(target=tell, name="progress", daemon=True)
        teller.start()
        try:
            yield advance
        finally:
            ended.set()
            teller.join()

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))  # Text, because a topic named "[red]" is not markup
        self._console(self._stdout).print(table)

    def _console(self, file: TextIO) -> Any:
        from rich.console import Console

        return Console(file=file, no_color=not self.colour or None, highlight=False)

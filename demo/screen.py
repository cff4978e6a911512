"""The screen while the demo runs: numbered steps, progress on anything over a second, seconds per step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Update = Callable[[str, float | None], None]
"""Updates the progress line: the present work, and the share of the whole that is done (0 to 1, None unknown)."""


class Screen:
    """Steps with their seconds. Without a terminal each step is one line."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=120)
        self.seconds: dict[str, float] = {}
        self._number = 0

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[Update]:
        """One step; its line stays when it is over."""
        self._number += 1
        began = time.monotonic()
        done = title
        bar: AbstractContextManager[Update] = self._bar(f"[bold]{self._number:>2}[/bold]  {title}")
        if not self.console.is_terminal:
            self.console.print(f"   {self._number:>2}  {title} …")
            bar = nullcontext(lambda text, part: None)
        with bar as show:

            def update(text: str, part: float | None = None) -> None:
                nonlocal done
                done = f"{title}: {text}"
                show(text, part)

            yield update
        self.seconds[name] = round(time.monotonic() - began, 2)
        self.console.print(
            f"[green]✔[/green] [bold]{self._number:>2}[/bold]  {done}  [dim]{self.seconds[name]:.1f} s[/dim]"
        )

    @contextmanager
    def _bar(self, label: str) -> Iterator[Update]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(label, total=None)

            def show(text: str, part: float | None) -> None:
                total = 1.0 if part is not None else None
                bar.update(task, description=f"{label}: {text}", total=total, completed=part or 0)

            yield show

    def say(self, text: str = "") -> None:
        self.console.print(text)

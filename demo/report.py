"""The report: `report.json` with every figure and digest, the terminal's summary, and a page that shows more."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .flights import Answer
from .table import YearTable


@dataclass
class Reader:
    """The records of one reader. ``digest`` is that of the whole topic; ``mb_per_s`` counts record bytes."""

    records: int
    digest: str
    seconds: float
    megabytes: float

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "mb_per_s": round(self.megabytes / self.seconds, 1) if self.seconds else None}


@dataclass
class Tiers:
    """The picture of one partition: offsets, ends not included."""

    partition: int
    log_start_offset: int
    local_log_start_offset: int
    remote_end_offset: int
    end_offset: int


@dataclass
class Report:
    """The figures of the run, filled in step by step."""

    records: int = 0
    digest_before_trim: str = ""
    segments_copied: int = 0
    segments_when_killed: int = 0
    remote_objects: int = 0
    remote_bytes: int = 0
    local_bytes_before: int = 0
    local_bytes_after: int = 0
    agent_killed_during_copy: bool = False
    view_digest: str = ""
    rebuilt_view_digest: str = ""
    withheld_fact_found: bool = False
    ranges_compared: int = 0
    readers: dict[str, Reader] = field(default_factory=dict)
    tiers: list[Tiers] = field(default_factory=list)
    spark_answer: list[Answer] = field(default_factory=list)
    csv_answer: list[Answer] = field(default_factory=list)
    table: YearTable | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["readers"] = {name: reader.as_json() for name, reader in self.readers.items()}
        for name in ("spark_answer", "csv_answer"):
            document[name] = [_answer(answer) for answer in getattr(self, name)]
        if self.table is not None:
            document["table"]["answer"] = [_answer(answer) for answer in self.table.answer]
        return document


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "month": answer.month,
        "carrier": answer.carrier,
        "flights": answer.flights,
        "mean_departure_delay": answer.mean_delay,
        "cancelled": answer.cancelled,
    }


def write_report(report: Report, folder: Path) -> Path:
    """Write both files; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report.as_json(), indent=2, default=str) + "\n")
    page = Console(record=True, file=io.StringIO(), width=100)
    show(report, page)
    _show_more(report, page)
    path = folder / "report.html"
    page.save_html(str(path))
    return path


def show(report: Report, console: Console) -> None:
    """Print a table, a picture of each partition, and the answer's heads and tails."""
    table = Table(title="A year of flights, read back", title_justify="left", header_style="bold", box=None)
    for name, side in (("reader", "left"), ("records", "right"), ("MB/s", "right"), ("digest", "left"), ("", "left")):
        table.add_column(name, justify="right" if side == "right" else "left")
    for name, reader in report.readers.items():
        speed = reader.as_json()["mb_per_s"]
        table.add_row(name, f"{reader.records:,}", f"{speed}", reader.digest[:12] + "…", Text("✔ equal", style="green"))
    console.print(table)
    console.print()
    saved = 1 - report.local_bytes_after / max(1, report.local_bytes_before)
    figures = Table(box=None, show_header=False)
    figures.add_row("on the broker before", decimal(report.local_bytes_before))
    figures.add_row("on the broker after", f"{decimal(report.local_bytes_after)}  ({saved:.0%} less)")
    dead = report.remote_objects - 3 * report.segments_copied
    left = f", {dead} of them of the killed agent's attempts" if dead else ""
    figures.add_row("in the object store", f"{decimal(report.remote_bytes)} in {report.remote_objects} objects{left}")
    figures.add_row("segments copied", f"{report.segments_copied} (agent killed after {report.segments_when_killed})")
    if (year := report.table) is not None:
        figures.add_row("as a table", f"{year.rows:,} rows, {decimal(year.bytes)} in {year.files} Parquet files")
    figures.add_row("ranges compared", f"{report.ranges_compared} per reader, all equal")
    console.print(figures)
    console.print()
    for tiers in report.tiers:
        console.print(_bar(tiers))
    console.print(
        Text("     ", style="")
        .append("█ object store  ", style="blue")
        .append("█ both  ", style="cyan")
        .append("█ broker", style="yellow")
    )
    console.print()


def _bar(tiers: Tiers, width: int = 64) -> Text:
    span = max(1, tiers.end_offset - tiers.log_start_offset)

    def cells(start: int, end: int) -> int:
        return round((end - tiers.log_start_offset) / span * width) - round(
            (start - tiers.log_start_offset) / span * width
        )

    remote = cells(tiers.log_start_offset, min(tiers.local_log_start_offset, tiers.remote_end_offset))
    both = cells(tiers.local_log_start_offset, max(tiers.local_log_start_offset, tiers.remote_end_offset))
    remote = min(remote, width - both - 1)
    local = width - remote - both
    text = Text(f"  {tiers.partition}  ")
    text.append("█" * remote, style="blue").append("█" * both, style="cyan").append("█" * local, style="yellow")
    return text.append(
        f"  {tiers.log_start_offset:,} … {tiers.local_log_start_offset:,} … {tiers.end_offset:,}", style="dim"
    )


def _show_more(report: Report, console: Console) -> None:
    """Print what the page has besides the summary: Spark's answer by month, the digests and the seconds."""
    months = Table(title="Spark over both tiers", title_justify="left", box=None)
    for name in ("month", "flights", "mean delay, minutes"):
        months.add_column(name, justify="right")
    months.add_column("")
    flights, flown, delay = defaultdict[int, int](int), defaultdict[int, int](int), defaultdict[int, float](float)
    for line in report.spark_answer:
        flights[line.month] += line.flights
        if line.mean_delay is not None:
            flown[line.month] += line.flights - line.cancelled
            delay[line.month] += line.mean_delay * (line.flights - line.cancelled)
    for month in sorted(flights):
        bar = Text("█" * (40 * flights[month] // max(flights.values())), style="blue")
        months.add_row(f"{month}", f"{flights[month]:,}", f"{delay[month] / max(1, flown[month]):.1f}", bar)
    console.print(months)
    same = "equal to" if report.spark_answer == report.csv_answer else "not compared with"
    console.print(f"{len(report.spark_answer)} months and carriers, {same} the answer from the CSV\n")
    figures = Table(box=None, show_header=False)
    figures.add_row("digest before the trim", report.digest_before_trim)
    figures.add_row("the view", report.view_digest)
    figures.add_row("rebuilt from the topic", report.rebuilt_view_digest)
    figures.add_row("one fact withheld", "noticed" if report.withheld_fact_found else "NOT noticed")
    for name, seconds in report.seconds.items():
        figures.add_row(f"seconds: {name}", f"{seconds:.1f}")
    console.print(figures)

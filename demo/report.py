"""The report: `report.json` with every figure and digest, one self-contained HTML page, and the terminal's summary."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
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
    page = folder / "report.html"
    page.write_text(_page(report))
    return page


def human(size: float) -> str:
    """Format a number of bytes for people."""
    if size < 1024:
        return f"{size:.0f} B"
    unit = next(each for each in ("KiB", "MiB", "GiB") if (size := size / 1024) < 1024 or each == "GiB")
    return f"{size:.1f} {unit}"


# --- the terminal ------------------------------------------------------------------------------------------------


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
    figures.add_row("on the broker before", human(report.local_bytes_before))
    figures.add_row("on the broker after", f"{human(report.local_bytes_after)}  ({saved:.0%} less)")
    dead = report.remote_objects - 3 * report.segments_copied
    left = f", {dead} of them of the killed agent's attempts" if dead else ""
    figures.add_row("in the object store", f"{human(report.remote_bytes)} in {report.remote_objects} objects{left}")
    figures.add_row("segments copied", f"{report.segments_copied} (agent killed after {report.segments_when_killed})")
    if (year := report.table) is not None:
        figures.add_row("as a table", f"{year.rows:,} rows, {human(year.bytes)} in {year.files} Parquet files")
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


# --- the page ----------------------------------------------------------------------------------------------------

STYLE = """
:root{--ink:#1c2733;--soft:#5d6b7a;--page:#fff;--card:#f4f6f8;--line:#dbe1e8;--remote:#2f6fde;--both:#2aa7a1;
--local:#e2a117;--good:#17803d;--bad:#c02626}
@media(prefers-color-scheme:dark){:root{--ink:#e6ecf2;--soft:#93a1b0;--page:#10161d;--card:#19222c;--line:#2a3644;
--remote:#6ea0ff;--both:#4fd0c9;--local:#f0bd4f;--good:#5fd38a;--bad:#ff7d7d}}
body{margin:0 auto;max-width:960px;padding:40px 24px 80px;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,Segoe UI,Roboto,sans-serif}
h1{font-size:30px;line-height:1.2;margin:0 0 8px}h2{font-size:19px;margin:44px 0 12px}
p{color:var(--soft);margin:0 0 12px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:14px;margin:28px 0}
.card{background:var(--card);border-radius:10px;padding:16px 18px}.card b{display:block;font-size:25px}
.card span{color:var(--soft);font-size:14px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 10px;border-bottom:1px solid var(--line)}td.n,th.n{text-align:right}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}.good{color:var(--good)}.bad{color:var(--bad)}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:12px;font-family:inherit;paint-order:stroke;stroke:var(--page);stroke-width:3px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 6px 0 14px}
"""


def _page(report: Report) -> str:
    saved = 1 - report.local_bytes_after / max(1, report.local_bytes_before)
    cards = "".join(
        f"<div class=card><b>{value}</b><span>{html.escape(label)}</span></div>"
        for label, value in (
            ("flights, read back by every reader", f"{report.records:,}"),
            ("less on the broker's disk", f"{saved:.0%}"),
            (f"in {report.remote_objects} objects of the object store", human(report.remote_bytes)),
            (f"segments copied; agent killed after {report.segments_when_killed}", f"{report.segments_copied}"),
        )
    )
    readers = "".join(
        f"<tr><td>{html.escape(name)}</td><td class=n>{reader.records:,}</td><td class=n>{reader.seconds:.1f}</td>"
        f"<td class=n>{reader.as_json()['mb_per_s']}</td><td><code>{reader.digest[:16]}…</code></td>"
        "<td class=good>✔ equal</td></tr>"
        for name, reader in report.readers.items()
    )
    steps = "".join(
        f"<tr><td>{html.escape(name)}</td><td class=n>{seconds:.1f}</td></tr>"
        for name, seconds in report.seconds.items()
    )
    same = report.spark_answer == report.csv_answer
    return f"""<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>tierstate demo: a year of flights</title><style>{STYLE}</style>
<h1>A year of events, three days on the broker</h1>
<p>336,776 flights that left New York in 2013: copied to an object store, trimmed from the broker, read back as one
log. No reader trusts another; each was compared record by record with what the broker held before the trim.</p>
<div class=cards>{cards}</div>
<h2>Where each partition lives</h2>{_tiers_svg(report.tiers)}
<p class=key><i style="background:var(--remote)"></i>object store<i style="background:var(--both)"></i>both
<i style="background:var(--local)"></i>broker</p>
<h2>Readers</h2><p>Digest before the trim: <code>{report.digest_before_trim}</code></p>
<table><tr><th>reader<th class=n>records<th class=n>seconds<th class=n>MB/s<th>digest<th></tr>{readers}</table>
<h2>Spark over both tiers: flights and mean departure delay by month</h2>
<p>By {len(report.spark_answer)} months and carriers; <span class={"good" if same else "bad"}>
{"✔ equal to" if same else "✘ differs from"} the answer computed from the CSV without tierstate.</span></p>
{_chart(report.spark_answer)}
{_of_table(report)}
<h2>The view</h2><p>Deleted and rebuilt from the tier-state topic alone.</p>
<table><tr><td>before</td><td><code>{report.view_digest}</code></td></tr>
<tr><td>rebuilt</td><td><code>{report.rebuilt_view_digest}</code></td></tr>
<tr><td>one fact withheld</td><td>{"noticed" if report.withheld_fact_found else "NOT noticed"}</td></tr></table>
<h2>Seconds</h2><table>{steps}</table></html>
"""


def _of_table(report: Report) -> str:
    table = report.table
    if table is None:
        return ""
    return f"""<h2>The year as an Iceberg table</h2>
<p>{table.rows:,} rows with typed columns in {table.files} Parquet files, {human(table.bytes)}; every row was held
against the log. DuckDB's answer from it is <span class=good>✔ equal to Spark's</span>
over both tiers.</p>"""


def _tiers_svg(partitions: list[Tiers]) -> str:
    rows = []
    for row, tiers in enumerate(partitions):
        span, top = max(1, tiers.end_offset - tiers.log_start_offset), row * 44

        def x(offset: int, tiers: Tiers = tiers, span: int = span) -> float:
            return 40 + (offset - tiers.log_start_offset) / span * 860

        parts = (
            ("remote", tiers.log_start_offset, min(tiers.local_log_start_offset, tiers.remote_end_offset)),
            ("both", tiers.local_log_start_offset, max(tiers.local_log_start_offset, tiers.remote_end_offset)),
            ("local", max(tiers.local_log_start_offset, tiers.remote_end_offset), tiers.end_offset),
        )
        rows.append(f"<text x=0 y={top + 17}>{tiers.partition}</text>")
        rows += [
            f'<rect x="{x(a):.1f}" y="{top}" width="{max(1.5, x(b) - x(a)):.1f}" height="24" fill="var(--{name})">'
            f"<title>{name}: {a:,} to {b - 1:,}</title></rect>"
            for name, a, b in parts
            if b > a
        ]
        rows.append(f"<text x=40 y={top + 38}>{tiers.log_start_offset:,}</text>")
        rows.append(
            f"<text x=900 y={top + 38} text-anchor=end>{tiers.local_log_start_offset:,} … {tiers.end_offset:,}</text>"
        )
    picture = "".join(rows)
    height = len(partitions) * 44 + 4
    return f'<svg viewBox="0 0 910 {height}" role=img aria-label="tiers of each partition">{picture}</svg>'


def _chart(answer: list[Answer]) -> str:
    flights: dict[int, int] = defaultdict(int)
    delay: dict[int, float] = defaultdict(float)
    left: dict[int, int] = defaultdict(int)
    for line in answer:
        flights[line.month] += line.flights
        if line.mean_delay is not None:
            flown = line.flights - line.cancelled
            delay[line.month] += line.mean_delay * flown
            left[line.month] += flown
    if not flights:
        return "<p>no answer</p>"
    top_flights = max(flights.values())
    means = {month: delay[month] / max(1, left[month]) for month in flights}
    top_mean = max(max(means.values()), 1.0)
    marks, points = [], []
    for month in sorted(flights):
        x, height = 30 + (month - 1) * 72, flights[month] / top_flights * 180
        marks.append(
            f'<rect x="{x}" y="{210 - height:.1f}" width="44" height="{height:.1f}" rx="3" fill="var(--remote)" '
            f'opacity=".55"><title>month {month}: {flights[month]:,} flights</title></rect>'
            f'<text x="{x + 22}" y="228" text-anchor="middle">{month}</text>'
        )
        y = 210 - means[month] / top_mean * 160
        points.append((x + 22, y))
        marks.append(
            f'<circle cx="{x + 22}" cy="{y:.1f}" r="4" fill="var(--local)"></circle>'
            f'<text x="{x + 22}" y="{y - 9:.1f}" text-anchor="middle">{means[month]:.0f} min</text>'
        )
    path = " ".join(f"{x},{y:.1f}" for x, y in points)
    marks.append(f'<polyline points="{path}" fill="none" stroke="var(--local)" stroke-width="2"/>')
    return f'<svg viewBox="0 0 900 236" role=img aria-label="flights and delay by month">{"".join(marks)}</svg>'

"""``make bench``: run every benchmark, and write the tables into docs/benchmarks.md.

    python -m bench                         all of them
    python -m bench tier-state              these; the sections of the others stay as they are
    python -m bench --quick                 smaller, figures mean nothing; written nowhere but to --into FOLDER
    python -m bench --page                  write the page again from benchmarks.json, measure nothing

Each module of this folder with a function ``measure(quick) -> list[Row]`` is a benchmark; its docstring stands above
its table.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .rows import Row

INTRODUCTION = """\
# Benchmarks

Run all again with `make bench`, one of them with `python -m bench NAME`. Both write this page and `benchmarks.json`.

A table compares tierstate with peers: other tools that do the same work on the same machine. In parentheses are the
ratio of our figure to the peer's, and the limit that we aim for.

Where nothing else is stated, a figure is the median of at least five runs, both sides take turns, all processes share
the cores, and the data is in the page cache. The machine has {machine}.
"""
COLUMNS = 3
"""So many peers have a column each."""
ASPECTS = (
    "CPU",
    "check",
    "p99",
    "peak memory above idle",
    "4 at a time",
    "64 clients",
    "two behind nginx",
    "peak memory",
    "of it the plan",
)
FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parent / "docs"


def benchmarks() -> dict[str, Any]:
    """Return the modules that have a function ``measure``, by name."""
    stems = sorted(file.stem for file in FOLDER.glob("*.py") if not file.stem.startswith("__"))
    modules = {stem.replace("_", "-"): importlib.import_module(f"bench.{stem}") for stem in stems}
    return {name: module for name, module in modules.items() if hasattr(module, "measure")}


def main(arguments: Sequence[str] | None = None) -> int:
    modules = benchmarks()
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(modules)}; none: all")
    parser.add_argument("--quick", action="store_true", help="smaller: whether it runs, not how fast")
    parser.add_argument("--into", type=Path, help="folder of benchmarks.md and benchmarks.json (docs)")
    parser.add_argument("--page", action="store_true", help="write the page from benchmarks.json, measure nothing")
    parsed = parser.parse_args(arguments)
    unknown = set(parsed.names) - set(modules)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    into = parsed.into or (None if parsed.quick else DOCS)
    if parsed.page:
        _write_page(parsed.into or DOCS, modules)
        return 0
    for name in parsed.names or modules:
        print(f"{name} …", file=sys.stderr)
        rows: list[Row] = modules[name].measure(quick=parsed.quick)
        print(_table(rows))
        if into is not None:  # after each, so that an interrupted run keeps what it has
            _write(into, modules, name, rows)
    return 0


def _write(into: Path, modules: dict[str, Any], name: str, rows: list[Row]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    file = into / "benchmarks.json"
    sections = json.loads(file.read_text()) if file.exists() else {}
    sections[name] = {"machine": _machine(), "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(sections, indent=2, ensure_ascii=False) + "\n")
    _write_page(into, modules)


def _write_page(into: Path, modules: dict[str, Any]) -> None:
    sections = {
        name: each for name, each in json.loads((into / "benchmarks.json").read_text()).items() if name in modules
    }
    machine = Counter(section["machine"] for section in sections.values()).most_common(1)[0][0]
    parts = [INTRODUCTION.format(machine=machine)]
    for name, section in sorted(sections.items()):
        table = _table([Row(**row) for row in section["rows"]])
        about = inspect.getdoc(modules[name]) or ""
        elsewhere = "" if section["machine"] == machine else f"Machine: {section['machine']}.\n\n"
        parts.append(f"## {name}\n\n{about}\n\n{elsewhere}{table}\n")
    (into / "benchmarks.md").write_text("\n".join(parts))


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _table(rows: Sequence[Row]) -> str:
    """Return a table in Markdown: a line for each thing measured, a column for each peer; many peers share one.
    The head has the unit if all lines have the same.

    An aspect of the line before, as ``copy to S3, CPU`` of ``copy to S3``, is in the same cells.
    """
    peers = list(dict.fromkeys(row.peer_is for row in rows if row.peer))
    units = {row.unit.replace(", less is better", "") for row in rows if row.what.rpartition(", ")[2] not in ASPECTS}
    common = units.pop() if len(units) == 1 else ""
    ours_in = f"tierstate, {common}" if common else "tierstate"
    heads = ["measured", ours_in, *(peers if len(peers) <= COLUMNS else ["peer (ratio, limit)"])]
    measured: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        measured.setdefault((row.what, row.unit.replace(", less is better", ""), row.ours), []).append(row)
    lines: list[list[str]] = []
    for (what, unit, ours), compared in measured.items():
        absolute = " ".join(_limit(row.goal) for row in compared if row.goal and not _of_ratio(row))
        figure = f"{_figure(ours)}{'' if unit == common else f' {unit}'}{absolute and f' ({absolute})'}"
        figures = {row.peer_is: _peer(row) for row in compared if row.peer}
        if len(peers) <= COLUMNS:
            cells = [figures.get(peer, "") for peer in peers]
        else:
            cells = ["; ".join(f"{peer}: {ratio}" for peer, ratio in figures.items())]
        base, _, aspect = what.rpartition(", ")
        more = [f"{aspect} {figure}", *cells]
        if lines and base == lines[-1][0] and aspect in ASPECTS:
            lines[-1][1:] = ["; ".join(filter(None, pair)) for pair in zip(lines[-1][1:], more, strict=True)]
        elif aspect == "CPU":
            lines.append([base, *more])
        else:
            lines.append([what, figure, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines))


def _of_ratio(row: Row) -> bool:
    """Return whether the goal compares with the peer; any other goal is an absolute one."""
    return bool(row.peer) and (row.goal.endswith("x") or "+" in row.goal)


def _limit(goal: str) -> str:
    return goal.replace("<=", "≤").replace(">=", "≥")


def _peer(row: Row) -> str:
    assert row.peer is not None
    ratio = f"{_figure(row.ours / row.peer)}x" + (f", {_limit(row.goal)}" if row.goal and _of_ratio(row) else "")
    return f"{_figure(row.peer)} ({ratio})"


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"


if __name__ == "__main__":
    sys.exit(main())

"""``make bench``: run every benchmark, and write the tables into docs/benchmarks.md.

    python -m bench                         all of them
    python -m bench tier-state              these; the sections of the others stay as they are
    python -m bench --quick                 smaller, figures mean nothing; written nowhere but to --into FOLDER

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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .rows import Row

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
    parsed = parser.parse_args(arguments)
    unknown = set(parsed.names) - set(modules)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    into = parsed.into or (None if parsed.quick else DOCS)
    for name in parsed.names or modules:
        print(f"{name} …", file=sys.stderr)
        rows: list[Row] = modules[name].measure(quick=parsed.quick)
        print(_table(rows))
        if into is not None:  # after each, so that an interrupted run keeps what it has
            _write(into, modules, name, rows)
    return 0


def _write(into: Path, known: dict[str, Any], name: str, rows: list[Row]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    file = into / "benchmarks.json"
    sections = json.loads(file.read_text()) if file.exists() else {}
    sections[name] = {"machine": _machine(), "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(sections, indent=2, ensure_ascii=False) + "\n")
    parts = [
        "# Benchmarks\n\nWritten by `make bench`. Ratios (ours to the peer's) count, the rest is of one machine.\n"
        "Each figure is the median of at least five runs where nothing else is said.\n"
    ]
    for each, section in sorted(sections.items()):
        if each in known:
            table = _table([Row(**row) for row in section["rows"]])
            about = inspect.getdoc(known[each]) or ""
            parts.append(f"## {each}\n\n{about}\n\n{section['machine']}.\n\n{table}\n")
    (into / "benchmarks.md").write_text("\n".join(parts))


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def _table(rows: Sequence[Row]) -> str:
    lines = ["| what | ratio | goal | tierstate | peer | unit | peer is |", "|---|---:|---:|---:|---:|---|---|"]
    for row in rows:
        ratio = f"{_figure(row.ours / row.peer)}x" if row.peer else "-"
        peer = _figure(row.peer) if row.peer else "-"
        lines.append(
            f"| {row.what} | {ratio} | {row.goal or '-'} | {_figure(row.ours)} | {peer} | {row.unit} | {row.peer_is} |"
        )
    return "\n".join(lines)


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"


if __name__ == "__main__":
    sys.exit(main())

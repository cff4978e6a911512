"""``make bench``: run every benchmark, and write the table into docs/benchmarks.md.

Each module of this folder with a function ``measure() -> list[Row]`` is a benchmark.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from .rows import Row

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> int:
    """Names of benchmarks as arguments; none means all."""
    folder = Path(__file__).parent
    names = sys.argv[1:] or sorted(
        p.stem for p in folder.glob("*.py") if p.stem not in ("__init__", "__main__", "rows")
    )
    rows: list[Row] = []
    for name in names:
        print(f"{name} …", file=sys.stderr)
        module = importlib.import_module(f"bench.{name}")
        rows += module.measure()
    print(_table(rows))
    (DOCS / "benchmarks.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    (DOCS / "benchmarks.md").write_text(
        "# Benchmarks\n\nWritten by `make bench`; ratios count, absolute figures are of one machine "
        f"({machine}).\nEach figure is the median of at least five runs.\n\n{_table(rows)}\n"
    )
    return 0


def _table(rows: list[Row]) -> str:
    lines = ["| what | ratio | tierstate | peer | unit | peer is |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        ratio = f"{row.ours / row.peer:.2f}x" if row.peer else "-"
        peer = f"{row.peer:,.0f}" if row.peer else "-"
        lines.append(f"| {row.what} | {ratio} | {row.ours:,.0f} | {peer} | {row.unit} | {row.peer_is} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Print which cause makes which alert fire: `python -m tests.alerts.matrix > docs/alerts.md` (test_thresholds.py)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.alerts.rules import RULES

HERE = Path(__file__).parent
HEAD = """# Alerts and what makes them fire

Made from the tests by `python -m tests.alerts.matrix`, and compared with them. `make alerts` makes each of these causes
happen to real processes that a real Prometheus scrapes, and asks it for the shipped expression. What to do about
an alert is at its [runbook](operations.md#metrics-and-alerts).

| alert | severity | after | made to fire by |
|---|---|---|---|
"""


def causes() -> dict[str, list[str]]:
    """Return the functions of the tests that make each alert fire, as sentences, by alert."""
    names: dict[str, list[str]] = {alert: [] for alert in RULES}
    for path in sorted(HERE.glob("test_causes_*.py")):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef):
                for alert in sorted(_named(function)):
                    names[alert].append(function.name.removeprefix("test_").replace("_", " "))
    return names


def page() -> str:
    table = causes()
    rows = [
        f"| `{alert}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {'; '.join(table[alert])} |"
        for alert, rule in RULES.items()
    ]
    return HEAD + "\n".join(rows) + "\n"


def _named(node: ast.AST) -> set[str]:
    """Return the alerts that this code names, except those for which it only waits until they are quiet."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "quiet":
        return set()
    if isinstance(node, ast.Constant) and node.value in RULES:
        return {node.value}
    return set().union(*map(_named, ast.iter_child_nodes(node)))


if __name__ == "__main__":
    print(page(), end="")

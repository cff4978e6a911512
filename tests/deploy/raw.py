"""Writes deploy/kubernetes from the chart: `python -m tests.deploy.raw`. `test_chart.py` sees where both differ."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.deploy.chart import CHART, ROOT, render

FOLDER = ROOT / "deploy" / "kubernetes"
NAMES = ("init", "agent", "agent-fetch", "gateway", "proxy", "table", "networkpolicy")
FETCHING = {"agent-fetch", "networkpolicy"}
"""Rendered with agents that fetch. Their policy selects nothing where agents run in the brokers' pods."""
HEADER = "# Rendered from deploy/helm by `python -m tests.deploy.raw`: change the chart, not this file.\n"


def manifests() -> dict[Path, str]:
    """Return what each file of the folder should hold."""
    return {FOLDER / f"{name}.yaml": HEADER + _manifest(name) for name in NAMES}


def _manifest(name: str) -> str:
    source = "fetch" if name in FETCHING else "disk"
    values = ("--values", CHART / "raw.yaml", "--set", f"agent.source={source}")
    text = render(*values, "--show-only", f"templates/{name}.yaml")
    if name == "agent":  # the patch itself, without the ConfigMap that carries it
        text = yaml.safe_load(text)["data"]["agent.yaml"]
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("# Source: ")]
    return "\n".join(line for line in lines if line).removeprefix("---\n") + "\n"


if __name__ == "__main__":
    for path, text in manifests().items():
        path.write_text(text)

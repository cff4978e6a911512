"""The shipped alert rules, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILE = DEPLOY / "prometheus" / "alerts.yaml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
}


def expression(alert: str, instead: Mapping[str, str] | None = None) -> str:
    """Return the shipped expression of the alert. ``instead``: shorter durations for those too long for a test."""
    text = str(RULES[alert]["expr"])
    for shipped, shorter in (instead or {}).items():
        assert shipped in text, f"{alert} does not contain {shipped}"
        text = text.replace(shipped, shorter)
    return text

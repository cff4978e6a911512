"""Threshold and duration of each alert, by `promtool test rules`: series that make it fire, others that do not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.matrix import causes, page
from tests.alerts.programs import program
from tests.alerts.rules import DEPLOY, FILE, RULES

pytestmark = pytest.mark.alerts
CASES: dict[str, dict[str, list[dict[str, Any]]]] = yaml.safe_load(
    (Path(__file__).parent / "thresholds.yaml").read_text()
)


def of_main(series: str) -> str:
    """Return the series with the label that every target of the scrape example has."""
    return series.replace("{", '{cluster="main",', 1)


def judged(alert: str, case: dict[str, Any], fires: bool) -> dict[str, Any]:
    """Return one case in the form that promtool reads."""
    labels = {"severity": RULES[alert]["labels"]["severity"], **case.get("labels", {})}
    if not case.get("everywhere"):
        labels["cluster"] = "main"
    return {
        "interval": "1m",
        "input_series": [{"series": of_main(name), "values": values} for name, values in case["series"].items()],
        "alert_rule_test": [
            {
                "eval_time": case["at"],
                "alertname": alert,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {}}] if fires else [],
            }
        ],
    }


def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run([program("promtool"), "check", "rules", FILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_is_silent() -> None:
    assert CASES.keys() == RULES.keys()
    assert all(case["fires"] and case["silent"] for case in CASES.values())


def test_every_alert_is_made_to_fire_by_a_cause_and_the_page_says_by_which() -> None:
    """Other files of this folder cause them on real processes."""
    assert [alert for alert, made in causes().items() if not made] == []
    assert (DEPLOY.parent / "docs" / "alerts.md").read_text() == page()


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_fires_at_its_threshold_after_its_time_and_not_before(alert: str, tmp_path: Path) -> None:
    rule = {name: value for name, value in RULES[alert].items() if name != "annotations"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    cases = [judged(alert, case, kind == "fires") for kind in ("fires", "silent") for case in CASES[alert][kind]]
    tested = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tested.yaml").write_text(yaml.safe_dump(tested))
    command: list[str | Path] = [program("promtool"), "test", "rules", tmp_path / "tested.yaml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

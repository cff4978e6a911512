"""``--within`` ends a run in time, and only then: the verb that CI bounds by it ran no test for a day."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import TIME_IS_OVER
from tests.test_package_layout import ROOT
from tests.tiers import few


@pytest.mark.parametrize(
    ("seconds", "outcome"), [("600", "passed"), pytest.param("0.001", "skipped", marks=pytest.mark.extended)]
)
@pytest.mark.parametrize("workers", few(["0", "1"], ["1"]))
def test_tests_run_until_the_time_is_over(seconds: str, outcome: str, workers: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-n", workers]
    command += [f"--within={seconds}", "tests/state/test_own_objects.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode == 0) == (outcome == "passed"), done.stdout
    assert (TIME_IS_OVER in done.stdout) == (outcome == "skipped")
    assert ("passed" in done.stdout) == (outcome == "passed")

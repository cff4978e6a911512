"""A minute of wrong bytes: they are read or refused with their place, in the memory that they may take.

Each target is a process of its own under a limit of its own; `make test-all` makes it ten times as many cases.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fuzz.targets import TARGETS

CASES = {"batches": 2_500, "packed": 6_000, "manifest": 20_000, "files": 20_000, "fact": 20_000}
CASES |= {"folder": 150, "segment": 400}


def fuzz(target: str, cases: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, "--cases", str(cases), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_wrong_bytes_are_read_or_refused_with_their_place_and_within_memory(target: str) -> None:
    fuzz(target, CASES[target], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("target", TARGETS)
def test_ten_times_as_many_wrong_bytes(target: str, seed: int) -> None:
    fuzz(target, 5 * CASES[target], seed)

"""A minute of wrong bytes: readers accept them or refuse them with their place, within their memory limit.

Each target is a process of its own under a limit of its own; `make test-all` makes it ten times as many cases.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.guided import Growing
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, Target, facts
from tierstate.runtime.clock import SystemClock
from tierstate.schemas.codec import decode_fact

CASES = {"batches": 2_500, "packed": 6_000, "manifest": 20_000, "files": 20_000, "fact": 20_000}
CASES |= {"folder": 150, "segment": 400}


def fuzz(target: str, cases: int, seed: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz", target, "--cases", str(cases), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("target", TARGETS)
def test_wrong_bytes_are_read_or_refused_with_their_place_and_within_memory(target: str) -> None:
    fuzz(target, CASES[target], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("target", TARGETS)
def test_ten_times_as_many_wrong_bytes(target: str, seed: int) -> None:
    fuzz(target, 5 * CASES[target], seed)


def test_an_empty_input_is_a_case_like_any_other() -> None:
    """A guided run keeps it for what it reaches, and splices it into others: that once ended the run."""
    assert {len(mutated(b"whole", Random(seed), [b""])) for seed in range(300)} > {0, 5}


@pytest.mark.extended
def test_a_guided_run_goes_on_from_what_the_last_one_reached(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "fact", "--minutes", "0.05", "--corpus", str(tmp_path)]
    kept = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        kept.append({file.name for file in (tmp_path / "fact").iterdir() if file.is_file()})
    assert kept[0]
    assert kept[0] <= kept[1]


def test_a_guided_run_keeps_what_breaks_a_promise_and_says_how_to_do_it_again(tmp_path: Path) -> None:
    def read(data: bytes, random: Random, folder: Path) -> None:
        decode_fact("t/00000000000000000000", data)
        assert len(data) > 40, "a promise"

    growing = Growing(Target(facts, read, 0), tmp_path / "corpus", tmp_path, SystemClock())
    bad = growing.run(facts(), 60)
    assert bad is not None
    assert len(bad.read_bytes()) <= 40
    assert bad.parent == tmp_path / "corpus" / "bad"

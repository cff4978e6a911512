"""`docs/profiling.md`: every command can be typed, every hot path runs under the profiler. No timing is asserted."""

from __future__ import annotations

import pstats
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from bench import hot_paths
from bench.__main__ import benchmarks

PAGE = Path(__file__).parents[2] / "docs" / "profiling.md"


def commands(module: str) -> list[list[str]]:
    """Return the arguments of every ``python -m MODULE`` in the page's blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    matches = [re.search(rf"python -m {re.escape(module)}(?: (.*))?$", re.split(r" [|&]", line)[0]) for line in lines]
    return [shlex.split(match[1] or "") for match in matches if match]


def test_every_command_of_the_page_is_understood() -> None:
    typed = commands("bench.hot_paths")
    assert {hot_paths.parser().parse_args(arguments).name for arguments in typed} == set(hot_paths.HOT)


def test_every_benchmark_of_the_page_exists() -> None:
    named = {name for arguments in commands("bench") for name in takewhile(lambda each: each[0] != "-", arguments)}
    assert named
    assert named <= set(benchmarks())


@pytest.mark.extended
@pytest.mark.parametrize("name", hot_paths.HOT)
def test_a_hot_path_runs_and_shows_what_took_the_time(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "whole.prof"
    assert hot_paths.main([name, "--quick", "--seconds", "0", "--lines", "3", "--into", str(into)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{name}: ")
    assert "Ordered by: internal time" in output
    assert pstats.Stats(str(into)).get_stats_profile().func_profiles


def test_without_a_profiler_the_process_is_named_for_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert hot_paths.main(["decode", "--quick", "--seconds", "0", "--bare"]) == 0
    output = capsys.readouterr()
    assert re.fullmatch(r"process \d+\n", output.err)
    assert output.out == ""

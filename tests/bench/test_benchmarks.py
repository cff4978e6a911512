"""Benchmarks run and are written down; what they measure is asserted nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.follow import follow
from bench.recorded_topic import RecordedTopic, generate
from bench.rows import Row

pytestmark = pytest.mark.extended


def test_the_tier_state_benchmark_runs_from_facts_to_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["tier-state", "--quick", "--into", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "benchmarks.json").read_text())["tier-state"]["rows"]
    assert len(rows) == 12
    assert all(row["ours"] > 0 and row["peer"] != 0 for row in rows)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "## tier-state\n" in page
    assert capsys.readouterr().out.strip() in page


def test_the_sections_of_other_benchmarks_stay(tmp_path: Path) -> None:
    known = bench.benchmarks()
    assert set(known) >= {"decode", "tier-state"}
    bench._write(tmp_path, known, "decode", [Row("decode that", 2.0, "MB/s", 1.0, "peer")])
    bench._write(tmp_path, known, "tier-state", [Row("replay this", 0.5, "s", goal="<= 3x")])
    bench._write(tmp_path, known, "decode", [Row("decode that", 300.0, "MB/s", 100.0, "peer")])
    page = (tmp_path / "benchmarks.md").read_text()
    (tmp_path / "benchmarks.md").unlink()
    assert bench.main(["--page", "--into", str(tmp_path)]) == 0
    assert (tmp_path / "benchmarks.md").read_text() == page
    assert "| measured | tierstate, MB/s | peer |" in page
    assert "| decode that | 300 | 100 (3.00x) |" in page
    assert "| measured | tierstate, s |" in page
    assert "| replay this | 0.50 (≤ 3x) |" in page
    assert page.index("## decode") < page.index("## tier-state")


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["tier-stat"])
    assert "no such benchmark: tier-stat" in capsys.readouterr().err


def test_the_page_in_docs_says_what_its_figures_say() -> None:
    figures = json.loads((bench.DOCS / "benchmarks.json").read_text())
    for name, section in figures.items():
        table = bench._table([Row(**row) for row in section["rows"]])
        assert f"## {name}\n" in (bench.DOCS / "benchmarks.md").read_text()
        assert table in (bench.DOCS / "benchmarks.md").read_text()


def test_two_follower_processes_share_the_partitions_and_miss_nothing(tmp_path: Path) -> None:
    facts, state = tmp_path / "facts", tmp_path / "state"
    facts.mkdir()
    state.mkdir()
    generate(facts, 2_500)
    topic = RecordedTopic(facts)
    assert sum(topic.counts.values()) == 2 * 2_500 + 3  # and three who lead
    halves = topic.halves()
    assert sorted(halves[0] + halves[1]) == sorted(topic.counts)
    assert all(halves)
    assert follow(facts, state, halves).readable == 2_500

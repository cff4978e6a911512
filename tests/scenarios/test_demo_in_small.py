"""The demo's own story with 20,000 flights: the kill, the trim, every reader, Spark, the rebuilt view."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.essential, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Document:
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--records", "20000", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: Document = json.loads((out / "report.json").read_text())
    page = (out / "report.html").read_text()
    assert "http://" not in page, "the report must be self-contained"
    assert "https://" not in page
    return document


def test_every_reader_saw_the_year_as_the_broker_had_it(report: Document) -> None:
    readers = report["readers"]
    assert isinstance(readers, dict)
    assert set(readers) == {
        "tierstate consume",
        "gateway, binary JSON",
        "gateway, Arrow",
        "plain consumer, what is local",
        "plain consumer, through the proxy",
        "spark",
    }
    whole = {name: reader for name, reader in readers.items() if "local" not in name}
    assert {reader["digest"] for reader in whole.values()} == {report["digest_before_trim"]}
    assert {reader["records"] for reader in whole.values()} == {20_000}


def test_the_table_has_every_flight_with_typed_columns_and_answers_as_spark_does(report: Document) -> None:
    table = report["table"]
    assert table["rows"] == 20_000
    assert table["answer"] == report["spark_answer"] != []


def test_the_agent_was_killed_in_the_middle_and_finished_all_the_same(report: Document) -> None:
    assert report["agent_killed_during_copy"] is True
    copied, killed_after = report["segments_copied"], report["segments_when_killed"]
    assert isinstance(copied, int)
    assert isinstance(killed_after, int)
    assert 0 < killed_after < copied


def test_the_broker_really_dropped_what_was_trimmed(report: Document) -> None:
    before, after = report["local_bytes_before"], report["local_bytes_after"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert after < before / 2
    local = report["readers"]["plain consumer, what is local"]
    assert 0 < local["records"] < 20_000


def test_the_view_rebuilt_from_the_topic_alone_is_equal_and_a_withheld_fact_is_noticed(
    report: Document,
) -> None:
    assert report["view_digest"] == report["rebuilt_view_digest"] != ""
    assert report["withheld_fact_found"] is True

"""The state of the page cache is read without changing it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.leader.resident import PAGE, make_cold, make_hot, resident
from tierstate.log.quiet_reader import missing_pages

PAGES = 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(PAGES * PAGE - 100))
    make_cold(path)
    return path


def test_asking_what_is_in_the_page_cache_brings_nothing_in(file: Path) -> None:
    with file.open("rb") as opened:
        assert missing_pages(opened.fileno(), 0, file.stat().st_size) == [(0, PAGES * PAGE)]
    assert not any(resident(file))


def test_missing_pages_are_reported_in_runs_of_whole_pages(file: Path) -> None:
    make_hot(file, 10 * PAGE, 12 * PAGE)
    with file.open("rb") as opened:
        runs = missing_pages(opened.fileno(), 5 * PAGE + 7, 20 * PAGE + 1)
        assert runs == [(5 * PAGE, 10 * PAGE), (12 * PAGE, 21 * PAGE)]
        assert missing_pages(opened.fileno(), 10 * PAGE + 1, 12 * PAGE) == []
        assert missing_pages(opened.fileno(), 5, 5) == []


def test_a_file_that_cannot_be_asked_is_an_error() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="No such device"):
        missing_pages(reading, 0, PAGE)
    os.close(reading)
    os.close(writing)

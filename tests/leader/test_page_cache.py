"""Copying leaves the page cache as it found it: hot pages stay, pages that we brought in go."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.leader.resident import PAGE, make_cold, make_hot, resident
from tests.leader.test_checked_log import batch, checked, joined
from tierstate.log.quiet_reader import QuietReader

LOG = b"".join(batch(offset, 70_000) for offset in range(120))
PAGES = -(-len(LOG) // PAGE)


def nobody_tells(descriptor: int, begin: int, end: int) -> list[tuple[int, int]]:
    raise OSError(errno.ENOSYS, "a kernel without mincore")


def copied(tmp_path: Path, *hot: tuple[int, int]) -> tuple[list[bool], list[bool]]:
    """Return which pages were cached before and after a copy; the pages ``hot`` had been read by another process."""
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    with checked(tmp_path, LOG, 120) as log:
        make_cold(path)
        for begin, end in hot:
            make_hot(path, begin * PAGE, min(end * PAGE, len(LOG)))
        before = resident(path)
        assert log.files.head() == LOG[:61]
        assert joined(log.pieces()) == LOG
    return before, resident(path)


def assert_only_these(found: list[bool], wanted: list[bool]) -> None:
    """Check that no other page is there, and hardly any of these is missing: a kernel drops single clean pages when it
    likes (some in a minute, with no reads or drops); a copy that drops what is not its own does so by whole windows.
    """
    assert not [page for page, (has, may) in enumerate(zip(found, wanted, strict=True)) if has and not may]
    assert sum(wanted) - sum(found) <= sum(wanted) // 50


def test_a_cold_log_is_cold_again_after_it_was_copied(tmp_path: Path) -> None:
    before, after = copied(tmp_path)
    assert (sum(before), sum(after)) == (0, 0)


def test_a_hot_log_is_as_hot_after_it_was_copied(tmp_path: Path) -> None:
    for pages in copied(tmp_path, (0, PAGES)):
        assert_only_these(pages, [True] * PAGES)


@pytest.mark.parametrize("edge", [1, 700, 1000, PAGES - 1])
def test_the_hot_beginning_of_a_log_stays_and_the_rest_goes(tmp_path: Path, edge: int) -> None:
    for pages in copied(tmp_path, (0, edge)):
        assert_only_these(pages, [page < edge for page in range(PAGES)])


@pytest.mark.parametrize("edge", [1, 700, 1000, PAGES - 1])
def test_the_hot_end_of_a_log_stays_and_the_rest_goes(tmp_path: Path, edge: int) -> None:
    for pages in copied(tmp_path, (edge, PAGES)):
        assert_only_these(pages, [page >= edge for page in range(PAGES)])


def test_islands_of_hot_pages_stay_and_no_others(tmp_path: Path) -> None:
    for pages in copied(tmp_path, (300, 900), (1200, 1900)):
        assert_only_these(pages, [300 <= page < 900 or 1200 <= page < 1900 for page in range(PAGES)])


def test_a_copy_that_ends_early_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    with checked(tmp_path, LOG, 120) as log:
        make_cold(path)
        pieces = log.pieces()
        next(pieces), next(pieces)
        assert any(resident(path))  # the tail of a batch that was cut off
    assert not any(resident(path))


def test_all_pages_read_are_dropped_if_the_file_system_hides_its_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LOG)
    make_cold(path)
    make_hot(path, 0, 20 * PAGE)
    make_hot(path, 100 * PAGE, 120 * PAGE)
    window = memoryview(bytearray(50 * PAGE))
    with path.open("rb") as file:
        reader = QuietReader(file.fileno(), len(LOG), "file", missing=nobody_tells)
        assert reader.read_into(window, 0) == len(window)
        assert window == LOG[: len(window)]
        reader.close()
    assert resident(path) == [100 <= page < 120 for page in range(PAGES)]


def test_a_read_reaches_to_the_end_of_the_file_and_no_farther(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LOG)
    make_cold(path)
    window = memoryview(bytearray(PAGE))
    with path.open("rb") as file:
        reader = QuietReader(file.fileno(), len(LOG), "file")
        assert reader.read_into(window, len(LOG) - 7) == 7
        assert window[:7] == LOG[-7:]
        reader.close()
    assert not any(resident(path))

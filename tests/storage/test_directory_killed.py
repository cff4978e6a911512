"""A directory store whose process is killed before any system step, or whose disk is full at any write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tierstate.state.errors import ObjectExists
from tierstate.state.objects import TEMPORARY_FOLDER
from tierstate.storage.directory import DirectoryStore

from .killed_writer import KEY, NEW, OLD

PROGRAM = Path(__file__).with_name("killed_writer.py")


def run(how: str, work: str, folder: Path) -> list[str]:
    """Run the program; return the lines that it printed."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), how, work, str(folder if how != "steps" else folder / "store")],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def content(store: DirectoryStore) -> bytes | None:
    """Return the content of the only object, if there is one, as listing, head and get agree."""
    keys = [info.key for info in store.list()]
    if not keys:
        return None
    assert keys == [KEY]
    data = store.get(KEY)
    assert store.head(KEY).size == len(data)
    return data


def reopened(folder: Path) -> DirectoryStore:
    """Open the store as after a restart. Nothing unfinished is left, in the temporary folder or anywhere else."""
    store = DirectoryStore(folder)
    assert os.listdir(folder / TEMPORARY_FOLDER) == []
    files = [name for _, _, names in os.walk(folder) for name in names]
    assert files in ([], [KEY.rpartition("/")[2]])
    return store


def test_a_put_killed_before_any_step_leaves_the_whole_object_or_none_and_can_be_done_again(tmp_path: Path) -> None:
    (survived,) = map(int, run("kill", "put", tmp_path / "killed"))
    outcomes = []
    for at in range(1, survived + 1):
        store = reopened(tmp_path / "killed" / str(at))
        data = content(store)
        assert data in (None, NEW), f"killed before step {at}"
        outcomes.append(data is not None)
        if data is None:
            assert store.put_stream(KEY, [NEW]) == len(NEW)
        else:
            with pytest.raises(ObjectExists):
                store.put_if_absent(KEY, b"another")
        assert content(store) == NEW
    assert outcomes == sorted(outcomes), "once it is there it stays"
    assert outcomes.count(False) > 10, "steps before the object is there"
    assert outcomes.count(True) > 3, "steps after it is there"


def test_a_replacement_killed_before_any_step_leaves_the_old_object_or_the_new_one(tmp_path: Path) -> None:
    (survived,) = map(int, run("kill", "replace", tmp_path / "killed"))
    outcomes = []
    for at in range(1, survived + 1):
        store = reopened(tmp_path / "killed" / str(at))
        data = content(store)
        assert data in (OLD, NEW), f"killed before step {at}"
        outcomes.append(data == NEW)
        assert store.replace_if_same(KEY, NEW, OLD) is (data == OLD)
        assert content(store) == NEW
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def test_a_delete_killed_before_any_step_leaves_the_object_or_none_and_can_be_done_again(tmp_path: Path) -> None:
    (survived,) = map(int, run("kill", "delete", tmp_path / "killed"))
    outcomes = []
    for at in range(1, survived + 1):
        store = reopened(tmp_path / "killed" / str(at))
        data = content(store)
        assert data in (OLD, None), f"killed before step {at}"
        outcomes.append(data is None)
        store.delete(KEY)
        assert content(store) is None
        store.put_if_absent(KEY, NEW)
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def test_an_object_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_put_returns(tmp_path: Path) -> None:
    """A kill loses nothing that was written; a power loss loses unsynced data, and no test can cut the power."""
    steps = run("steps", "put", tmp_path / "counted")
    named = steps.index("link")
    written = max(at for at, step in enumerate(steps) if step == "write")
    assert written < named
    assert "fsync" in steps[written:named]
    assert steps[named:].count("fsync") >= len(KEY.split("/")), "its folder and every one above it, up to the store's"


def test_a_replacement_is_on_the_disk_before_it_has_the_name_and_the_name_before_it_returns(tmp_path: Path) -> None:
    steps = run("steps", "replace", tmp_path / "counted")
    named = steps.index("replace")
    written = max(at for at, step in enumerate(steps) if step == "write")
    assert written < named
    assert "fsync" in steps[written:named]
    assert "fsync" in steps[named:]


@pytest.mark.parametrize(("work", "before"), [("put", None), ("replace", OLD)])
def test_a_disk_that_is_full_at_any_write_is_a_full_store_and_changes_nothing(
    tmp_path: Path, work: str, before: bytes | None
) -> None:
    (tried,) = map(int, run("full", work, tmp_path / "full"))
    assert tried >= 6
    for number in range(tried):
        folder = tmp_path / "full" / str(number)
        assert os.listdir(folder / TEMPORARY_FOLDER) == [], "removed at once, not at the next opening"
        store = reopened(folder)
        assert content(store) == before
        if before is None:
            store.put_if_absent(KEY, NEW)
        else:
            assert store.replace_if_same(KEY, NEW, before)
        assert content(store) == NEW

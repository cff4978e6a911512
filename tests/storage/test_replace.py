"""The only overwrite: of the object that the caller has seen, whole, and never of a deleted one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tierstate.state.errors import ObjectNotFound
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import ObjectStore


def test_an_unchanged_object_is_replaced(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"old")
    assert store.replace_if_same("a/b", memoryview(b"newer"), b"old")
    assert store.get("a/b") == b"newer"
    assert [(info.key, info.size) for info in store.list("")] == [("a/b", 5)]


def test_a_changed_object_stays(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"other")
    assert not store.replace_if_same("a/b", b"newer", b"old")
    assert store.get("a/b") == b"other"


def test_a_deleted_object_does_not_come_back(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"old")
    store.delete("a/b")
    with pytest.raises(ObjectNotFound):
        store.replace_if_same("a/b", b"newer", b"old")
    assert list(store.list("")) == []


def test_a_folder_replaces_under_the_lock_that_deletes_take(tmp_path: Path) -> None:
    """A delete must not happen between compare and rename, because the rename would restore the object."""
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent("a", b"old")
    deleted = threading.Event()

    class Slow(DirectoryStore):
        def get(self, key: str, limit: int | None = None) -> bytes:
            content = super().get(key, limit)
            deleter.start()
            assert not deleted.wait(0.2)
            return content

    def delete() -> None:
        store.delete("a")
        deleted.set()

    deleter = threading.Thread(target=delete)
    assert Slow(tmp_path / "store").replace_if_same("a", b"new", b"old")
    deleter.join()
    assert list(store.list("")) == []
    assert os.listdir(tmp_path / "store" / ".tierstate-tmp") == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tierstate.storage.directory import DirectoryStore

folder = Path(sys.argv[1])
DirectoryStore(folder).put_if_absent("a/b", b"old")
step, seen = 0, []
while True:
    step += 1
    child = os.fork()
    if child == 0:
        store, left = DirectoryStore(folder), step
        def count(event, arguments):
            global left
            if event in ("open", "os.rename", "os.remove", "fcntl.flock", "tempfile.mkstemp"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        assert store.replace_if_same("a/b", b"newer", b"old")
        os._exit(0)
    survived = os.waitpid(child, 0)[1] == 0
    store = DirectoryStore(folder)
    found = store.get("a/b")
    assert found in (b"old", b"newer"), found
    assert os.listdir(folder / ".tierstate-tmp") == []
    assert store.replace_if_same("a/b", b"old", found)
    seen.append(found.decode())
    if survived:
        break
print(*seen)
"""


def test_a_process_killed_at_any_step_of_a_replacement_leaves_the_old_object_or_the_new_one(tmp_path: Path) -> None:
    """Steps are calls that the interpreter audits: every one that opens, locks, renames or removes a file."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = done.stdout.split()
    assert len(seen) > 6
    assert (seen[0], seen[-1]) == ("old", "newer")
    assert seen == sorted(seen, reverse=True)

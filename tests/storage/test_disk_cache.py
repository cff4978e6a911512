"""The disk cache: it may lose anything at any time, and never serves wrong bytes."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.conftest import Golden
from tierstate.runtime.listener import ChunkCacheOff, Event
from tierstate.state.errors import InvalidRequest
from tierstate.state.object_keys import ObjectKind
from tierstate.storage.segment.cache import ChunkCache
from tierstate.storage.segment.disk_cache import BLOCK_BYTES, MARK, DiskCache, open_disk_cache

KEY = "topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
MIB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "chunks"


def opened(folder: Path, max_bytes: int = MIB) -> DiskCache:
    cache = open_disk_cache(folder, max_bytes)
    assert cache is not None
    return cache


def files(folder: Path) -> list[Path]:
    return sorted((folder / "chunks").iterdir())


def used(folder: Path) -> int:
    return sum(
        -(-file.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES
        for file in itertools.chain(folder.glob("chunks/*"), folder.glob("unfinished/*"))
    )


def test_a_chunk_survives_a_restart(folder: Path) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, b"stored")
    assert cache.get(KEY, 3, 6) == b"stored"
    cache.close()
    again = opened(folder)
    assert again.get(KEY, 3, 6) == b"stored"
    assert again.counts.bytes == used(folder) == BLOCK_BYTES


def test_a_chunk_is_found_by_whole_key_number_and_size_alone(folder: Path) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, b"stored")
    assert cache.get("a/" + KEY, 3, 6) is None
    assert cache.get(KEY, 4, 6) is None
    assert cache.get(KEY, 3, 7) is None
    assert KEY.split("/")[0] not in files(folder)[0].name


@pytest.mark.parametrize("chunk", [b"x", b"stored bytes of a chunk" * 3])
def test_a_file_that_is_damaged_anywhere_is_dropped_and_counted_and_never_served(folder: Path, chunk: bytes) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, chunk)
    whole = files(folder)[0].read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    damaged += [whole[:size] for size in range(len(whole))] + [whole + b"\0"]
    for count, bad in enumerate(damaged, 1):
        files(folder)[0].write_bytes(bad)
        assert cache.get(KEY, 3, len(chunk)) is None
        assert cache.counts.damaged == count
        assert files(folder) == []
        cache.put(KEY, 3, chunk)
    assert cache.get(KEY, 3, len(chunk)) == chunk


def test_the_file_of_another_chunk_is_damage(folder: Path) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, b"three!")
    three = files(folder)[0].read_bytes()
    cache.put(KEY, 4, b"four!!")
    for file in files(folder):
        file.write_bytes(three)
    assert {cache.get(KEY, 3, 6), cache.get(KEY, 4, 6)} == {b"three!", None}
    assert cache.counts.damaged == 1


def test_removed_files_are_misses(folder: Path) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, b"stored")
    files(folder)[0].unlink()
    assert cache.get(KEY, 3, 6) is None
    assert (cache.counts.bytes, cache.counts.damaged, cache.counts.misses) == (0, 0, 1)


WATCHED = """
import sys
from pathlib import Path
from tierstate.storage.segment.disk_cache import open_disk_cache
folder, bound = Path(sys.argv[1]), int(sys.argv[2])
cache = open_disk_cache(folder, bound)
def look(event, args):
    if event == "os.rename":  # the new file is whole, and not in its place yet
        print(sum(-(-file.stat().st_size // 4096) * 4096 for file in folder.glob("[cu]*/*")))
sys.addaudithook(look)
for id in range(4):
    cache.put("key", id, bytes(4 * 4096))
"""


def test_the_bytes_on_disk_never_exceed_the_bound_not_even_while_writing(folder: Path) -> None:
    bound = 10 * BLOCK_BYTES
    cache = opened(folder, bound)
    for id in range(50):
        cache.put(KEY, id, bytes(3 * BLOCK_BYTES - 500))
        assert used(folder) == cache.counts.bytes <= bound
    assert cache.counts.evictions == 47
    cache.put(KEY, 100, bytes(11 * BLOCK_BYTES))
    assert cache.get(KEY, 100, 11 * BLOCK_BYTES) is None
    cache.close()
    cramped = subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder), str(bound)], capture_output=True, check=True, timeout=60
    )
    seen = [int(line) for line in cramped.stdout.split()]
    assert len(seen) == 4
    assert max(seen) <= bound


def test_the_least_recently_used_goes_first_also_after_a_restart(folder: Path) -> None:
    cache = opened(folder, 3 * BLOCK_BYTES)
    cache.put(KEY, 2, b"stored")
    os.utime(files(folder)[0], (1, 1))
    for id in (1, 3):
        cache.put(KEY, id, b"stored")
    for name in files(folder):
        os.utime(name, (1, 1) if name.stat().st_mtime == 1 else (2, 2))
    assert cache.get(KEY, 2, 6) is not None  # the oldest file is the newest now
    cache.close()
    cache = opened(folder, 2 * BLOCK_BYTES)  # a smaller bound takes effect when it is opened
    assert len(files(folder)) == 2
    cache.put(KEY, 4, b"stored")
    assert cache.get(KEY, 2, 6) is not None
    assert cache.get(KEY, 4, 6) is not None


def test_one_process_has_it_and_the_second_does_without_and_warns(folder: Path) -> None:
    events: list[Event] = []
    first = opened(folder)
    assert open_disk_cache(folder, MIB, events.append) is None
    assert events == [ChunkCacheOff(str(folder), "another process uses it")]
    first.close()
    assert open_disk_cache(folder, MIB, events.append) is not None


def test_a_folder_it_did_not_make_is_refused_and_left_as_it_is(folder: Path) -> None:
    (folder / "chunks").mkdir(parents=True)
    mine = folder / "chunks" / ("0" * 64)
    mine.write_bytes(b"precious")
    with pytest.raises(InvalidRequest, match="no chunk cache"):
        open_disk_cache(folder, 0)
    assert [path for path in folder.rglob("*") if path.is_file()] == [mine]


def test_files_that_are_not_its_own_stay_in_its_folder_too(folder: Path) -> None:
    opened(folder).close()
    mine = [folder / "notes.txt", folder / "chunks" / "notes.txt", folder / "unfinished" / "notes.txt"]
    for path in mine:
        path.write_bytes(b"precious")
    assert opened(folder, 0).counts.bytes == 0
    assert [path.read_bytes() for path in mine] == [b"precious"] * 3


def test_no_other_user_may_read_it(folder: Path) -> None:
    cache = opened(folder)
    cache.put(KEY, 3, b"stored")
    assert folder.stat().st_mode & 0o077 == 0
    assert files(folder)[0].stat().st_mode & 0o077 == 0


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files of this process to 64 KiB: to a writer this is a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.usefixtures("small_files")
def test_without_room_it_turns_itself_off_and_warns_once(folder: Path) -> None:
    events: list[Event] = []
    cache = open_disk_cache(folder, MIB, events.append)
    assert cache is not None
    cache.put(KEY, 1, b"stored")
    for id in (2, 3):
        cache.put(KEY, id, bytes(100_000))
    assert events == [ChunkCacheOff(str(folder), os.strerror(errno.EFBIG))]
    assert cache.get(KEY, 1, 6) is None
    assert list((folder / "unfinished").iterdir()) == []


def test_chunks_encrypted_in_the_store_are_encrypted_on_disk(folder: Path, golden: Golden) -> None:
    segment = golden("aiven/zstd-aes")
    disk = opened(folder)
    log = b"".join(segment.reader(ChunkCache(0, disk)).read_log())
    stored = segment.object(ObjectKind.LOG)
    held = b"".join(file.read_bytes() for file in files(folder))
    chunks = segment.reader().manifest.chunks
    assert all(stored[chunk.stored_start : chunk.stored_stop] in held for chunk in chunks)
    assert log[:64] not in held
    disk.close()

    again = opened(folder)
    segment.store.delete(segment.base_key + ObjectKind.LOG)
    assert b"".join(segment.reader(ChunkCache(0, again)).read_log()) == log
    assert (again.counts.hits, again.counts.misses) == (chunks.count, 0)


def test_a_damaged_file_is_read_again_from_the_store(folder: Path, golden: Golden) -> None:
    segment = golden("aiven/zstd")
    disk = opened(folder)
    log = b"".join(segment.reader(ChunkCache(0, disk)).read_log())
    for file in files(folder):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert b"".join(segment.reader(ChunkCache(0, disk)).read_log()) == log
    assert disk.counts.damaged == segment.reader().manifest.chunks.count
    assert b"".join(segment.reader(ChunkCache(0, disk)).read_log()) == log
    assert disk.counts.hits == segment.reader().manifest.chunks.count


def test_a_chunk_that_does_not_open_is_never_put_there(folder: Path, golden: Golden) -> None:
    segment = golden("aiven/zstd-aes")
    data = bytearray(segment.object(ObjectKind.LOG))
    data[20] ^= 1
    segment.store.delete(segment.base_key + ObjectKind.LOG)
    segment.store.put_if_absent(segment.base_key + ObjectKind.LOG, data)
    disk = opened(folder)
    with pytest.raises(Exception, match="decryption fails"):
        list(segment.reader(ChunkCache(0, disk)).plain_range(0, 1))
    assert files(folder) == []


KILLED = """
import os, sys
from pathlib import Path
from tierstate.storage.segment.disk_cache import open_disk_cache
steps = int(sys.argv[2])
cache = open_disk_cache(Path(sys.argv[1]), 1 << 20)
def count(event, args):
    global steps
    if event in ("open", "os.rename", "os.remove", "os.mkdir"):
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(count)
for id in range(3):
    cache.put("key", id, b"stored%d" % id)
print("done")
"""


@pytest.mark.extended
def test_a_kill_at_any_step_leaves_whole_chunks_or_nothing(folder: Path) -> None:
    for steps in range(30):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), str(steps)], capture_output=True, check=False, timeout=60
        )
        cache = opened(folder)
        assert list((folder / "unfinished").iterdir()) == []
        for id in range(3):
            assert cache.get("key", id, 7) in (None, b"stored%d" % id)
        assert cache.counts.damaged == 0
        for file in files(folder):
            file.unlink()
        cache.close()
        if done.returncode == 0:
            assert steps > 3
            return
    pytest.fail("it never came to its end")


def test_the_mark_names_the_version_of_the_format(folder: Path) -> None:
    opened(folder).close()
    (folder / MARK).rename(folder / "tierstate-chunk-cache-2")
    with pytest.raises(InvalidRequest):
        open_disk_cache(folder, MIB)


class Disk:
    """A file system that others fill too. The cache sees how many bytes it lacks."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self.room = folder, room

    def lacking(self, folder: Path) -> int:
        return used(self.folder) - self.room


def test_it_keeps_free_what_others_need_and_gives_back_what_it_has(folder: Path) -> None:
    opened(folder).close()
    disk = Disk(folder, 8 * BLOCK_BYTES)
    cache = DiskCache(folder, MIB, os.open(folder / "lock", os.O_RDWR), lacking=disk.lacking)
    for chunk in range(12):
        cache.put(KEY, chunk, b"stored")
    assert used(folder) == 8 * BLOCK_BYTES
    older = set(files(folder))
    disk.room = 2 * BLOCK_BYTES
    cache.put(KEY, 12, b"stored")
    assert [cache.get(KEY, chunk, 6) for chunk in (10, 11, 12)] == [None, b"stored", b"stored"]
    cache.close()
    for file in older & set(files(folder)):  # both were read within one tick of the file system's clock
        os.utime(file, (1, 1))
    disk.room = BLOCK_BYTES
    again = DiskCache(folder, MIB, os.open(folder / "lock", os.O_RDWR), lacking=disk.lacking)
    assert [again.get(KEY, chunk, 6) for chunk in (11, 12)] == [None, b"stored"], "it gives way when it is opened"
    disk.room = 0
    again._room_for(0)
    assert used(folder) == 0
    again.put(KEY, 13, b"stored")
    assert used(folder) == 0
    again.close()

"""Files of a folder store bypass the page cache, whole and in order, on file systems that can and those that cannot."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tierstate.state.errors import StorageFull
from tierstate.storage import direct_file
from tierstate.storage.direct_file import BLOCK_BYTES, DirectFile
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import MIB

PAGE = mmap.PAGESIZE
NOISE = os.urandom(3 * BLOCK_BYTES + 12_345)
SIZES = [0, 1, PAGE, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, len(NOISE)]


@contextmanager
def written(path: Path, data: bytes, piece_bytes: int) -> Iterator[int]:
    """Yield the file's descriptor, after `DirectFile.sync`."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        file = DirectFile(descriptor)
        sizes = [file.write(data[at : at + piece_bytes]) for at in range(0, len(data), piece_bytes)]
        assert sum(sizes) == len(data)
        file.sync()
        yield descriptor
    finally:
        os.close(descriptor)


def cached(path: Path) -> int:
    """Return how many bytes of a file the page cache holds, by mincore(2): reading may fill it."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // PAGE))()
        start = ctypes.c_char.from_buffer(mapped)
        code = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), pages
        )
        del start
        assert code == 0, os.strerror(ctypes.get_errno())
        return PAGE * sum(page & 1 for page in pages)


@pytest.mark.parametrize("piece_bytes", [1, 999, 256 * 1024, BLOCK_BYTES, 2 * BLOCK_BYTES + 1], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_all_bytes_are_there_in_order(tmp_path: Path, size: int, piece_bytes: int) -> None:
    size = min(size, 5000 * piece_bytes)
    with written(tmp_path / "file", NOISE[:size], piece_bytes):
        assert (tmp_path / "file").read_bytes() == NOISE[:size]


def test_files_that_are_written_at_the_same_time_have_their_own_bytes_and_an_earlier_file_gives_its_buffer(
    tmp_path: Path,
) -> None:
    direct_file._free.clear()
    with written(tmp_path / "earlier", NOISE[:PAGE], PAGE):
        [kept] = direct_file._free
    with (tmp_path / "one").open("wb") as one, (tmp_path / "other").open("wb") as other:
        files = [DirectFile(one.fileno()), DirectFile(other.fileno())]
        for at in range(0, len(NOISE), 100_000):
            files[0].write(NOISE[at : at + 100_000])
            files[1].write(NOISE[::-1][at : at + 100_000])
        for file in files:
            file.sync()
    assert (tmp_path / "one").read_bytes() == NOISE
    assert (tmp_path / "other").read_bytes() == NOISE[::-1]
    assert direct_file._free[0] is kept
    assert len(direct_file._free) == 2


def test_what_a_folder_stores_is_not_in_the_page_cache_but_for_its_end(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_stream("a/log", [NOISE])
    store.put_if_absent("a/index", NOISE[:PAGE])
    assert cached(tmp_path / "store" / "a" / "log") <= len(NOISE) % BLOCK_BYTES + PAGE
    assert cached(tmp_path / "store" / "a" / "index") == PAGE
    assert store.get("a/log") == NOISE


def test_bytes_go_through_the_cache_without_direct_writes() -> None:
    """A socket refuses the flag as a file system without it does."""
    reading, writing = socket.socketpair()
    got = bytearray()

    def read() -> None:
        while piece := reading.recv(MIB):
            got.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with reading:
        with writing:
            DirectFile(writing.fileno()).write(NOISE[: 2 * BLOCK_BYTES])
        reader.join(30)
    assert got == NOISE[: 2 * BLOCK_BYTES]


@pytest.mark.parametrize("room", [BLOCK_BYTES + PAGE, BLOCK_BYTES + 100, 2 * BLOCK_BYTES + 5], ids=str)
def test_a_disk_that_gets_full_inside_a_block_is_an_error_and_nothing_is_left(tmp_path: Path, room: int) -> None:
    store, before = DirectoryStore(tmp_path / "store"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(StorageFull):
            store.put_stream("a/log", [NOISE])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(store.list()) == []
    assert list(store.unfinished_uploads()) == []

"""A full disk, a killed writer, a damaged object: nothing half written is seen, nothing half read is believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tierstate.state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
)
from tierstate.state.ids import TopicIdPartition
from tierstate.state.object_keys import ObjectKind, object_key
from tierstate.state.objects import TEMPORARY_FOLDER
from tierstate.state.segment import Compression
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.memory import MemoryStore
from tierstate.storage.open import open_store
from tierstate.storage.segment.manifest_json import with_own_checksum
from tierstate.storage.segment.reader import SegmentReader
from tierstate.storage.segment.writer import SegmentSource, delete_segment, plan_compression, put_log

from .conftest import BASE_KEY, WriteSegment

LOG = bytes(range(256)) * 40
LOG_KEY, INDEXES_KEY, MANIFEST_KEY = (object_key(BASE_KEY, kind) for kind in ObjectKind)


def test_a_store_that_is_full_at_any_write_leaves_no_object_of_that_write(write_segment: WriteSegment) -> None:
    tried = 0
    while True:
        full_at = tried

        def full(operation: str, key: str, writes: int, full_at: int = full_at) -> None:
            if operation in ("put", "part", "complete") and writes == full_at:
                raise StorageFull("the store has no room", key=key)

        store = MemoryStore(faults=full)
        try:
            write_segment(store, LOG, compression=Compression.ZSTD)
        except StorageFull as error:
            refused = error.facts["key"]
        else:
            break
        assert refused not in [info.key for info in store.list()]
        with pytest.raises(ObjectNotFound):
            store.head(MANIFEST_KEY)
        delete_segment(store, write_segment(MemoryStore(), LOG, compression=Compression.ZSTD))
        assert list(store.list()) == []
        tried += 1
    assert tried == store.writes == 11 + 1 + 1 + 1  # chunks, complete, indexes, manifest


def test_a_file_size_limit_is_a_full_store_and_passes(tmp_path: Path) -> None:
    program = """
        import resource, sys
        from pathlib import Path
        from tierstate.state.errors import StorageFull
        from tierstate.storage.directory import DirectoryStore
        store = DirectoryStore(Path(sys.argv[1]))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        for put in (store.put_if_absent, lambda key, data: store.put_stream(key, [data[:60_000], data[60_000:]])):
            try:
                put("a/object", bytes(150_000))
            except StorageFull:
                pass
            else:
                sys.exit("no StorageFull")
            if list(store.list()):
                sys.exit("something is visible")
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.put_if_absent("a/object", bytes(150_000))
    """
    folder = tmp_path / "store"
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(folder)], check=True, timeout=60)
    assert DirectoryStore(folder).get("a/object") == bytes(150_000)
    assert os.listdir(folder / TEMPORARY_FOLDER) == []


def test_a_writer_killed_in_a_put_leaves_nothing_visible_and_its_rest_is_removed(tmp_path: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from tierstate.storage.directory import DirectoryStore
        def pieces():
            for _ in range(5):
                yield bytes(100_000)
            print("written", flush=True)
            time.sleep(600)
        DirectoryStore(Path(sys.argv[1])).put_stream("a/object", pieces())
    """
    folder = tmp_path / "store"
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        store = DirectoryStore(folder)
        assert len(os.listdir(folder / TEMPORARY_FOLDER)) == 1, "a living writer's file is left alone"
        assert list(store.list()) == []
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)
    assert list(store.list()) == []
    with pytest.raises(ObjectNotFound):
        store.head("a/object")
    assert DirectoryStore(folder).put_stream("a/object", [b"again"]) == 5
    assert os.listdir(folder / TEMPORARY_FOLDER) == []


@pytest.mark.parametrize("compression", list(Compression))
def test_a_log_object_cut_anywhere_is_corrupt(write_segment: WriteSegment, compression: Compression) -> None:
    whole = MemoryStore()
    segment = write_segment(whole, LOG, compression=compression)
    stored = whole.get(LOG_KEY)
    for length in {0, 1, 999, 1000, 1001, len(stored) // 2, len(stored) - 1}:
        store = MemoryStore()
        store.put_if_absent(LOG_KEY, stored[:length])
        for key in (INDEXES_KEY, MANIFEST_KEY):
            store.put_if_absent(key, whole.get(key))
        reader = SegmentReader.open(store, BASE_KEY)
        with pytest.raises(CorruptData, match="\\.log"):
            list(reader.read_log())
        with pytest.raises(CorruptData, match="\\.log"):
            list(reader.plain_range(len(LOG) - 1, len(LOG)))
        with pytest.raises(CorruptData):
            reader.verify(segment)


@pytest.mark.parametrize(
    ("kind", "grown"),
    [(ObjectKind.LOG, True), (ObjectKind.LOG, False), (ObjectKind.INDEXES, True), (ObjectKind.INDEXES, False)],
)
def test_verify_finds_a_longer_object_and_a_flipped_bit(
    write_segment: WriteSegment, kind: ObjectKind, grown: bool
) -> None:
    store = MemoryStore()
    segment = write_segment(store, LOG)
    assert SegmentReader.open(store, BASE_KEY).verify(segment)
    key = object_key(BASE_KEY, kind)
    data = bytearray(store.get(key))
    if grown:
        data += b"x"
    else:
        data[3] ^= 1
    store.delete(key)
    store.put_if_absent(key, data)
    with pytest.raises(CorruptData) as raised:
        SegmentReader.open(store, BASE_KEY).verify()
    assert raised.value.facts["file"] == key


def test_a_compressed_chunk_of_another_length_is_corrupt(write_segment: WriteSegment) -> None:
    store = MemoryStore()
    write_segment(store, LOG, compression=Compression.ZSTD)
    manifest = with_own_checksum(
        store.get(MANIFEST_KEY).replace(b'"originalFileSize":10240', b'"originalFileSize":10239')
    )
    store.delete(MANIFEST_KEY)
    store.put_if_absent(MANIFEST_KEY, manifest)
    with pytest.raises(CorruptData, match="another length"):
        list(SegmentReader.open(store, BASE_KEY).read_log())


def test_a_frame_that_declares_a_petabyte_is_corrupt_before_it_is_unpacked(write_segment: WriteSegment) -> None:
    store = MemoryStore()
    write_segment(store, LOG, compression=Compression.ZSTD)
    bomb = bytes.fromhex("28b52ffde0") + (2**50).to_bytes(8, "little")
    stored = store.get(LOG_KEY)
    store.delete(LOG_KEY)
    store.put_if_absent(LOG_KEY, bomb + stored[len(bomb) :])
    with pytest.raises(CorruptData, match="another length"):
        list(SegmentReader.open(store, BASE_KEY).unproven().read_log())


@pytest.mark.parametrize("length", [len(LOG) - 1, len(LOG) + 1, 0])
def test_a_log_that_changes_its_length_while_it_is_copied_is_never_written(length: int) -> None:
    store = MemoryStore()
    source = SegmentSource([(LOG + b"x")[:length]], len(LOG), b"", b"", b"", b"0\n0\n", None)
    for compression in Compression:
        with pytest.raises(CorruptData, match="changed its length"):
            put_log(store, BASE_KEY, source, compression)
    assert list(store.list()) == []


def test_a_log_that_aivens_reader_would_overflow_on_is_refused() -> None:
    source = SegmentSource([], 2**31 - 1, b"", b"", b"", b"", None)
    with pytest.raises(InvalidRequest, match="Aiven"):
        put_log(MemoryStore(), BASE_KEY, source, Compression.NONE, chunk_bytes=4 * 1024 * 1024)


def test_a_segment_is_deleted_manifest_first_and_again(write_segment: WriteSegment) -> None:
    deleted: list[str] = []

    def note(operation: str, key: str, writes: int) -> None:
        if operation == "delete":
            deleted.append(key)

    store = MemoryStore(faults=note)
    segment = write_segment(store, LOG)
    delete_segment(store, segment)
    assert deleted[0] == MANIFEST_KEY
    assert list(store.list()) == []
    delete_segment(store, segment)


def test_a_segment_that_names_anothers_objects_deletes_none(write_segment: WriteSegment) -> None:
    store = MemoryStore()
    segment = write_segment(store, LOG)
    before = list(store.list())
    forged = replace(segment, partition=TopicIdPartition(segment.partition.topic_id, 8))
    with pytest.raises(CorruptData, match="objects of another segment"):
        delete_segment(store, forged)
    assert list(store.list()) == before


def test_copying_takes_memory_for_chunks_not_for_the_log(tmp_path: Path) -> None:
    size, piece = 64 * 1024 * 1024, os.urandom(256 * 1024)

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    store = DirectoryStore(tmp_path / "store")
    source = SegmentSource(pieces(), size, b"", b"", b"", b"", None)
    tracemalloc.start()
    written = put_log(store, BASE_KEY, source, Compression.ZSTD, chunk_bytes=1024 * 1024)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written.chunks.count == 64
    assert peak < 16 * 1024 * 1024


def test_a_folder_that_is_not_mounted_is_unavailable_not_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "disk")
    store.put_if_absent("a", b"x")
    (tmp_path / "disk").rename(tmp_path / "elsewhere")
    (tmp_path / "disk").mkdir()
    with pytest.raises(StorageUnavailable):
        store.get("a")
    with pytest.raises(StorageUnavailable):
        store.delete("a")
    with pytest.raises(StorageUnavailable):
        list(store.list())
    with pytest.raises(StorageUnavailable):
        store.put_if_absent("b", b"x")
    assert os.listdir(tmp_path / "disk") == []


@pytest.mark.parametrize("mount_point", [False, True])
def test_a_folder_that_goes_away_under_a_write_is_not_recreated(tmp_path: Path, mount_point: bool) -> None:
    disk = tmp_path / "disk"
    store = DirectoryStore(disk)

    def pieces() -> Iterator[bytes]:
        yield b"x"
        disk.rename(tmp_path / "elsewhere")
        if mount_point:
            disk.mkdir()
        yield b"y"

    with pytest.raises(StorageUnavailable, match="not mounted"):
        store.put_stream("a/b/object", pieces())
    assert disk.exists() == mount_point
    assert list(disk.rglob("*")) == []


def test_a_folder_that_is_away_at_its_opening_is_unavailable_not_recreated(tmp_path: Path) -> None:
    """Otherwise an agent that starts before the disk is mounted copies to the wrong disk, and misses every object."""
    disk = tmp_path / "disk"
    open_store(disk.as_uri(), make=True).put_if_absent("a", b"x")
    for mount_point in (False, True):  # nothing there; an empty folder for the disk
        disk.rename(tmp_path / "elsewhere")
        if mount_point:
            disk.mkdir()
        store = open_store(disk.as_uri())
        with pytest.raises(StorageUnavailable, match="not mounted"):
            store.put_if_absent("b", b"x")
        with pytest.raises(StorageUnavailable, match="not mounted"):
            store.head("a")
        assert disk.exists() == mount_point
        if mount_point:
            disk.rmdir()
        (tmp_path / "elsewhere").rename(disk)
        assert store.get("a") == b"x", "as soon as it is back"


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(b"secret")
    (tmp_path / "store" / "folder").symlink_to(tmp_path / "secret")
    (tmp_path / "store" / "file").symlink_to(tmp_path / "secret" / "file")
    with pytest.raises(AccessDenied):
        store.get("folder/file")
    with pytest.raises(AccessDenied):
        store.put_if_absent("folder/new", b"")
    with pytest.raises(ObjectNotFound):
        store.get("file")
    assert list(store.list()) == []


def test_a_name_that_no_file_can_have_is_a_wrong_call_not_a_broken_store(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent("a/b", b"")
    for key in ("a", "a/b/c", "a/b/c/d", "n" * 256):
        with pytest.raises(InvalidRequest):
            store.put_if_absent(key, b"")


@pytest.mark.parametrize(
    ("setting", "codec", "expected"),
    [("auto", 0, "zstd"), ("auto", 4, "none"), ("zstd", 4, "zstd"), ("none", 0, "none")],
)
def test_auto_compresses_only_what_is_not_compressed_yet(setting: str, codec: int, expected: str) -> None:
    assert plan_compression(setting, codec).value == expected

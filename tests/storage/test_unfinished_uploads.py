"""The parts of an upload that never ended are found in a store, and aborted without touching anything else."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierstate.runtime.clock import SystemClock
from tierstate.state.errors import AccessDenied, InvalidRequest, ObjectNotFound, StorageUnavailable
from tierstate.state.objects import UnfinishedUpload
from tierstate.state.offsets import TimestampMs
from tierstate.storage.directory import DirectoryStore
from tierstate.storage.object_store import MIB, ObjectStore
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

_DIES = """
import os, sys
from pathlib import Path
from tierstate.storage.directory import DirectoryStore
def pieces():
    yield b"half"
    os._exit(9)
DirectoryStore(Path(sys.argv[1])).put_stream("key", pieces())
"""


def test_no_store_has_unfinished_uploads_after_writes_that_ended(store: ObjectStore) -> None:
    def failing() -> Iterator[bytes]:
        yield from [bytes(MIB)] * 11
        raise KeyError

    store.put_stream("large", [bytes(MIB)] * 11, part_bytes=5 * MIB)
    with pytest.raises(KeyError):
        store.put_stream("failed", failing(), part_bytes=5 * MIB)
    assert list(store.unfinished_uploads()) == []
    with pytest.raises(ObjectNotFound):
        store.head("failed")


def test_a_folder_tells_of_files_whose_writer_is_dead_and_keeps_those_of_living_ones(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    assert subprocess.run([sys.executable, "-c", _DIES, str(tmp_path / "store")], check=False).returncode == 9

    def pieces() -> Iterator[bytes]:
        yield b"first "
        left = list(store.unfinished_uploads())
        assert [upload.key for upload in left] == [""]
        assert abs(left[0].started_at - SystemClock().now_ms()) < 60_000
        assert list(store.unfinished_uploads("key")) == []
        for upload in store.unfinished_uploads():  # during the listing
            store.abort_upload(upload)
        assert list(store.unfinished_uploads()) == []
        yield b"second"

    store.put_stream("living", pieces())
    assert store.get("living") == b"first second"


def test_a_folder_aborts_nothing_outside_its_temporary_folder(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    store.put_if_absent("object", b"x")
    for name in ("../object", "/etc/passwd", "a/b"):
        with pytest.raises(InvalidRequest):
            store.abort_upload(UnfinishedUpload("", name, TimestampMs(0)))
    store.abort_upload(UnfinishedUpload("", "gone", TimestampMs(0)))
    assert store.get("object") == b"x"


def test_more_uploads_than_a_page_are_all_listed(versitygw_endpoint: str, versitygw_bucket: str) -> None:
    store = S3Store(
        versitygw_bucket, "a/b", StoreOptions(versitygw_endpoint, "us-east-1", credentials=("test", "test"))
    )
    client = store.client
    keys = [f"k/{(number + 1) // 2:04d}" for number in range(1005)]  # a page ends between two uploads of one key
    for key in keys:
        client.create_multipart_upload(Bucket=versitygw_bucket, Key=f"a/b/{key}")
    client.create_multipart_upload(Bucket=versitygw_bucket, Key="beside/it")
    assert sorted(upload.key for upload in store.unfinished_uploads()) == keys
    assert len({upload.upload_id for upload in store.unfinished_uploads()}) == len(keys)
    assert [upload.key for upload in store.unfinished_uploads("k/0007")] == ["k/0007", "k/0007"]
    store.close()


def test_an_upload_holds_a_few_parts_whatever_the_objects_size(versitygw_store: S3Store) -> None:
    """Four parts are in flight or being filled, with one to spare: the promise is (concurrency + 2)."""
    tracemalloc.start()
    try:
        versitygw_store.put_stream("large", (bytes(MIB) for _ in range(80)), part_bytes=5 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 5 * MIB + 2 * MIB


def test_an_unknown_access_key_is_denied_not_missing(versitygw_endpoint: str, versitygw_bucket: str) -> None:
    store = S3Store(
        versitygw_bucket, "", StoreOptions(versitygw_endpoint, "us-east-1", credentials=("nobody", "x"), max_attempts=1)
    )
    for call in (lambda: store.get("key"), lambda: store.head("key"), lambda: list(store.list())):
        with pytest.raises(AccessDenied):
            call()
    store.close()


@pytest.mark.parametrize(("first", "second"), [("x", "x/y"), ("x/y", "x")])
def test_a_key_above_or_below_another_is_refused_by_stores_over_folders(
    first: str, second: str, versitygw_store: S3Store
) -> None:
    versitygw_store.put_if_absent(first, b"1")
    with pytest.raises(InvalidRequest, match="above or below"):
        versitygw_store.put_if_absent(second, b"2")
    with pytest.raises((InvalidRequest, StorageUnavailable)):  # versitygw 1.8 answers 500 to a stream above another key
        versitygw_store.put_stream(second, [bytes(MIB)] * 6, part_bytes=5 * MIB)
    assert versitygw_store.get(first) == b"1"
    assert list(versitygw_store.unfinished_uploads()) == []

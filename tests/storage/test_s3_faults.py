"""S3 over a network that fails: answers get lost, bodies break off, the store asks to slow down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import boto3
import pytest

from tests.leader.forger import events_segment
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.remote import open_segment
from tierstate.state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
    Throttled,
)
from tierstate.state.offsets import ByteRange
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store
from tierstate.storage.s3_errors import UploadGone, answered

from .faulty_proxy import FaultyProxy

Connect = Callable[[int], S3Store]


@pytest.fixture
def connect(faulty_proxy: FaultyProxy, s3_bucket: str) -> Iterator[Connect]:
    """Yield ``connect(max_attempts)``: a store behind the proxy."""
    stores: list[S3Store] = []

    def connect(max_attempts: int) -> S3Store:
        options = StoreOptions(
            faulty_proxy.endpoint,
            "us-east-1",
            credentials=("test", "test"),
            max_attempts=max_attempts,
            read_timeout=10,
        )
        stores.append(S3Store(s3_bucket, "", options, ManualClock()))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


def _first(fault: str, method: str, path_part: str = "") -> Callable[[str, str], str | None]:
    """Return the fault for the first such request only."""
    once = itertools.count()

    def decide(asked: str, path: str) -> str | None:
        return fault if asked == method and path_part in path and next(once) == 0 else None

    return decide


def test_a_put_whose_answer_was_lost_is_done_not_refused(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store = connect(3)
    faulty_proxy.fault = _first("lose the answer", "PUT")
    store.put_if_absent("key", b"mine")
    assert faulty_proxy.requests["PUT"] == 2
    assert store.get("key") == b"mine"


def test_a_retried_put_that_met_another_writers_object_is_refused(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store = connect(3)
    store.put_if_absent("key", b"theirs")
    faulty_proxy.fault = _first("503", "PUT")
    with pytest.raises(ObjectExists):
        store.put_if_absent("key", b"mine")


def test_a_large_put_whose_last_answer_was_lost_is_done(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store = connect(3)
    answers = iter(["lose the answer", "412"])  # the retry meets our own object, as on AWS
    faulty_proxy.fault = lambda method, path: next(answers, None) if "POST" == method and "uploadId=" in path else None
    assert store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB) == 11 * MIB
    assert store.head("key").size == 11 * MIB


def test_a_failed_large_put_leaves_no_upload_behind(
    connect: Connect, faulty_proxy: FaultyProxy, s3_endpoint: str, s3_bucket: str
) -> None:
    store = connect(1)
    faulty_proxy.fault = lambda method, path: "503" if "partNumber=2" in path else None
    with pytest.raises(Throttled):
        store.put_stream("key", [bytes(MIB)] * 21, part_bytes=5 * MIB)
    faulty_proxy.fault = lambda method, path: None
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    assert client.list_multipart_uploads(Bucket=s3_bucket).get("Uploads", []) == []
    client.close()
    with pytest.raises(ObjectNotFound):
        store.head("key")


def test_a_body_that_breaks_off_is_continued(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store, data = connect(4), bytes(range(256)) * 4000
    store.put_if_absent("key", data)
    faulty_proxy.fault = _first("cut the body", "GET")
    assert store.get("key") == data
    faulty_proxy.fault = _first("cut the body", "GET")
    assert b"".join(store.stream_range("key", ByteRange(5, len(data) + 10), 1000)) == data[5:]


def test_a_body_that_keeps_breaking_off_is_an_error_not_a_short_read(
    connect: Connect, faulty_proxy: FaultyProxy
) -> None:
    store = connect(3)
    store.put_if_absent("key", bytes(1_000_000))
    faulty_proxy.fault = lambda method, path: "cut the body" if method == "GET" else None
    with pytest.raises(StorageUnavailable):
        store.get("key")
    with pytest.raises(StorageUnavailable):
        store.get_range("key", ByteRange(0, 1_000_000))


def test_a_store_that_ignores_ranges_is_found_out(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store = connect(1)
    store.put_if_absent("key", bytes(1000))
    faulty_proxy.fault = lambda method, path: "drop the range"
    with pytest.raises(CorruptData, match="another range"):
        store.get_range("key", ByteRange(10, 20))


def test_a_store_that_asks_to_slow_down_is_throttling(connect: Connect, faulty_proxy: FaultyProxy) -> None:
    store = connect(1)
    faulty_proxy.fault = lambda method, path: "503"
    for call in (lambda: store.get("key"), lambda: store.put_if_absent("key", b""), lambda: list(store.list())):
        with pytest.raises(Throttled):
            call()


def test_a_store_that_does_not_answer_is_unavailable() -> None:
    options = StoreOptions("http://127.0.0.1:1", "us-east-1", credentials=("a", "b"), max_attempts=1, connect_timeout=1)
    store = S3Store("bucket", "", options)
    with pytest.raises(StorageUnavailable):
        store.get("key")


def test_a_missing_bucket_does_not_read_as_a_missing_object(s3_endpoint: str) -> None:
    store = S3Store(
        "no-such-bucket", "", StoreOptions(s3_endpoint, "us-east-1", credentials=("a", "b"), max_attempts=1)
    )
    with pytest.raises(InvalidRequest, match="bucket"):
        store.get("key")
    with pytest.raises(InvalidRequest, match="bucket"):
        store.head("key")
    with pytest.raises(InvalidRequest, match="bucket"):
        store.delete("key")
    with pytest.raises(InvalidRequest, match="bucket"):
        list(store.list())
    with pytest.raises(InvalidRequest, match="bucket"):  # no damaged manifest
        open_segment(store, events_segment(), None, None)


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, ObjectNotFound),
        ("NoSuchBucket", 404, InvalidRequest),
        ("XAdminUserNotFound", 404, AccessDenied),
        ("AccessDenied", 403, AccessDenied),
        ("SignatureDoesNotMatch", 403, AccessDenied),
        ("SlowDown", 503, Throttled),
        ("ServiceUnavailable", 503, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("InternalError", 500, StorageUnavailable),
        ("InternalError", 0, StorageUnavailable),
        ("RequestTimeout", 400, StorageUnavailable),
        ("PreconditionFailed", 412, ObjectExists),
        ("ConditionalRequestConflict", 409, StorageUnavailable),
        ("ObjectParentIsFile", 409, InvalidRequest),
        ("NoSuchUpload", 404, UploadGone),
        ("XMinioStorageFull", 507, StorageFull),
        ("PermanentRedirect", 301, InvalidRequest),
    ],
)
def test_every_answer_has_its_error(code: str, status: int, expected: type[Exception]) -> None:
    error = answered(code, status, "because", "key", "s3://bucket")
    assert type(error) is expected
    assert "key=key" in str(error)

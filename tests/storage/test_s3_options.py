"""Every option of an S3 store has an effect that its requests show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import InvalidRequest, StorageUnavailable, Throttled
from tierstate.storage.object_store import MIB
from tierstate.storage.options import StoreOptions
from tierstate.storage.s3 import S3Store

from .faulty_proxy import FaultyProxy

Open = Callable[..., S3Store]
LARGE = [bytes(MIB)] * 11


@pytest.fixture
def open_s3(faulty_proxy: FaultyProxy, s3_bucket: str) -> Iterator[Open]:
    """Yield ``open_s3(option=…)``: a store of a fresh bucket, behind the proxy."""
    stores: list[S3Store] = []

    def open_s3(bucket: str = s3_bucket, **more: Any) -> S3Store:
        store_options = {
            "endpoint": faulty_proxy.endpoint, "region": "us-east-1", "credentials": ("test", "test"), **more,
        }  # fmt: skip
        stores.append(S3Store(bucket, "", StoreOptions(**store_options), ManualClock()))
        return stores[-1]

    yield open_s3
    for store in stores:
        store.close()


@pytest.fixture
def head(s3_endpoint: str, s3_bucket: str) -> Iterator[Callable[[str], Any]]:
    """Yield a function that returns the store's answer about an object."""
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield lambda key: client.head_object(Bucket=s3_bucket, Key=key)
    client.close()


def test_objects_are_encrypted_as_asked(open_s3: Open, head: Callable[[str], Any]) -> None:
    open_s3(sse="AES256").put_if_absent("small", b"x")
    open_s3(sse="AES256").put_stream("large", LARGE)
    assert [head(key)["ServerSideEncryption"] for key in ("small", "large")] == ["AES256", "AES256"]


def test_logs_of_segments_alone_have_the_storage_class(open_s3: Open, head: Callable[[str], Any]) -> None:
    store = open_s3(storage_class="STANDARD_IA")
    for key in ("small.log", "small.rsm-manifest", "_tierstate/lock"):
        store.put_if_absent(key, b"x")
    store.put_stream("large.log", LARGE)
    open_s3().put_if_absent("before/plain.log", b"x")
    source = open_s3()
    source._prefix = "before/"
    assert store.copy_from(source, "plain.log")
    keys = ("small.log", "large.log", "plain.log", "small.rsm-manifest", "_tierstate/lock", "before/plain.log")
    assert [head(key).get("StorageClass") for key in keys] == ["STANDARD_IA"] * 3 + [None] * 3


def test_objects_are_encrypted_under_the_kms_key_that_was_named(open_s3: Open, head: Callable[[str], Any]) -> None:
    store = open_s3(sse="aws:kms", sse_kms_key_id="my-key")
    store.put_if_absent("small", b"x")
    store.put_stream("large", LARGE)
    for key in ("small", "large"):
        assert head(key)["ServerSideEncryption"] == "aws:kms"
        assert head(key)["SSEKMSKeyId"].endswith("my-key")
    assert store.replace_if_same("small", b"y", b"x")
    assert head("small")["SSEKMSKeyId"].endswith("my-key")


def test_nothing_is_asked_of_the_bucket_by_default(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    open_s3().put_if_absent("small", b"x")
    assert not [name for _, headers in faulty_proxy.seen for name in headers if "server-side-encryption" in name]


def test_a_kms_key_without_kms_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="aws:kms"):
        StoreOptions(sse="AES256", sse_kms_key_id="my-key")


def test_a_large_put_under_kms_whose_answer_was_lost_is_done(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    """ETags of such objects are no MD5 of anything: the object is recognised by its mark."""
    answers = iter(["lose the answer"])
    faulty_proxy.fault = lambda method, path: next(answers, None) if method == "POST" and "uploadId=" in path else None
    store = open_s3(sse="aws:kms")
    assert store.put_stream("large", LARGE) == 11 * MIB
    assert store.head("large").size == 11 * MIB


@pytest.mark.parametrize(
    ("path_style", "expected"),
    [
        (True, "http://objects.test/bucket/key"),
        (False, "http://bucket.objects.test/key"),
        (None, "http://objects.test/bucket/key"),
    ],
)
def test_requests_go_through_the_proxy_in_the_style_that_was_asked_for(
    open_s3: Open, faulty_proxy: FaultyProxy, path_style: bool | None, expected: str
) -> None:
    store = open_s3(
        "bucket",
        endpoint="http://objects.test",
        proxy=faulty_proxy.endpoint,
        path_style=path_style,
        max_attempts=1,
    )
    faulty_proxy.fault = lambda method, path: "500"
    with pytest.raises(StorageUnavailable):
        store.get("key")
    assert [path for path, _ in faulty_proxy.seen] == [expected]


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_request_that_fails_is_sent_as_often_as_asked(
    open_s3: Open, faulty_proxy: FaultyProxy, attempts: int
) -> None:
    store = open_s3(max_attempts=attempts)
    faulty_proxy.fault = lambda method, path: "500"
    with pytest.raises(StorageUnavailable):
        store.get("key")
    assert faulty_proxy.requests["GET"] == attempts


def test_a_request_is_not_repeated_past_its_deadline(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    store = open_s3(max_attempts=100, request_timeout=1)
    faulty_proxy.fault = lambda method, path: "500"
    with pytest.raises(StorageUnavailable):
        store.get("key")
    assert 3 <= faulty_proxy.requests["GET"] <= 6  # after 0.05 to 0.1 s, then twice as long each time


def test_no_patience_with_throttling_when_none_is_asked_for(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    store = open_s3(throttle_timeout=0)
    faulty_proxy.fault = lambda method, path: "503"
    with pytest.raises(Throttled):
        store.get("key")
    assert faulty_proxy.requests["GET"] == 1


def test_parts_have_the_size_that_was_asked_for(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    open_s3(part_bytes=6 * MIB).put_stream("large", LARGE)
    sizes = [int(headers["content-length"]) for path, headers in faulty_proxy.seen if "partNumber=" in path]
    assert sorted(sizes) == [5 * MIB, 6 * MIB]
    with pytest.raises(InvalidRequest, match="5 MiB"):
        StoreOptions(part_bytes=5 * MIB - 1)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_parts_are_in_flight_as_asked(open_s3: Open, faulty_proxy: FaultyProxy, concurrency: int) -> None:
    together, lock = threading.Barrier(concurrency), threading.Lock()
    running = most = 0

    def fault(method: str, path: str) -> str | None:
        nonlocal running, most
        if "partNumber=" in path:
            with lock:
                running += 1
                most = max(most, running)
            together.wait(timeout=20)  # the barrier breaks, and fails the upload, if fewer come
            with lock:
                running -= 1
        return None

    faulty_proxy.fault = fault
    open_s3(part_bytes=5 * MIB, concurrency=concurrency).put_stream("large", [bytes(MIB)] * 30)
    assert most == concurrency


def test_a_session_token_of_the_environment_is_sent(
    open_s3: Open, faulty_proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id-of-the-chain")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-chain")
    open_s3(credentials=None).put_if_absent("key", b"x")
    _, headers = faulty_proxy.seen[0]
    assert headers["x-amz-security-token"] == "token-of-the-chain"
    assert "id-of-the-chain" in headers["authorization"]


def test_secrets_and_proxies_are_not_shown() -> None:
    assert "hunter2" not in repr(StoreOptions(credentials=("id", "hunter2"), proxy="http://me:hunter2@proxy"))


def test_no_body_waits_for_a_go_ahead(open_s3: Open, faulty_proxy: FaultyProxy) -> None:
    """Some stores never answer "100 Continue", and each body would wait a second for it."""
    store = open_s3()
    store.put_if_absent("small", b"x")
    store.put_stream("large", LARGE)
    assert len(faulty_proxy.seen) == 5
    assert not [path for path, headers in faulty_proxy.seen if "expect" in headers]

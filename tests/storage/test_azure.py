"""Azure Blob Storage, quick tests. The whole contract and the failing network: `test_azure_whole.py`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from azure.storage.blob import ContainerClient

from tests.twins.manual_clock import ManualClock
from tierstate.state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageUnavailable,
    Throttled,
    TierstateError,
)
from tierstate.state.offsets import ByteRange
from tierstate.storage.azure import AzureStore
from tierstate.storage.azure_errors import answered
from tierstate.storage.object_store import MIB, RangeNotSatisfiable
from tierstate.storage.options import StoreOptions
from tierstate.storage.retry_policy import NotRepeatable

from .cloud_stores import ACCOUNT, KEY
from .cloud_stores import azure_client as azure_client
from .cloud_stores import azure_endpoint as azure_endpoint
from .cloud_stores import azure_proxy as azure_proxy
from .cloud_stores import azure_store as azure_store
from .cloud_stores import broken_azure_store as broken_azure_store
from .faulty_proxy import FaultyProxy


class Answering(BaseHTTPRequestHandler):
    """A server that gives the answers of a test."""

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, to keep the output of tests short."""


@contextmanager
def answering(kind: type[Answering]) -> Iterator[AzureStore]:
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/{ACCOUNT}"
        store = AzureStore("container", "", StoreOptions(endpoint, credentials=KEY), ManualClock())
        try:
            yield store
        finally:
            store.close()
            server.shutdown()


@pytest.mark.extended
def test_a_put_whose_answer_was_lost_is_done_not_refused(
    broken_azure_store: AzureStore, azure_proxy: FaultyProxy
) -> None:
    answers = iter(["lose the answer"])
    azure_proxy.fault = lambda method, path: next(answers, None) if method == "PUT" else None
    broken_azure_store.put_if_absent("key", b"mine")
    assert azure_proxy.requests["PUT"] == 2
    assert broken_azure_store.get("key") == b"mine"


def test_two_uploads_of_one_key_never_mix_their_blocks(azure_store: AzureStore) -> None:
    def slow() -> Iterator[bytes]:
        yield from [b"a" * MIB] * 3
        azure_store.put_stream("key", [b"b" * MIB] * 4, part_bytes=MIB)
        yield from [b"a" * MIB] * 3

    with pytest.raises(ObjectExists):
        azure_store.put_stream("key", slow(), part_bytes=MIB)
    assert azure_store.get("key") == b"b" * 4 * MIB


def test_logs_of_segments_alone_have_the_access_tier(azure_endpoint: str, azure_client: ContainerClient) -> None:
    options = StoreOptions(azure_endpoint, credentials=KEY, storage_class="cool")
    store = AzureStore(azure_client.container_name, "", options)
    store.put_if_absent("small.log", b"x")
    store.put_if_absent("small.indexes", b"x")
    store.put_stream("large.log", [bytes(MIB)] * 65)
    tiers = {blob.name: blob.blob_tier for blob in azure_client.list_blobs()}
    assert tiers == {"small.log": "Cool", "large.log": "Cool", "small.indexes": "Hot"}
    store.close()


def test_an_upload_that_never_ends_leaves_another_one_whole(azure_endpoint: str, azure_client: ContainerClient) -> None:
    store = AzureStore(azure_client.container_name, "", StoreOptions(azure_endpoint, credentials=KEY, concurrency=1))

    def failing() -> Iterator[bytes]:
        yield from [b"b" * MIB] * 4
        raise RuntimeError("the source fails")

    def slow() -> Iterator[bytes]:
        yield from [b"a" * MIB] * 4
        with pytest.raises(RuntimeError):
            store.put_stream("key", failing(), part_bytes=MIB)
        yield from [b"a" * MIB] * 2

    store.put_stream("key", slow(), part_bytes=MIB)
    assert store.get("key") == b"a" * 6 * MIB
    store.close()


@pytest.mark.parametrize(("there", "expected"), [(True, ObjectExists), (False, NotRepeatable)])
def test_a_commit_without_its_blocks_names_the_cause(there: bool, expected: type[TierstateError]) -> None:
    """A whole object under the key drops all its blocks; Azure may report that before it looks at the condition."""

    class Dropping(Answering):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(400 if "comp=blocklist" in self.path else 201, {"x-ms-error-code": "InvalidBlockList"})

        def do_HEAD(self) -> None:
            headers = {"x-ms-meta-tierstate_upload": "of somebody else", "x-ms-blob-type": "BlockBlob"}
            self.answer(200 if there else 404, headers if there else {"x-ms-error-code": "BlobNotFound"})

    with answering(Dropping) as store, pytest.raises(expected) as raised:
        store.put_stream("key", [bytes(MIB)] * 3, part_bytes=MIB)
    assert type(raised.value) is expected


@pytest.mark.parametrize("told", [None, "bytes 0-9/1000", "bytes 10-18/1000", "bytes 10-19/x"])
def test_a_store_that_answers_another_range_is_found_out(told: str | None) -> None:
    """The proxy does not do it: the range is signed, and azurite refuses a request that lacks it."""

    class Liar(Answering):
        def do_GET(self) -> None:
            self.answer(206 if told else 200, {"Content-Range": told} if told else {}, bytes(10))

    with answering(Liar) as store, pytest.raises(CorruptData, match="another range"):
        store.get_range("key", ByteRange(10, 20))


def test_a_store_that_does_not_answer_is_unavailable() -> None:
    options = StoreOptions(f"http://127.0.0.1:1/{ACCOUNT}", credentials=KEY, connect_timeout=1)
    store = AzureStore("container", "", options, ManualClock())
    for call in (lambda: store.get("key"), lambda: store.put_if_absent("key", b""), lambda: store.delete("key")):
        with pytest.raises(StorageUnavailable):
            call()
    store.close()


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("BlobNotFound", 404, ObjectNotFound),
        ("ContainerNotFound", 404, InvalidRequest),
        ("AuthenticationFailed", 403, AccessDenied),
        ("AuthorizationPermissionMismatch", 403, AccessDenied),
        ("NoAuthenticationInformation", 401, AccessDenied),
        ("ServerBusy", 503, Throttled),
        ("", 429, Throttled),
        ("OperationTimedOut", 500, StorageUnavailable),
        ("InternalError", 500, StorageUnavailable),
        ("", 502, StorageUnavailable),
        ("BlobAlreadyExists", 409, ObjectExists),
        ("ConditionNotMet", 412, ObjectExists),
        ("LeaseIdMissing", 412, AccessDenied),
        ("InvalidBlockList", 400, NotRepeatable),
        ("InvalidRange", 416, RangeNotSatisfiable),
        ("", 507, StorageFull),
        ("InvalidHeaderValue", 400, InvalidRequest),
    ],
)
def test_every_answer_has_its_error(code: str, status: int, expected: type[TierstateError]) -> None:
    error = answered(code, status, "because", "key", "az://container")
    assert type(error) is expected
    assert "key=key" in str(error)

"""Google Cloud Storage on fake-gcs-server: the whole contract, and a network that fails.

Where fake-gcs-server 1.56 is not Google:
- it never checks credentials, so no test here shows anything about permissions;
- a part that arrives twice is kept twice, where Google ignores bytes it has; ``x-goog-hash`` of the last part is not
  compared. So a lost answer within an upload damages the object there, which we must notice; that the upload goes on at
  Google is shown on `GoogleSession`, a twin of what Google documents;
- a session that is deleted lives on, so the request to delete it is what the test sees.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import google_crc32c
import pytest
import requests
from google.auth.credentials import AnonymousCredentials

from tests.storage.verdicts import PROMISES
from tests.twins.manual_clock import ManualClock
from tierstate.runtime.listener import Event, StoreThrottled, WriteRepeated
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
from tierstate.storage.contract_evidence import Promise
from tierstate.storage.gcs import GcsStore, authorized_session
from tierstate.storage.gcs_errors import answered
from tierstate.storage.gcs_upload import STEP, ResumableUpload
from tierstate.storage.object_store import MIB, RangeNotSatisfiable
from tierstate.storage.options import StoreOptions
from tierstate.storage.parts import PartShares, parts_of

from .cloud_stores import broken_gcs_store as broken_gcs_store
from .cloud_stores import gcs_bucket as gcs_bucket
from .cloud_stores import gcs_endpoint as gcs_endpoint
from .cloud_stores import gcs_proxy as gcs_proxy
from .cloud_stores import gcs_store as gcs_store
from .faulty_proxy import Fault, FaultyProxy


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_the_store_keeps_its_promise(gcs_store: GcsStore, promise: Promise) -> None:
    promise.check(gcs_store, "contract/")


def test_logs_of_segments_alone_have_the_storage_class(gcs_endpoint: str, gcs_bucket: str) -> None:
    store = GcsStore(gcs_bucket, "", StoreOptions(gcs_endpoint, storage_class="COLDLINE"))
    store.put_if_absent("small.log", b"x")
    store.put_if_absent("small.indexes", b"x")
    store.put_stream("large.log", [bytes(MIB)] * 9)
    blobs = {blob.name: blob.storage_class for blob in store._client.list_blobs(gcs_bucket)}
    assert blobs == {"small.log": "COLDLINE", "large.log": "COLDLINE", "small.indexes": "STANDARD"}
    store.close()


def at(fault: str, method: str, *numbers: int) -> Fault:
    """Return the fault at these requests of the method, counted from 0; at all of them without numbers."""
    count = itertools.count()
    return lambda asked, path: fault if asked == method and (next(count) in numbers or not numbers) else None


def test_a_put_whose_answer_was_lost_is_done_not_refused(broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy) -> None:
    gcs_proxy.fault = at("lose the answer", "POST", 0)
    broken_gcs_store.put_if_absent("key", b"mine")
    assert gcs_proxy.requests["POST"] == 2
    assert broken_gcs_store.get("key") == b"mine"


def test_a_retried_put_that_met_equal_bytes_of_another_writer_is_refused(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    broken_gcs_store.put_if_absent("key", b"the same")
    gcs_proxy.fault = at("503", "POST", 0)
    with pytest.raises(ObjectExists):
        broken_gcs_store.put_if_absent("key", b"the same")


def test_a_large_put_whose_last_answer_was_lost_is_done(broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy) -> None:
    gcs_proxy.fault = at("lose the answer", "PUT", 2)
    assert broken_gcs_store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB) == 11 * MIB
    assert gcs_proxy.requests["PUT"] == 4
    assert broken_gcs_store.head("key").size == 11 * MIB


def test_a_store_that_asks_to_slow_down_slows_a_large_put_and_never_fails_it(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    gcs_proxy.fault = at("503", "PUT", 0, 2, 3)
    data = bytes(range(256)) * 4096 * 11
    assert broken_gcs_store.put_stream("key", [data], part_bytes=5 * MIB) == 11 * MIB
    assert broken_gcs_store.get("key") == data


def test_a_large_put_that_fails_ends_its_session_and_leaves_nothing(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    gcs_proxy.fault = at("503", "PUT")
    with pytest.raises(Throttled):
        broken_gcs_store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB)
    assert gcs_proxy.requests["DELETE"] == 1
    with pytest.raises(ObjectNotFound):
        broken_gcs_store.head("key")


def test_an_object_that_is_not_what_was_sent_is_removed_again(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    gcs_proxy.fault = at("lose the answer", "PUT", 0)  # the emulator keeps this part twice
    with pytest.raises(StorageUnavailable, match="another object than was sent"):
        broken_gcs_store.put_stream("key", [bytes(MIB)] * 11, part_bytes=5 * MIB)
    with pytest.raises(ObjectNotFound):
        broken_gcs_store.head("key")


def test_one_of_many_large_puts_wins_whole(gcs_store: GcsStore) -> None:
    def put(writer: int) -> int | None:
        try:
            gcs_store.put_stream("key", [bytes([writer]) * MIB] * 3, part_bytes=MIB)
        except ObjectExists:
            return None
        return writer

    with ThreadPoolExecutor(4) as pool:
        winners = [writer for writer in pool.map(put, range(4)) if writer is not None]
    assert len(winners) == 1
    assert gcs_store.get("key") == bytes(winners) * 3 * MIB


def test_a_put_above_one_request_is_whole_and_conditional(gcs_store: GcsStore) -> None:
    data = bytes(range(256)) * 4096 * 9
    gcs_store.put_if_absent("key", data)
    assert gcs_store.get("key") == data
    with pytest.raises(ObjectExists):
        gcs_store.put_if_absent("key", data)


def test_a_body_that_breaks_off_is_continued(broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy) -> None:
    data = bytes(range(256)) * 4000
    broken_gcs_store.put_if_absent("key", data)
    gcs_proxy.fault = at("cut the body", "GET", 0)
    assert broken_gcs_store.get("key") == data
    gcs_proxy.fault = at("cut the body", "GET", 0, 1)
    assert b"".join(broken_gcs_store.stream_range("key", ByteRange(5, len(data) + 10), 1000)) == data[5:]


def test_a_body_that_keeps_breaking_off_is_an_error_not_a_short_read(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    broken_gcs_store.put_if_absent("key", bytes(1_000_000))
    gcs_proxy.fault = at("cut the body", "GET")
    with pytest.raises(StorageUnavailable):
        broken_gcs_store.get("key")
    with pytest.raises(StorageUnavailable):
        broken_gcs_store.get_range("key", ByteRange(0, 1_000_000))


def test_a_store_that_ignores_ranges_is_found_out(broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy) -> None:
    broken_gcs_store.put_if_absent("key", bytes(1000))
    gcs_proxy.fault = at("drop the range", "GET")
    with pytest.raises(CorruptData, match="another range"):
        broken_gcs_store.get_range("key", ByteRange(10, 20))


def test_a_store_that_goes_on_asking_to_slow_down_is_throttling(
    broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    gcs_proxy.fault = lambda method, path: "503"
    with pytest.raises(Throttled):
        broken_gcs_store.get("key")
    with pytest.raises(Throttled):
        broken_gcs_store.put_if_absent("key", b"")
    with pytest.raises(Throttled):
        list(broken_gcs_store.list())


def test_waiting_for_a_store_that_asks_to_slow_down_is_reported(gcs_proxy: FaultyProxy, gcs_bucket: str) -> None:
    events: list[Event] = []
    store = GcsStore(gcs_bucket, "", StoreOptions(gcs_proxy.endpoint), ManualClock(), listener=events.append)
    gcs_proxy.fault = at("503", "POST", *range(20))
    store.put_if_absent("key", b"whole")
    store.close()
    assert [type(each) for each in events if not isinstance(each, WriteRepeated)] == [StoreThrottled] * 20


def test_a_store_that_does_not_answer_is_unavailable() -> None:
    store = GcsStore("bucket", "", StoreOptions("http://127.0.0.1:1", connect_timeout=1), ManualClock())
    for call in (lambda: store.get("key"), lambda: store.put_if_absent("key", b""), lambda: store.delete("key")):
        with pytest.raises(StorageUnavailable):
            call()
    store.close()


def test_a_missing_bucket_does_not_read_as_a_missing_object(gcs_endpoint: str) -> None:
    store = GcsStore("no-such-bucket", "", StoreOptions(gcs_endpoint))
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.get("key"),
        lambda: store.get_range("key", ByteRange(0, 1)),
        lambda: store.head("key"),
        lambda: store.delete("key"),
        lambda: store.delete_many(["key"]),
        lambda: store.put_if_absent("key", b"x"),
        lambda: store.put_stream("key", [bytes(9 * MIB)]),
        lambda: list(store.list()),
    )
    for call in calls:
        with pytest.raises(InvalidRequest, match="bucket does not exist"):
            call()
    store.close()


def test_an_object_is_replaced_only_while_it_is_what_it_was(
    gcs_store: GcsStore, broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy
) -> None:
    gcs_store.put_if_absent("key", b"old")
    assert not gcs_store.replace_if_same("key", b"new", b"other")
    assert not gcs_store.replace_if_same("key", b"new", b"another length")
    assert gcs_store.replace_if_same("key", b"new", b"old")
    assert gcs_store.get("key") == b"new"
    with pytest.raises(ObjectNotFound):
        gcs_store.replace_if_same("missing", b"new", b"old")

    broken_gcs_store.put_if_absent("raced", b"old")

    def somebody_is_faster(method: str, path: str) -> str | None:
        if method == "POST":
            gcs_proxy.fault = lambda method, path: None
            assert broken_gcs_store.replace_if_same("raced", b"theirs", b"old")
        return None

    gcs_proxy.fault = somebody_is_faster
    assert not broken_gcs_store.replace_if_same("raced", b"mine", b"old")
    assert broken_gcs_store.get("raced") == b"theirs"


def test_a_replacement_whose_answer_was_lost_is_done(broken_gcs_store: GcsStore, gcs_proxy: FaultyProxy) -> None:
    broken_gcs_store.put_if_absent("key", b"old")
    gcs_proxy.fault = at("lose the answer", "POST", 0)
    assert broken_gcs_store.replace_if_same("key", b"new", b"old")
    assert broken_gcs_store.get("key") == b"new"


def test_without_credentials_the_cloud_is_denied_and_an_endpoint_is_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file.json")
    with pytest.raises(AccessDenied, match="no credentials"):
        GcsStore("bucket")
    for endpoint in ("https://127.0.0.1:1", "http://127.0.0.1:1"):
        session = authorized_session(StoreOptions(endpoint), "gs://bucket")
        assert isinstance(session.credentials, AnonymousCredentials)
        session.close()


@pytest.mark.parametrize(
    ("status", "code", "reason", "expected"),
    [
        (404, "notFound", "No such object: bucket/key", ObjectNotFound),
        (404, "notFound", "The specified bucket does not exist.", InvalidRequest),
        (401, "authError", "", AccessDenied),
        (403, "forbidden", "", AccessDenied),
        (403, "rateLimitExceeded", "", Throttled),
        (429, "", "", Throttled),
        (503, "backendError", "", Throttled),
        (500, "", "", StorageUnavailable),
        (504, "", "", StorageUnavailable),
        (408, "", "", StorageUnavailable),
        (412, "conditionNotMet", "", ObjectExists),
        (416, "", "", RangeNotSatisfiable),
        (507, "", "", StorageFull),
        (400, "invalid", "", InvalidRequest),
    ],
)
def test_every_answer_has_its_error(status: int, code: str, reason: str, expected: type[TierstateError]) -> None:
    error = answered(status, code, reason, "key", "gs://bucket")
    assert type(error) is expected
    assert "key=key" in str(error)


class GoogleSession:
    """A resumable session as Google documents it: keeps as much of a part as it likes, ignores bytes that it has.

    ``mishaps``: for each request in turn, how many bytes of it are kept (None: all), and whether the answer is lost.
    """

    def __init__(self, mishaps: list[tuple[int | None, bool]]) -> None:
        self.kept = bytearray()
        self.deleted = False
        self._mishaps = iter(mishaps)

    def put(self, url: str, data: bytes, headers: dict[str, str], **more: Any) -> requests.Response:
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", headers["Content-Range"])
        assert match is not None
        assert int(match[2]) + 1 - int(match[1]) == len(data)
        assert match[3] != "*" or len(data) % STEP == 0
        assert int(match[1]) <= len(self.kept)
        most, lost = next(self._mishaps, (None, False))
        self.kept += data[len(self.kept) - int(match[1]) :][:most]
        if lost:
            raise requests.ConnectionError("the answer is lost")
        answer = requests.Response()
        answer.status_code = 200 if match[3] == str(len(self.kept)) else 308
        if answer.status_code == 308 and self.kept:
            answer.headers["Range"] = f"bytes=0-{len(self.kept) - 1}"
        crc = base64.b64encode(google_crc32c.value(bytes(self.kept)).to_bytes(4, "big")).decode()
        if answer.status_code == 200:
            assert headers["x-goog-hash"] == f"crc32c={crc}"
        answer._content = json.dumps({"size": str(len(self.kept)), "crc32c": crc}).encode()
        return answer

    def delete(self, url: str, **more: Any) -> None:
        self.deleted = True


def _sent(session: GoogleSession, pieces: Iterable[bytes], part_bytes: int) -> ResumableUpload:
    def repeated(act: Callable[[], Any], given_up: Callable[[], bool], size: int) -> Any:
        while True:
            with suppress(requests.ConnectionError):
                return act()

    with PartShares(2).upload() as share:
        upload = ResumableUpload(session, "url", (1, 1), repeated, "gs://bucket", share)
        upload.send(parts_of(pieces, part_bytes, share))
    return upload


@pytest.mark.parametrize(
    "mishaps",
    [
        [],
        [(None, True)],
        [(None, False), (None, True), (None, True)],
        [(STEP, False), (None, False)],
        [(STEP, True), (STEP, False)],
        [(None, False), (None, False), (1, False)],
        [(None, False), (None, False), (1, True), (2, True)],
        [(None, False), (None, False), (None, True)],
    ],
)
def test_an_upload_goes_on_from_what_google_kept(mishaps: list[tuple[int | None, bool]]) -> None:
    data = bytes(range(251)) * (5 * STEP // 251)
    session = GoogleSession(mishaps)
    upload = _sent(session, [data], 2 * STEP)
    assert bytes(session.kept) == data
    assert upload.whole is not None
    assert upload.whole.size == len(data)
    assert not session.deleted


def test_an_upload_whose_bytes_google_forgot_is_given_up() -> None:
    session = GoogleSession([(None, False), (0, False)])
    with pytest.raises(StorageUnavailable, match="lost a part"):
        _sent(session, [bytes(3 * STEP)], STEP)
    assert session.deleted

"""Objects read by URLs that expire: after any failure the bytes are right, or an error names the object."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3

from tests.fetch.test_verify import segment
from tests.twins.manual_clock import ManualClock
from tierstate.fetch.granted_objects import DataKey, GrantedObjects, SegmentGrant
from tierstate.state.errors import (
    AccessDenied,
    CorruptData,
    InvalidRequest,
    ObjectNotFound,
    StorageUnavailable,
    Throttled,
)
from tierstate.state.object_keys import ObjectKind
from tierstate.state.offsets import ByteRange
from tierstate.state.segment import RemoteSegment
from tierstate.storage.object_store import RangeNotSatisfiable
from tierstate.storage.retry_policy import Limits

DATA = bytes(range(256)) * 40
"""The content of every object."""
SEGMENT = segment(1, 0, 9, (0, 0))


class Store(ThreadingHTTPServer):
    """Answers paths that end with the newest signature. ``ill``: the faults of the next answers, one each."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.ill: list[str] = []
        self.asked: list[str] = []
        self.signature = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        ill = self.server.ill.pop(0) if self.server.ill else ""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        self.server.asked.append(self.headers.get("range", "all"))
        status = 206 if match else 200
        start, stop = (int(match[1]), min(int(match[2]) + 1, len(DATA))) if match else (0, len(DATA))
        if not self.path.endswith(f"?signature={self.server.signature}"):
            status = 403
        if ill.isdigit():
            status = int(ill)
        if start >= len(DATA):
            status = 416
        body = DATA[start:stop] if status < 300 else b"no"
        if ill == "other range":
            start, body = start + 1, body[1:]
        self.send_response(200 if ill == "whole" else status)
        if status == 206 and ill != "whole":
            self.send_header("content-range", f"bytes {start}-{start + len(body) - 1}/{len(DATA)}")
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", "another" if ill == "replaced" else "one")
        self.end_headers()
        self.wfile.write(body[:2500] if ill == "cut" else body)
        self.close_connection = ill == "cut"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Grants:
    """``lasts``: the lifetime of each grant in seconds."""

    def __init__(self, store: Store) -> None:
        self.store, self.lasts, self.asked = store, 900.0, 0
        self._pool = urllib3.PoolManager(retries=False)

    def grant(self, segment: RemoteSegment) -> SegmentGrant:
        self.asked += 1
        urls = {kind: f"{self.store.url}/{kind}?signature={self.store.signature}" for kind in ObjectKind}
        return SegmentGrant(self.lasts, urls, DataKey(b"wrapped", b"plain"))

    def open(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        return self._pool.request("GET", url, headers=headers, preload_content=False, timeout=5)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def grants(store: Store) -> Grants:
    return Grants(store)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def objects(grants: Grants, clock: ManualClock) -> GrantedObjects:
    return GrantedObjects([SEGMENT], grants, clock, Limits(max_attempts=3, request_timeout=20, throttle_timeout=5))


@pytest.fixture
def key() -> str:
    return SEGMENT.object_key + ".log"


def ranged(objects: GrantedObjects, key: str, start: int = 0, stop: int = len(DATA)) -> bytes:
    return b"".join(objects.stream_range(key, ByteRange(start, stop), 1000))


def test_ranges_and_whole_objects_and_their_sizes(objects: GrantedObjects, grants: Grants, key: str) -> None:
    assert ranged(objects, key, 5, 4000) == DATA[5:4000]
    assert ranged(objects, key, 5, 10**6) == DATA[5:], "clamped"
    assert objects.get(key) == objects.get(key, len(DATA)) == DATA
    assert objects.head(key).size == len(DATA)
    assert grants.asked == 1, "one grant serves all three objects"
    with pytest.raises(RangeNotSatisfiable):
        ranged(objects, key, len(DATA), len(DATA) + 5)
    with pytest.raises(InvalidRequest, match="larger"):
        objects.get(key, len(DATA) - 1)
    with pytest.raises(InvalidRequest, match="not an object of this plan"):
        objects.get(key.replace("-0/", "-1/") + ".log")


@pytest.mark.parametrize("ill", ["cut", "500", "503", "429"])
def test_a_read_that_breaks_off_or_fails_is_resumed_there(
    objects: GrantedObjects, store: Store, key: str, ill: str
) -> None:
    store.ill = [ill, ill]
    assert ranged(objects, key, 10, 5000) == DATA[10:5000]
    assert store.asked[-1] == ("bytes=4010-4999" if ill == "cut" else "bytes=10-4999")
    store.ill = [ill]
    assert objects.get(key) == DATA


def test_a_read_does_not_wait_for_ever(objects: GrantedObjects, store: Store, key: str) -> None:
    store.ill = ["cut"] * 3
    with pytest.raises(StorageUnavailable, match="breaks off"):
        ranged(objects, key)
    store.ill = ["503"] * 20
    with pytest.raises(Throttled):
        ranged(objects, key)


def test_a_url_is_renewed_before_it_expires_and_when_it_is_refused(
    objects: GrantedObjects, grants: Grants, store: Store, clock: ManualClock, key: str
) -> None:
    assert ranged(objects, key) == DATA
    clock.advance(869)
    assert ranged(objects, key) == DATA
    assert grants.asked == 1
    clock.advance(1)
    assert ranged(objects, key) == DATA
    assert grants.asked == 2
    store.signature += 1  # the credentials that signed it expired early
    assert ranged(objects, key) == DATA
    assert grants.asked == 3
    store.ill = ["403", "403"]
    with pytest.raises(AccessDenied, match="the store refuses the URL") as refused:
        ranged(objects, key)
    assert "signature" not in str(refused.value)


def test_a_missing_object_is_named(objects: GrantedObjects, store: Store, key: str) -> None:
    store.ill = ["404"]
    with pytest.raises(ObjectNotFound) as missing:
        ranged(objects, key)
    assert missing.value.facts["key"] == key


@pytest.mark.parametrize("ill", ["other range", "whole"])
def test_an_answer_to_another_question_is_no_answer(objects: GrantedObjects, store: Store, key: str, ill: str) -> None:
    store.ill = [ill]
    with pytest.raises(CorruptData, match="another range"):
        ranged(objects, key, 10, 500)


def test_two_versions_are_never_joined(objects: GrantedObjects, store: Store, key: str) -> None:
    store.ill = ["cut", "replaced"]
    with pytest.raises(StorageUnavailable, match="replaced"):
        ranged(objects, key)


def test_the_grant_of_a_segment_has_its_data_key(objects: GrantedObjects, key: str) -> None:
    with pytest.raises(InvalidRequest, match="no data key"):
        objects.unwrap("key1", b"wrapped")
    objects.get(key)
    assert objects.unwrap("key1", b"wrapped") == b"plain"
    with pytest.raises(InvalidRequest, match="no data key"):
        objects.unwrap("key1", b"of another segment")

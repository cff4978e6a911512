"""No request is answered with 500, a stack trace, or another caller's data."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tierstate.api.app import create_app
from tierstate.api.media import RECORD_TYPES
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway

PARTITION = "/v1/topics/t/partitions/0"


@pytest.fixture(scope="module")
def ask() -> Iterator[Call]:
    reader = MemoryReader()
    for at in range(20):
        reader.append(b"k", b"%d" % at)
    service = FetchService(reader, Gateway(), SystemClock(), hidden=("_tier-state",))
    yield asgi_call(create_app(service))
    service.close()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{RECORDS}?offset=-1", 40051),
        (f"{RECORDS}?offset=1e3", 40051),
        (f"{RECORDS}?offset=abc", 40051),
        (f"{RECORDS}?offset=", 40051),
        (f"{RECORDS}?offset={2**63}", 40051),
        (f"{RECORDS}?offset={'9' * 5000}", 40051),
        (f"{RECORDS}?offset={2**63 - 1}", 41650),
        (f"{RECORDS}?offset=21", 41650),
        (RECORDS, 40050),
        (f"{RECORDS}?offset=0&timestamp=0", 40050),
        (f"{RECORDS}?timestamp=-1", 40050),
        (f"{RECORDS}?timestamp=1969-12-31", 40050),
        (f"{RECORDS}?timestamp=noon", 40050),
        (f"{RECORDS}?offset=0&max_bytes=0", 40051),
        (f"{RECORDS}?offset=0&max_bytes=-5", 40051),
        (f"{RECORDS}?offset=0&max_records=0", 40051),
        (f"{RECORDS}?offset=0&timeout_ms=60001", 40051),
        (f"{RECORDS}?offset=0&tier=cold", 40051),
        (f"{RECORDS}?offset=0&isolation_level=serializable", 40051),
        (f"{RECORDS}?offset=0&encoding=latin1", 40051),
        ("/v1/topics/u", 40401),
        ("/v1/topics/u/partitions/0/records?offset=0", 40401),
        ("/v1/topics/t/partitions/1", 40402),
        ("/v1/topics/t/partitions/1/segments", 40402),
        ("/v1/topics/t/partitions/1/offsets?timestamp=0", 40402),
        ("/v1/topics/t/partitions/-1", 40051),
        ("/v1/topics/t/partitions/zero", 40051),
        ("/v1/topics/t/partitions/+0", 40051),
        ("/v1/topics/t/partitions/%200", 40051),
        ("/v1/topics/t/partitions/00", 40051),
        ("/v1/topics/t/partitions/0.0", 40051),
        ("/v1/topics/t/partitions/%D9%A0", 40051),
        ("/v1/topics/t/partitions?partition=%2B0", 40051),
        (f"{RECORDS}?offset=+1", 40051),
        (f"{RECORDS}?offset=1_0", 40051),
        (f"{RECORDS}?offset=1.0", 40051),
        (f"{RECORDS}?offset=0&contains=%ff", 40050),
        (f"{RECORDS}?offset=0&contains=%ed%a0%80", 40050),
        (f"{RECORDS}?offset=0&offset=1", 40050),
        (f"{RECORDS}?offset=1&offset=1", 40050),
        (f"{RECORDS}?offset=0&max_records=1&contains=a&contains=b", 40050),
        (f"{PARTITION}/offsets?timestamp=0&timestamp=1", 40050),
        (f"/v1/topics/t/partitions/{2**31}", 40051),
        (f"{PARTITION}/offsets", 40051),
        ("/v1/topics/%2e%2e", 40050),
        ("/v1/topics/a%20b", 40050),
        ("/v1/topics/%00", 40050),
        (f"/v1/topics/{'t' * 250}", 40050),
        ("/v1/topics/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 40450),
        ("/v1/topics/__consumer_offsets", 40401),
        ("/v1/topics/_tier-state/partitions/0/records?offset=0", 40401),
        ("/console/..%2fapp.py", 40450),
        ("/console/%2e%2e", 40450),
        ("/console/index.html", 40450),
        ("/v1/topics/", 40450),
        ("/nothing", 40450),
    ],
)
def test_a_bad_call_has_a_clear_answer(ask: Call, path: str, code: int) -> None:
    answer = ask(path)
    assert (answer.status_code, answer.json()["error_code"]) == (code // 100, code)
    assert answer.json()["message"]
    assert answer.headers["content-type"] == "application/json"


def test_out_of_range_says_what_is_in_range(ask: Call) -> None:
    problem = ask(RECORDS, offset=99).json()
    assert (problem["valid_start"], problem["valid_end"]) == (0, 20)


values = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=12),
    st.sampled_from(["0", "1", "19", "20", "auto", "local", "remote", "read_uncommitted", "base64", "NaN", "1e9"]),
)
names = st.sampled_from(
    ["offset", "timestamp", "max_bytes", "max_records", "isolation_level", "tier", "encoding", "other"]
)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(names, values), max_size=6),
    st.one_of(st.sampled_from([*RECORD_TYPES, "*/*"]), st.text(st.characters(min_codepoint=32, max_codepoint=126))),
    st.one_of(st.just("t"), st.text(min_size=1, max_size=8)),
    st.one_of(st.just("0"), st.text("0123456789-x", min_size=1, max_size=11)),
)
def test_no_query_is_ever_answered_with_500(
    ask: Call, query: list[tuple[str, str]], accept: str, topic: str, partition: str
) -> None:
    pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
    answer = ask(f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/records?{pairs}", accept=accept)
    assert answer.status_code < 500
    if answer.status_code != 200:
        assert answer.json()["error_code"] // 100 == answer.status_code


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{RECORDS}?offset=0&max_recrods=1", "did you mean max_records?"),
        (f"{RECORDS}?offset=0&zzz=1", "no such parameter"),
        ("/v1/topics?page=2", "no such parameter"),
        (f"{PARTITION}/segments?offset=0", "no such parameter"),
        (f"{PARTITION}/offsets?timestamp=0&timestmap=1", "did you mean timestamp?"),
    ],
)
def test_a_parameter_that_a_route_does_not_have_is_refused(ask: Call, path: str, said: str) -> None:
    answer = ask(path)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40050)
    assert said in answer.json()["message"]

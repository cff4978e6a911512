"""Plain calls for records bypass the framework's routes, and their answers are the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.api.conftest import Log
from tests.api.gateways import RECORDS, Call, asgi_call
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, JSON, KAFKA_BINARY, NDJSON
from tierstate.api.plain_calls import LONGEST, PLAIN, plain_call
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway

FORMS = (NDJSON, KAFKA_BINARY, JSON, ARROW, BATCHES)
LONG_WAY = {"timeout_ms": "0"}
"""A parameter that the plain way does not read, and that does not change the call."""


def alike(call: Call, media_type: str, path: str = RECORDS, **query: Any) -> int:
    """Check that both ways answer alike, and return the status of both."""
    short, long = call(path, media_type, **query), call(path, media_type, **query, **LONG_WAY)
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert list(short.headers.multi_items()) == list(long.headers.multi_items())
    return short.status_code


@pytest.mark.extended
@pytest.mark.parametrize("media_type", FORMS)
@pytest.mark.parametrize("tier", ["auto", "local", "remote", "prefer-remote"])
def test_both_ways_answer_alike(call: Call, media_type: str, tier: str) -> None:
    for offset, isolation, size in product(
        ("0", "1", "450", "890", "100000"), ("read_committed", "read_uncommitted"), ("1", "5000")
    ):
        alike(call, media_type, offset=offset, isolation_level=isolation, max_bytes=size, tier=tier)


@pytest.mark.parametrize("text", ["-1", "+1", "01", " 1", "1_000", "٣", "1e3", "", "9223372036854775808", "1" * 5000])
@pytest.mark.parametrize("name", ["offset", "max_bytes", "max_records"])
def test_numbers_that_are_not_plain_are_judged_by_the_long_way(call: Call, name: str, text: str) -> None:
    alike(call, NDJSON, **{"offset": "0", name: text})


@pytest.mark.parametrize(
    "query",
    [
        *({"offset": "0", name: "nonsense"} for name in PLAIN),
        *({"offset": "0", name: "0"} for name in ("max_bytes", "max_records")),
        {"offset": "0", "timestamp": "0"},
        {"offset": "0", "max_recrods": "1"},
        {"max_bytes": "5"},
    ],
)
def test_both_ways_refuse_alike(call: Call, query: dict[str, str]) -> None:
    assert alike(call, NDJSON, **query) == 400


@pytest.mark.parametrize("twice", [["0", "450"], ["x", "450"], ["450", "x"], ["450", ""]])
def test_a_parameter_that_is_named_twice_is_refused_by_both_ways(call: Call, twice: list[str]) -> None:
    assert alike(call, NDJSON, offset=twice, max_records="1") == 400


@pytest.mark.parametrize("path", ["/v1/topics/nobody/partitions/0/records", "/v1/topics/t/partitions/7/records"])
def test_both_ways_miss_alike(call: Call, path: str) -> None:
    assert alike(call, BATCHES, path, offset="0") == 404


@pytest.mark.parametrize(
    "accepts", [[NDJSON, BATCHES], [BATCHES, NDJSON], [f"{NDJSON};q=0.1", BATCHES], ["text/html", ARROW]]
)
def test_both_ways_take_the_same_of_a_repeated_header(call: Call, accepts: list[str]) -> None:
    headers = [("accept", accept) for accept in accepts]
    short, long = (call(RECORDS, headers=headers, offset="0", **more) for more in ({}, LONG_WAY))
    assert (short.status_code, short.headers["content-type"]) == (200, long.headers["content-type"])
    assert short.content == long.content


def test_a_type_that_is_not_served_is_refused_alike(call: Call) -> None:
    assert alike(call, "text/html", offset="0") == 406


def test_a_bug_is_the_same_problem_by_both_ways(
    call: Call, service: FetchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service, "charge", broken)
    assert alike(call, NDJSON, offset="0") == 500
    assert call(RECORDS, NDJSON, offset="0").json()["error_code"] == 50050


def test_a_long_call_is_answered_and_not_remembered(call: Call) -> None:
    long = f"{NDJSON}{' ' * LONGEST}"
    alike(call, long, offset="0", max_records="1")
    size = plain_call.cache_info().currsize
    assert call(RECORDS, long, offset="1", max_records="1").status_code == 200
    assert plain_call.cache_info().currsize == size
    assert call(RECORDS, NDJSON, offset="1", max_records="77").status_code == 200
    assert plain_call.cache_info().currsize == size + 1


def test_stored_batches_are_read_from_memory_once_they_lie_there(log: Log) -> None:
    """The event loop itself reads them: no pool has a thread."""
    service = FetchService(log.reader, Gateway(), SystemClock())
    call = asgi_call(create_app(service))
    first = call(RECORDS, BATCHES, offset="0", max_bytes="4096")
    for pool in (service.pools.remote, service.pools.local, service.pools.metadata):
        pool.close()
    again = call(RECORDS, BATCHES, offset="0", max_bytes="4096")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers == first.headers
    assert call(RECORDS, BATCHES, offset="0", max_bytes="4096", tier="remote", encoding="utf8").status_code == 200
    assert call(RECORDS, NDJSON, offset="0").status_code == 503
    assert service.memory.used == 0

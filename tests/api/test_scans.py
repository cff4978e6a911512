"""Search by key or text: it finds all records that are there, and always reports how far it looked."""

from __future__ import annotations

import json
import os
import socket
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.bombed import Prepared
from tests.api.conftest import Log
from tests.api.decoded import Plain, decoded, plain
from tests.api.gateways import RECORDS, Call, MemoryReader, Running, asgi_call
from tests.fetch.two_tiers import golden_rows, rows
from tests.log.batches import NONE, TIME, Batch, record
from tests.scenarios.house import eventually
from tests.twins.manual_clock import ManualClock
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, JSON, KAFKA_BINARY, NDJSON, PARQUET
from tierstate.api.service import FetchService
from tierstate.fetch.gateway import GatewayClient
from tierstate.fetch.piece import Search
from tierstate.fetch.source import SearchedSource
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation, Tier

MIB = 1 << 20
FORMS = (NDJSON, KAFKA_BINARY, ARROW, PARQUET)


def asking(reader: MemoryReader, **settings: Any) -> Call:
    return asgi_call(create_app(FetchService(reader, Gateway(**settings), SystemClock())))


def numbered(count: int = 1000, size: int = 1000) -> MemoryReader:
    """Return records with keys ``k0`` to ``k9`` in turn; each value, of random bytes, ends with its number."""
    reader = MemoryReader()
    for number in range(count):
        value = os.urandom(size) + b"<%d>" % number
        reader.batches.append(Batch(number, [record(0, b"k%d" % (number % 10), value)], NONE, time=TIME).bytes)
    return reader


def all_of(ask: Call, media_type: str, **query: Any) -> tuple[list[Plain], list[httpx.Response]]:
    """Read on as a client does, until an answer says that this is the end. Return all rows and answers."""
    records: list[Plain] = []
    answers: list[httpx.Response] = []
    offset = 0
    while not answers or answers[-1].headers["x-scan-stopped"] != "end":
        answers.append(ask(RECORDS, media_type, offset=offset, **query))
        records += decoded(answers[-1], offset, committed=True)
        assert int(answers[-1].headers["x-next-offset"]) > offset or answers[-1].headers["x-scan-stopped"] == "end"
        offset = int(answers[-1].headers["x-next-offset"])
    return records, answers


def parts(row: Plain) -> list[bytes]:
    fields = [row[2], row[3], *(part for name, value in row[4] for part in (name.encode(), value))]
    return [part for part in fields if part is not None]


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("media_type", FORMS)
def test_both_tiers_are_searched_as_a_client_would_that_reads_all(
    call: Call, log: Log, media_type: str, isolation: Isolation
) -> None:
    rows = [plain(row) for row in golden_rows("transactions", isolation)]
    text = rows[len(rows) // 2][3]
    assert text is not None
    text = text[-2:]
    expected = [row for row in rows if any(text in part for part in parts(row))]
    query = {"contains": b64encode(text).decode(), "filter_encoding": "base64", "isolation_level": isolation.value}
    records, answers = all_of(call, media_type, **query)
    assert 0 < len(expected) < len(rows)
    assert records == expected
    assert sum(int(answer.headers["x-scanned-records"]) for answer in answers) == len(rows)
    assert {answer.headers["x-tier"] for answer in answers} == {"remote", "local"}


def test_a_search_through_a_gateway_is_the_search_through_both_tiers(serve: Callable[..., Running], log: Log) -> None:
    client = GatewayClient(serve(log.reader, scan_bytes=5000).server.url)

    def searched(source: SearchedSource) -> tuple[list[Any], list[Tier], int, int]:
        counts: list[int] = []
        search = Search(None, b"1", lambda found: counts.append(found.reached))
        batches = list(
            source.search_records("t", 0, Extent(Offset(5), Offset(2000)), Isolation.READ_COMMITTED, Tier.AUTO, search)
        )
        assert counts == sorted(counts)
        records = [row for batch, tier in batches for row in rows([batch])]
        tiers = [tier for batch, tier in batches for _ in range(batch.num_rows)]
        return records, tiers, counts[-1], search.reached

    direct = searched(log.reader)
    assert 0 < len(direct[0]) < 2000
    assert searched(client) == direct
    client.close()


@pytest.mark.parametrize("media_type", FORMS)
def test_a_key_is_the_whole_key(media_type: str) -> None:
    reader = numbered(40)
    reader.append(b"k", b"short")
    reader.append(None, b"null")
    reader.append(b"", b"empty")
    reader.append(b"k1k1", b"long")
    ask = asking(reader)
    for key, offsets in (("k1", [1, 11, 21, 31]), ("k", [40]), ("", [42]), ("K1", [])):
        answer = ask(RECORDS, media_type, offset=0, key=key)
        assert [row[0] for row in decoded(answer, 0, committed=True)] == offsets
        assert answer.headers["x-next-offset"] == "44"
    both = ask(RECORDS, media_type, offset=0, key="k1", contains="<21>")
    assert [row[0] for row in decoded(both, 0, committed=True)] == [21]


def test_bytes_that_are_no_text_are_given_in_base64() -> None:
    reader = MemoryReader()
    reader.append(b"\xff\0", b"1")
    ask = asking(reader)
    for name in ("key", "contains"):
        query = {name: "/wA=", "filter_encoding": "base64"}
        assert len(ask(RECORDS, JSON, offset=0, **query).json()) == 1
        refused = ask(RECORDS, JSON, offset=0, **{name: "/wA", "filter_encoding": "base64"})
        assert (refused.status_code, refused.json()["parameter"]) == (400, name)


def test_the_budget_ends_a_call_and_the_next_one_looks_on() -> None:
    ask = asking(numbered(5000), scan_bytes=100_000)
    first = ask(RECORDS, NDJSON, offset=0, contains="<4999>")
    assert (first.status_code, first.content, first.headers["x-scan-stopped"]) == (200, b"", "budget")
    assert 100_000 <= int(first.headers["x-scanned-bytes"]) < 100_000 + MIB
    assert int(first.headers["x-next-offset"]) == int(first.headers["x-scanned-records"])
    records, answers = all_of(ask, NDJSON, contains="<4999>")
    assert [row[0] for row in records] == [4999]
    assert {answer.headers["x-scan-stopped"] for answer in answers[:-1]} == {"budget"}
    assert sum(int(answer.headers["x-scanned-records"]) for answer in answers) == 5000


def test_what_unpacks_counts_as_it_is_unpacked() -> None:
    reader = Prepared()
    for _ in range(50):
        reader.add(bytes(MIB))
    ask = asking(reader, scan_bytes=10 * MIB)
    answer = ask(RECORDS, NDJSON, offset=0, contains="x")
    assert (answer.headers["x-next-offset"], answer.headers["x-scan-stopped"]) == ("10", "budget")


def test_as_many_as_were_asked_for_end_a_scan_and_cross_the_seam() -> None:
    reader = numbered(100)
    reader.local_start = 50
    ask = asking(reader)
    answer = ask(RECORDS, NDJSON, offset=0, key="k3", max_records=7)
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [3, 13, 23, 33, 43, 53, 63]
    assert (answer.headers["x-next-offset"], answer.headers["x-tier"]) == ("64", "remote, local")
    assert answer.headers["x-scan-stopped"] == "records"
    one = ask(RECORDS, NDJSON, offset=0, key="k3")
    assert (one.headers["x-next-offset"], one.headers["x-tier"]) == ("50", "remote")
    assert one.headers["x-scan-stopped"] == "tier"


@pytest.mark.parametrize("media_type", FORMS)
def test_an_answer_that_is_full_ends_the_scan(media_type: str) -> None:
    ask = asking(numbered(300, 100_000), scan_bytes=2**40, memory=64 * MIB)
    answer = ask(RECORDS, media_type, offset=0, contains="<", max_bytes=5 * MIB)
    rows = decoded(answer, 0, committed=True)
    assert answer.headers["x-scan-stopped"] == "bytes"
    assert [row[0] for row in rows] == list(range(int(answer.headers["x-next-offset"])))


def test_a_batch_that_is_refused_costs_no_record_that_was_found_before_it() -> None:
    reader = Prepared()
    reader.add(b"<a>")
    reader.add(bytes(5 * MIB))
    reader.add(b"<a>")
    ask = asking(reader, max_bytes=4 * MIB)
    first = ask(RECORDS, NDJSON, offset=0, contains="<a>")
    assert (len(first.text.splitlines()), first.headers["x-scan-stopped"]) == (1, "error")
    assert first.headers["x-next-offset"] == "1"
    assert ask(RECORDS, NDJSON, offset=1, contains="<a>").status_code == 422
    assert len(ask(RECORDS, NDJSON, offset=2, contains="<a>").text.splitlines()) == 1


def test_batches_refuse_a_filter_by_its_name() -> None:
    ask = asking(numbered(3))
    for name in ("key", "contains"):
        answer = ask(RECORDS, BATCHES, offset=0, **{name: "k"})
        assert (answer.status_code, name in answer.json()["message"]) == (400, True)


def test_a_scan_pays_for_all_bytes_that_it_looks_through() -> None:
    reader = Prepared()
    for _ in range(4):
        reader.add(bytes(MIB))
    clock = ManualClock()
    ask = asgi_call(create_app(FetchService(reader, Gateway(quota=100_000), clock)))
    assert ask(RECORDS, NDJSON, offset=0, contains="x").headers["x-next-offset"] == "4"
    assert ask(RECORDS, NDJSON, offset=4).status_code == 429
    clock.advance(39)
    assert ask(RECORDS, NDJSON, offset=4).status_code == 429
    clock.advance(4)
    assert ask(RECORDS, NDJSON, offset=4).status_code == 200


@pytest.mark.extended
def test_memory_holds_whatever_is_looked_for() -> None:
    reader = Prepared()
    for _ in range(60):
        reader.add(bytes(3 * MIB))
    service = FetchService(reader, Gateway(memory=64 * MIB, scan_bytes=2**40), SystemClock())
    ask = asgi_call(create_app(service))
    for media_type in FORMS:
        assert ask(RECORDS, media_type, offset=0, contains="k").status_code == 200
        assert ask(RECORDS, media_type, offset=0, contains="none").headers["x-next-offset"] == "60"
    assert service.memory.used == 0


def test_a_client_that_leaves_ends_its_scan(serve: Callable[..., Running]) -> None:
    reader = numbered(1000, 20_000)
    running = serve(reader, scan_bytes=2**40)
    offsets: list[int] = []
    client = socket.create_connection((running.server.address.host, running.server.address.port))

    def leave(offset: int) -> None:
        offsets.append(offset)
        if len(offsets) == 2:
            client.close()
            eventually(lambda: running.server.open_connections == 0)

    reader.before = leave
    client.sendall(f"GET {RECORDS}?offset=0&contains=none HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    eventually(lambda: len(offsets) > 1 and running.service.pools.local.admitted == 0)
    eventually(lambda: running.service.memory.used == 0)
    assert len(offsets) == 2 < 1000 * 20_000 // MIB


def test_a_scan_at_the_end_waits_for_a_record_and_looks_at_it(serve: Callable[..., Running]) -> None:
    reader = numbered(3)
    running = serve(reader)
    at_end = f"{RECORDS}?offset=3&key=k1"
    answer = running.client.get(f"{at_end}&timeout_ms=50")
    assert (answer.content, answer.headers["x-next-offset"], answer.headers["x-scan-stopped"]) == (b"", "3", "end")
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(running.client.get, f"{at_end}&timeout_ms=20000")
        eventually(lambda: bool(running.service.tail._watches))
        reader.append(b"k1", b"late")
        answer = polling.result(20)
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [3]

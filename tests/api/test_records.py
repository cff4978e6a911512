"""Records over HTTP are the records librdkafka read from the same log, in every media type."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.api.conftest import Log
from tests.api.decoded import decoded, plain, split_batches
from tests.api.gateways import RECORDS, Call, MemoryReader, Running, asgi_call
from tests.fetch.two_tiers import golden_rows
from tests.tiers import few
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, KAFKA_BINARY, KAFKA_JSON, NDJSON, PARQUET
from tierstate.api.service import FetchService
from tierstate.fetch.gateway import GatewayClient
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.state.offsets import Extent, Offset
from tierstate.state.routing import Isolation, Tier

BYTE_TYPES = (NDJSON, KAFKA_BINARY, ARROW, PARQUET, BATCHES)


@pytest.fixture
def memory() -> MemoryReader:
    return MemoryReader()


@pytest.fixture
def ask(memory: MemoryReader) -> Call:
    return asgi_call(create_app(FetchService(memory, Gateway(), SystemClock())))


@pytest.mark.parametrize("isolation", few(Isolation, [Isolation.READ_COMMITTED]))
@pytest.mark.parametrize("media_type", BYTE_TYPES)
def test_the_whole_log_reads_as_librdkafka_reads_it(
    call: Call, log: Log, media_type: str, isolation: Isolation
) -> None:
    records, offset, tiers = [], 0, []
    while offset < log.folder.end():
        answer = call(RECORDS, accept=media_type, offset=offset, isolation_level=isolation.value, max_bytes=9000)
        records += decoded(answer, offset, committed=isolation is Isolation.READ_COMMITTED)
        tiers.append(answer.headers["x-tier"])
        assert int(answer.headers["x-next-offset"]) > offset
        offset = int(answer.headers["x-next-offset"])
    assert records == [plain(row) for row in golden_rows("transactions", isolation)]
    assert sorted(set(tiers)) == ["local", "remote"]


@pytest.mark.parametrize("media_type", BYTE_TYPES)
def test_a_read_may_begin_inside_a_batch(call: Call, media_type: str) -> None:
    expected = [plain(row) for row in golden_rows("transactions", Isolation.READ_COMMITTED) if row[0] >= 17]
    records = decoded(call(RECORDS, accept=media_type, offset=17), 17, committed=True)
    assert records == expected[: len(records)]
    assert records[0][0] == 17


def test_batches_are_as_stored_and_never_filtered(call: Call, log: Log) -> None:
    answer = call(RECORDS, accept=BATCHES, offset=17)
    data, _ = split_batches(answer.content)
    assert log.folder.log().find(data) >= 0
    assert int.from_bytes(data[:8], "big") < 17
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("media_type", [NDJSON, KAFKA_BINARY, ARROW, PARQUET])
def test_max_records_is_exact_and_the_next_offset_goes_on_behind_the_last(call: Call, media_type: str) -> None:
    expected = [plain(row) for row in golden_rows("transactions", Isolation.READ_COMMITTED)][:7]
    first = call(RECORDS, accept=media_type, offset=0, max_records=3)
    rest = call(RECORDS, accept=media_type, offset=int(first.headers["x-next-offset"]), max_records=4)
    assert decoded(first, 0, committed=True) + decoded(rest, 0, committed=True) == expected


def test_batches_refuse_max_records(call: Call) -> None:
    answer = call(RECORDS, accept=BATCHES, offset=0, max_records=3)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40050)


def test_the_next_offset_advances_when_every_record_was_filtered(call: Call) -> None:
    committed = {row[0] for row in golden_rows("transactions", Isolation.READ_COMMITTED)}
    offset = next(o for o in range(2042) if not {o, o + 1, o + 2} & committed)
    answer = call(RECORDS, accept=NDJSON, offset=offset, max_bytes=1)
    assert answer.content == b""
    assert int(answer.headers["x-next-offset"]) > offset


def test_headers_say_where_the_log_begins_and_ends(call: Call, log: Log) -> None:
    headers = call(RECORDS, offset=0).headers
    assert headers["x-log-start-offset"] == "0"
    assert headers["x-high-watermark"] == str(log.folder.end())
    assert headers["x-last-stable-offset"] == str(log.folder.end())
    assert headers["vary"] == "Accept, Accept-Encoding"


def test_a_read_at_the_end_is_empty_in_every_media_type(call: Call, log: Log) -> None:
    end = log.folder.end()
    for media_type in BYTE_TYPES:
        answer = call(RECORDS, accept=media_type, offset=end)
        assert decoded(answer, end, committed=True) == []
        assert answer.headers["x-next-offset"] == str(end)
    assert call(RECORDS, accept=KAFKA_JSON, offset=end).json() == []


def test_one_tier_alone_can_be_asked_for(call: Call, log: Log) -> None:
    local = log.local.local_start
    assert call(RECORDS, offset=local, tier="local").headers["x-tier"] == "local"
    refused = call(RECORDS, offset=0, tier="local")
    assert (refused.status_code, refused.json()["valid_start"]) == (416, local)
    assert call(RECORDS, offset=0, tier="remote").headers["x-tier"] == "remote"


def test_records_trimmed_since_the_last_look_are_read_from_the_store(call: Call, log: Log) -> None:
    local = log.folder.bases[-2]
    log.local.local_start = local
    assert call(RECORDS, offset=local).headers["x-tier"] == "local"
    log.local.local_start = log.folder.bases[-1]
    answer = call(RECORDS, offset=local)
    assert answer.headers["x-tier"] == "remote"
    assert decoded(answer, local, committed=True)[0][0] >= local


def test_the_gateways_cap_holds_whatever_is_asked_for(memory: MemoryReader) -> None:
    for _ in range(100):
        memory.append(None, b"x" * 1000)
    ask = asgi_call(create_app(FetchService(memory, Gateway(max_bytes=5000), SystemClock())))
    assert len(call_lines(ask, max_bytes=10**12)) == 4
    assert len(call_lines(ask, max_bytes=1)) == 1


def call_lines(ask: Call, **query: int) -> list[bytes]:
    return ask(RECORDS, accept=NDJSON, offset=0, **query).content.splitlines()


def test_records_by_time_begin_at_the_first_one_at_or_after_it(call: Call) -> None:
    written = golden_rows("transactions", Isolation.READ_UNCOMMITTED)
    time = written[400][1]
    first = next(row[0] for row in written if row[1] >= time)
    answer = call(RECORDS, accept=NDJSON, timestamp=time, max_records=1, isolation_level="read_uncommitted")
    assert json.loads(answer.content)["offset"] == first


def test_a_time_after_the_last_record_is_the_end(call: Call, log: Log) -> None:
    answer = call(RECORDS, accept=NDJSON, timestamp=2**60)
    assert (answer.content, answer.headers["x-next-offset"]) == (b"", str(log.folder.end()))


def test_a_time_within_an_open_transaction_is_the_last_stable_offset_for_a_committed_reader(
    ask: Call, memory: MemoryReader
) -> None:
    for _ in range(10):
        memory.append(None, b"1")
    memory.last_stable, memory.found = 5, 7
    committed = ask(RECORDS, accept=NDJSON, timestamp=1)
    assert (committed.status_code, committed.content, committed.headers["x-next-offset"]) == (200, b"", "5")
    uncommitted = ask(RECORDS, accept=NDJSON, timestamp=1, isolation_level="read_uncommitted")
    assert json.loads(uncommitted.content.splitlines()[0])["offset"] == 7


def test_json_records_embed_their_json(ask: Call, memory: MemoryReader) -> None:
    memory.append(b'"k"', b'{"n": 123456789012345678901234567890}')
    memory.append(None, b"[1, null]")
    memory.append(b"null", None)
    answer = ask(RECORDS, accept=KAFKA_JSON, offset=0)
    assert answer.headers["content-type"] == KAFKA_JSON
    assert [(r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in answer.json()] == [
        ("t", 0, 0, "k", {"n": 123456789012345678901234567890}),
        ("t", 0, 1, None, [1, None]),
        ("t", 0, 2, None, None),
    ]


@pytest.mark.parametrize(("key", "value"), [(b"k", b"1"), (b"1", b"{"), (b"1", b""), (b"\xff", b"1"), (b"1", b"NaN")])
def test_a_record_that_is_not_json_is_a_typed_error_that_names_it(
    ask: Call, memory: MemoryReader, key: bytes, value: bytes
) -> None:
    memory.append(b"1", b"1")
    memory.append(key, value)
    answer = ask(RECORDS, accept=KAFKA_JSON, offset=0)
    assert answer.status_code == 406
    assert answer.json()["error"] == "NotJson"
    assert answer.json()["offset"] == 1
    assert KAFKA_BINARY in answer.json()["message"]
    assert ask(RECORDS, accept=KAFKA_JSON, offset=0, max_records=1).status_code == 200


@pytest.mark.parametrize("media_type", [*BYTE_TYPES, KAFKA_JSON])
def test_corrupt_bytes_are_an_error_of_the_call_that_begins_there(
    ask: Call, memory: MemoryReader, media_type: str
) -> None:
    for _ in range(3):
        memory.append(b"1", b"1")
    memory.batches[2] = memory.batches[2][:-1] + b"\xee"
    answer = ask(RECORDS, accept=media_type, offset=0)
    assert (answer.status_code, answer.headers["x-next-offset"]) == (200, "2")
    answer = ask(RECORDS, accept=media_type, offset=2)
    assert (answer.status_code, answer.json()["error"]) == (500, "CorruptData")


def test_ndjson_can_be_base64(ask: Call, memory: MemoryReader) -> None:
    memory.append(b"k", None)
    record = json.loads(ask(RECORDS, accept=NDJSON, offset=0, encoding="base64").content)
    assert (record["key"], record["value"], record["tier"]) == ("aw==", None, "local")


def test_our_own_client_reads_the_log_through_the_gateway(serve: Callable[..., Running], log: Log) -> None:
    running = serve(log.reader)
    client = GatewayClient(running.server.url)
    assert client.topics() == ["t"]
    assert client.partitions("t") == [0]
    bounds = client.bounds("t", 0)
    assert (bounds.local_start, bounds.high_watermark) == (log.local.local_start, log.folder.end())
    assert len(client.segments("t", 0)) == 4
    extent = Extent(Offset(0), bounds.high_watermark)
    batches = list(client.records("t", 0, extent, Isolation.READ_COMMITTED, Tier.AUTO))
    expected = [row[0] for row in golden_rows("transactions", Isolation.READ_COMMITTED)]
    assert [offset for batch, _ in batches for offset in batch.column("offset").to_pylist()] == expected
    assert {tier for _, tier in batches} == {Tier.LOCAL, Tier.REMOTE}
    client.close()


@pytest.mark.parametrize("values", [[], ["a"], ["a\nb", "[", "}\n]"], ["x" * 700_000, "y" * 300_000, "\n" * 300_000]])
def test_json_is_the_lines_as_one_array(values: list[str]) -> None:
    memory = MemoryReader()
    for value in values:
        memory.append(b"k", value.encode())
    ask = asgi_call(create_app(FetchService(memory, Gateway(), SystemClock())))
    array = ask(RECORDS, "application/json", offset=0, max_bytes=10_000_000)
    lines = ask(RECORDS, NDJSON, offset=0, max_bytes=10_000_000)
    assert array.headers["content-type"] == "application/json"
    assert array.json() == [json.loads(line) for line in lines.text.split("\n")[:-1]]
    assert [row["value"] for row in array.json()] == values

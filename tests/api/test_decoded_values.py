"""``decode``: keys and values decoded by a schema registry, in addition to their bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from tests.api.gateways import RECORDS, Call, MemoryReader, asgi_call
from tests.servers.schema_registry import Registry, registry
from tests.values.registered import avro, framed, of_avro
from tierstate.api.app import create_app
from tierstate.api.media import ARROW, BATCHES, JSON, KAFKA_BINARY, KAFKA_JSON, NDJSON, PARQUET
from tierstate.api.open import open_gateway
from tierstate.api.service import FetchService
from tierstate.runtime.clock import SystemClock
from tierstate.runtime.gateway_settings import Gateway
from tierstate.runtime.gateway_settings import Registry as Settings
from tierstate.state.errors import MissingExtra
from tierstate.values.registered_values import open_registered_values

LONG: Any = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}


@contextmanager
def gateway(
    reader: MemoryReader, timeout: float = 60, **settings: Any
) -> Iterator[tuple[Call, Registry, FetchService]]:
    with registry({7: of_avro(LONG), 8: of_avro("string")}) as server:
        values = open_registered_values(Settings(url=server.url, timeout=timeout), SystemClock())
        service = FetchService(reader, Gateway(**settings), SystemClock(), values=values)
        yield asgi_call(create_app(service)), server, service
        service.close()


def records(*pairs: tuple[bytes | None, bytes | None]) -> MemoryReader:
    reader = MemoryReader()
    for key, value in pairs:
        reader.append(key, value)
    return reader


@pytest.mark.parametrize("media_type", [NDJSON, JSON])
def test_every_record_is_there_as_bytes_and_as_what_its_schema_says_or_a_reason(media_type: str) -> None:
    written = avro(7, LONG, {"n": 2**60 + 1})
    reader = records((avro(8, "string", "a\nb"), written), (b"plain", None), (framed(9, b"x"), b"\0\0\0\0\7"))
    with gateway(reader) as (ask, _, service):
        answer = ask(RECORDS, media_type, offset=0, decode="true")
        rows = answer.json() if media_type == JSON else [json.loads(line) for line in answer.text.split("\n")[:-1]]
        plain = ask(RECORDS, JSON, offset=0).json()
        assert answer.headers["content-type"] == media_type
        assert service.memory.used == 0
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    avro_ = {"schemaType": "AVRO"}
    assert [(row["keyDecoded"], row["valueDecoded"]) for row in rows] == [
        ({"schemaId": 8, **avro_, "value": "a\nb"}, {"schemaId": 7, **avro_, "value": {"n": 2**60 + 1}}),
        ({"reason": "it does not begin with 0 and the id of a schema"}, None),
        (
            {"schemaId": 9, "reason": "the schema registry has no schema of this id"},
            {"schemaId": 7, **avro_, "reason": rows[2]["valueDecoded"]["reason"]},
        ),
    ]
    assert "EOFError" in rows[2]["valueDecoded"]["reason"]


@pytest.mark.parametrize("media_type", [NDJSON, JSON])
def test_no_record_is_no_line(media_type: str) -> None:
    with gateway(records()) as (ask, _, _):
        assert ask(RECORDS, media_type, offset=0, decode="true").content == (b"[]" if media_type == JSON else b"")


@pytest.mark.extended
def test_an_answer_of_many_pages_of_memory_is_whole() -> None:
    reader = records(*[(b"k", avro(8, "string", "x" * 20_000))] * 600)
    with gateway(reader, memory=64 << 20) as (ask, _, service):
        answer = ask(RECORDS, NDJSON, offset=0, decode="true", max_bytes=16 << 20)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert [row["offset"] for row in rows] == list(range(600))
        assert "value" in rows[0]["valueDecoded"]
        assert "ask for fewer records" in rows[-1]["valueDecoded"]["reason"]
        assert service.memory.used == 0


def test_a_filter_looks_at_the_bytes_and_what_it_finds_is_decoded() -> None:
    reader = records(*[(b"k%d" % n, avro(8, "string", f"<{n}>")) for n in range(50)])
    with gateway(reader) as (ask, server, _):
        (row,) = ask(RECORDS, JSON, offset=0, decode="true", contains="<31>").json()
        assert (row["offset"], row["valueDecoded"]["value"]) == (31, "<31>")
        assert server.asked == ["/schemas/ids/8"]


@pytest.mark.parametrize("media_type", [KAFKA_BINARY, KAFKA_JSON, ARROW, PARQUET, BATCHES])
def test_other_media_types_refuse_it(media_type: str) -> None:
    with gateway(records((b"k", b"v"))) as (ask, _, _):
        answer = ask(RECORDS, media_type, offset=0, decode="true")
        assert (answer.status_code, answer.json()["given"]) == (400, media_type)


def test_a_gateway_without_a_registry_refuses_it() -> None:
    ask = asgi_call(create_app(FetchService(records((b"k", b"v")), Gateway(), SystemClock())))
    answer = ask(RECORDS, NDJSON, offset=0, decode="true")
    assert (answer.status_code, answer.json()["parameter"]) == (400, "decode")
    assert "registry.url" in answer.json()["message"]


def test_a_registry_that_does_not_answer_keeps_no_read_waiting() -> None:
    arrived, go = Event(), Event()

    def wait(path: str) -> None:
        arrived.set()
        go.wait(20)

    reader = records((b"k", framed(7, b"\2")))
    with gateway(reader, timeout=20, local_reads=1) as (ask, server, _), ThreadPoolExecutor(1) as pool:
        server.before = wait
        try:
            waiting = pool.submit(ask, RECORDS, JSON, offset=0, decode="true")
            assert arrived.wait(20)
            assert ask(RECORDS, JSON, offset=0).json()[0]["offset"] == 0
            assert not waiting.done()
        finally:
            go.set()
        (row,) = waiting.result(20).json()
        assert row["valueDecoded"]["value"] == {"n": 1}


def test_the_console_shows_decoded_values_at_first_where_there_is_a_registry(call: Call) -> None:
    chosen = '<option value="decoded" selected>'
    with gateway(records()) as (ask, _, _):
        assert chosen in ask("/").text
    without = call("/").text
    assert chosen not in without
    assert '<option value="decoded">' in without


def test_without_its_library_a_gateway_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    with pytest.raises(MissingExtra, match=r"the extra \[registry\]"):
        open_gateway(MemoryReader(), Gateway(), SystemClock(), registry=Settings(url="http://127.0.0.1:1"))
